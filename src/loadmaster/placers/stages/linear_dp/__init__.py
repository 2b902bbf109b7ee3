"""Cutting topological orders into stages: the throughput problem for graphs with too many ideals."""

from loadmaster.placers.stages.linear_dp.linear_dp import LinearDp

__all__ = ["LinearDp"]
