"""The bound for pipelines whose devices must be convex."""

from loadmaster.placers.columns.convex.convex import Convex

__all__ = ["Convex"]
