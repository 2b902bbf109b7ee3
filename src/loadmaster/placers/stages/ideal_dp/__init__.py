"""The optimal chain of stages: dynamic programming over ideals."""

from loadmaster.placers.stages.ideal_dp.ideal_dp import IdealDp, count_ideals

__all__ = ["IdealDp", "count_ideals"]
