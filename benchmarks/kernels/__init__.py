"""How fast the kernels are, against references in the same run."""

from benchmarks.kernels.study import STUDY

__all__ = ["STUDY"]
