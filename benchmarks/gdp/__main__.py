"""``python -m benchmarks.gdp``."""

from benchmarks.gdp import STUDY

raise SystemExit(STUDY.main())
