"""How a model is placed anew while it runs."""

from __future__ import annotations

from loadmaster.api._placing import place
from loadmaster.problem import Problem, Solution

__all__ = ["place_again"]

REPLANNING = 2.0
"""Seconds for placing a model anew."""


def place_again(problem: Problem) -> Solution:
    """The best placement of two seconds of search."""
    return place(problem, budget=REPLANNING)
