"""The optimal chain of stages: dynamic programming over ideals."""

from loadmaster.placers.stages.ideal_dp.ideal_dp import IdealDp

__all__ = ["IdealDp"]
