"""The best single device."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from loadmaster.placers.frame.feasible import single_devices
from loadmaster.placers.frame.search import Search
from loadmaster.placers.frame.searcher import Searcher
from loadmaster.problem import Placement

__all__ = ["Single"]


@dataclass(frozen=True)
class Single(Searcher):
    """Everything on one device, the best one that is feasible.

    Ops that the device must not or cannot take go to their fastest device, and what exceeds its memory goes
    where it costs least; without such constraints it is one device and nothing else.
    """

    name: ClassVar[str] = "single"
    knows_steps: ClassVar[bool] = True
    summary: ClassVar[str] = "the best single device (ops it cannot take go elsewhere)"

    def explore(self, search: Search, start: Placement | None, seed: int) -> None:
        """Try every device."""
        problem = search.problem
        for device in single_devices(problem):
            search.try_device(device)
            search.check()
