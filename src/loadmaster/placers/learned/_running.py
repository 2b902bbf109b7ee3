"""One run of a learned placer: what comes before the training, and what has to be put back after it."""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

from loadmaster.errors import UnsupportedError
from loadmaster.placers._base import parameters
from loadmaster.placers._feasible import prove_infeasible
from loadmaster.placers._search import Budget, OutOfBudget, ProgressCallback, Search
from loadmaster.placers._walkers import first_start
from loadmaster.placers.learned._units import Units, units_of
from loadmaster.problem import Placement, Problem, Solution
from loadmaster.problem._evaluator import Evaluator

__all__ = ["learn_to_place", "missing_torch", "share_done"]

EVALUATIONS = 64_000
"""Evaluations where the budget sets no limit."""


def missing_torch() -> str | None:
    """None, or what to install."""
    return None if find_spec("torch") else "it needs PyTorch: pip install 'loadmaster[learn]'"


def share_done(search: Search) -> float:
    """Share of the budget that is used up."""
    done = [0.0]
    if search.budget.evaluations is not None:
        done.append(search.evaluations / search.budget.evaluations)
    if search.budget.seconds is not None:
        done.append(search.seconds / max(search.budget.seconds, 1e-9))
    return max(done)


def learn_to_place(
    method: Any,
    train: Callable[[Search, Units], None],
    problem: Problem,
    budget: Budget,
    seed: int,
    start: Placement | None,
    evaluator: Evaluator | None,
    on_progress: ProgressCallback | None,
) -> Solution:
    """Train until the budget is used up; the random numbers and threads of PyTorch are as before afterwards.

    ``method`` has the fields ``colocate`` (coarsening rules) and ``threads``; ``train`` imports PyTorch.
    """
    prove_infeasible(problem)
    reason = missing_torch()
    if reason is not None:
        raise UnsupportedError(f"the method {method.name} cannot run: {reason}")
    import torch

    if budget == Budget():
        budget = Budget(evaluations=EVALUATIONS)
    threads = torch.get_num_threads()
    torch.set_num_threads(method.threads)
    try:
        with (
            Search(problem, budget, method.name, evaluator, on_progress) as search,
            torch.random.fork_rng([]),
        ):
            first_start(search, start, seed)
            search.check()
            units = units_of(problem, method.colocate)
            if units.count == 0 or not (units.allowed.sum(axis=1) > 1).any():
                raise OutOfBudget  # nothing is to be decided
            torch.manual_seed(seed)
            train(search, units)
            search.check()
    finally:
        torch.set_num_threads(threads)
    return search.solution(seed, parameters(method))
