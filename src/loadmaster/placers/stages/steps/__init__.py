"""Stages for one step of microbatches: exact over the cuts of a small graph, along orders of a large one."""

from loadmaster.placers.stages.steps.stages import Stages

__all__ = ["Stages"]
