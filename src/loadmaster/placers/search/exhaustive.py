"""Exhaustive search."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from loadmaster.placers.frame.branching import branch, branches
from loadmaster.placers.frame.enumeration import MOST, placements_of
from loadmaster.placers.frame.exhaust import exhaust
from loadmaster.placers.frame.search import Budget, Search
from loadmaster.placers.frame.searcher import Searcher
from loadmaster.problem import Placement

__all__ = ["Exhaustive"]


@dataclass(frozen=True)
class Exhaustive(Searcher):
    """Evaluates all placements, one after another; if there are more than a few million, the budget ends first.

    Where there are only some 16 atoms, branch and bound leaves out what partial placements rule out.

    Exact under ``serial``, ``pipeline`` and ``offload`` where it gets through. Under ``concurrent`` it finds the best
    devices with the schedule of the model; an order of its own may be better still (``cp-sat`` proves that).

    Complexity: the product of the devices that each colocation class may go to.
    """

    whole: bool = True
    """Go on where branch and bound gives up; off, end there."""

    name: ClassVar[str] = "exhaustive"
    knows_steps: ClassVar[bool] = True
    summary: ClassVar[str] = "tries every placement of a small problem"
    keeps_start: ClassVar[bool] = True
    unlimited: ClassVar[Budget] = Budget(seconds=60.0)

    def explore(self, search: Search, start: Placement | None, seed: int) -> None:
        """Everything, or as much as the budget allows (60 seconds if it sets no limit)."""
        if start is not None:
            search.try_placement(start)
            search.check()
        if placements_of(search.problem) > MOST and branches(search) and branch(search):
            return
        if self.whole and not exhaust(search, small=False):
            search.check()
