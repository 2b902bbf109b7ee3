"""The ``concurrent`` execution model, compiled: schedules by events or in a fixed order, moves, peak memory."""

from loadmaster.problem.concurrent._simulator import ConcurrentSimulator

__all__ = ["ConcurrentSimulator"]
