"""Good placements to begin with, for the placers whose own work is a proof."""

from __future__ import annotations

import math

from loadmaster.placers.frame.placer import Placer
from loadmaster.placers.frame.search import SOLVE_FROM, Budget, Progress, Search
from loadmaster.placers.rules.greedy import greedy_candidates
from loadmaster.placers.search._walkers import first_start
from loadmaster.placers.search.local_search import LocalSearch
from loadmaster.placers.stages.linear_dp import LinearDp
from loadmaster.problem import Pipeline, Placement
from loadmaster.problem.bounds import Bound

__all__ = [
    "borrow",
    "construct",
    "has_room_to_solve",
    "left_to_others",
    "note_bound",
    "part_of",
    "quick_answers",
]


def has_room_to_solve(search: Search) -> bool:
    """Whether a solver should be called: the budget asks for more than a quick answer, and costs are simulated.

    A solver knows the problem's model; what is measured may be anything.
    """
    limit = search.budget.evaluations
    return search.simulated and search.problem.n > 0 and (limit is None or limit >= SOLVE_FROM)


def part_of(search: Search, share: float, most: float) -> Budget:
    """A share of the seconds that are left, at most ``most``; without a limit on them, half of the evaluations."""
    if search.budget.seconds is not None:
        return Budget(seconds=min(share * max(search.seconds_left, 0.0), most))
    return Budget(evaluations=max(search.evaluations_left // 2, 1))


def note_bound(search: Search, value: float, name: str) -> None:
    """Keep a proven bound if it is better; sums in another order may differ in the last digits."""
    value = min(value * (1.0 - 1e-12), search.cost)
    if value > search.bound.value:
        search.bound = Bound(value, name)


SOME = 1000
"""Ops from which on a prover leaves all search to those who search beside it."""


def left_to_others(search: Search) -> bool:
    """Others search beside this one, and the graph is so large that solvers would only take their time."""
    return search.accompanied and search.budget.evaluations is None and search.problem.n > SOME


def construct(search: Search, start: Placement | None, seed: int) -> None:
    """The given placement if it is feasible, then what plain rules construct."""
    first_start(search, start, seed)
    search.check()
    if left_to_others(search):
        return
    for device in greedy_candidates(search.problem):
        search.try_device(device)
        search.check()


def quick_answers(search: Search, budget: Budget, seed: int) -> None:
    """Where stages must be contiguous, cut topological orders; then local search from the best placement
    so far. Nothing for the rest of the time, or on a large graph, where others search beside this one."""
    whole = budget.seconds is None or budget.seconds > 0.5 * search.seconds_left
    if left_to_others(search) or (search.accompanied and budget.evaluations is None and whole):
        search.check()
        return
    model = search.problem.model
    if (
        isinstance(model, Pipeline)
        and model.contiguity != "none"
        and LinearDp().supports(search.problem) is None
    ):
        part = None if budget.evaluations is None else max(budget.evaluations // 2, 1)
        borrow(search, LinearDp(), Budget(None if budget.seconds is None else budget.seconds / 2, part), seed)
    borrow(search, LocalSearch(), budget, seed)


def borrow(search: Search, placer: Placer, budget: Budget, seed: int) -> None:
    """Let another placer improve the best placement so far, on this search's clock, counter and Ctrl-C."""
    if search.best is None or search.seconds_left <= 0 or search.evaluations_left <= 0:
        search.check()
        return

    def pass_on(progress: Progress) -> None:
        search.tell()

    seconds = min(math.inf if budget.seconds is None else budget.seconds, search.seconds_left)
    evaluations = min(2**62 if budget.evaluations is None else budget.evaluations, search.evaluations_left)
    limits = Budget(None if math.isinf(seconds) else seconds, None if evaluations == 2**62 else evaluations)
    asked = search.evaluator.evaluations
    found = placer.place(
        search.problem,
        budget=limits,
        seed=seed,
        start=search.best,
        evaluator=search.evaluator,
        on_progress=pass_on,
    )
    search.count(found.evaluations - (search.evaluator.evaluations - asked))
    search.offer(found.placement, found.cost)
    if found.stopped == "interrupted":
        raise KeyboardInterrupt
    search.check()
