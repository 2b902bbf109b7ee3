"""Exhaustive search."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from loadmaster.placers.frame.exhaust import MOST, exhaust, placements_of
from loadmaster.placers.frame.search import Search
from loadmaster.placers.frame.searcher import Searcher
from loadmaster.problem import Placement, Problem

__all__ = ["Exhaustive"]


@dataclass(frozen=True)
class Exhaustive(Searcher):
    """Evaluates all placements of a problem that has at most a million of them.

    Exact under ``serial``, ``pipeline`` and ``offload``. Under ``concurrent`` it finds the best devices with the
    schedule of the model; an order of its own may be better still (``cp-sat`` proves that).
    """

    name: ClassVar[str] = "exhaustive"
    summary: ClassVar[str] = "every placement of a small problem"
    keeps_start: ClassVar[bool] = True

    def supports(self, problem: Problem) -> str | None:
        """Problems of at most :data:`MOST` placements."""
        count = placements_of(problem)
        if count <= MOST:
            return None
        return f"there are {count:.3g} placements, and more than {MOST:,} are too many to try: use auto"

    def explore(self, search: Search, start: Placement | None, seed: int) -> None:
        """Everything, or as much as the budget allows."""
        if start is not None:
            search.try_placement(start)
        exhaust(search)
