"""How a model is placed anew while it runs."""

from __future__ import annotations

from loadmaster.api._placing import DEFAULT_METHOD, configured, place, warm_for
from loadmaster.problem import Problem, Solution

__all__ = ["make_ready", "place_again"]

REPLANNING = 2.0
"""Seconds for placing a model anew."""


def place_again(problem: Problem) -> Solution:
    """The best placement of two seconds of search."""
    return place(problem, budget=REPLANNING)


def make_ready(problem: Problem) -> None:
    """Load or compile what :func:`place_again` needs: half a minute on a machine that has never placed anything, in
    which requests would wait."""
    warm_for(configured(DEFAULT_METHOD), problem)
