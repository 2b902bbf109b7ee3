"""``python -m benchmarks.kernels``."""

from benchmarks.kernels import STUDY

raise SystemExit(STUDY.main())
