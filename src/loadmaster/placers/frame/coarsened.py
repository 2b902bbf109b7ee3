"""Placing groups of ops: any placer on a coarse problem, and what it found on the full one."""

from __future__ import annotations

import math
import time
from dataclasses import replace

import numpy as np

from loadmaster.arrays import BoolArray, FloatArray, IntArray
from loadmaster.errors import NoPlacementError
from loadmaster.placers.frame.feasible import first_feasible
from loadmaster.placers.frame.placer import Placer
from loadmaster.placers.frame.search import Budget, Progress, ProgressCallback
from loadmaster.problem import (
    Concurrent,
    Evaluator,
    Offload,
    Outcome,
    Placement,
    Point,
    Problem,
    SimulatedEvaluator,
    Solution,
    evaluate,
)
from loadmaster.problem.bounds import lower_bound
from loadmaster.problem.coarsening import Coarsening

__all__ = ["GroupEvaluator", "place_coarse"]


class GroupEvaluator:
    """Learns the cost of a placement of groups from an evaluator of the full problem: exact in every
    model."""

    def __init__(self, coarsening: Coarsening, evaluator: Evaluator) -> None:
        self.problem: Problem = coarsening.coarse
        self.evaluations: int = 0
        self._coarsening, self._evaluator = coarsening, evaluator

    def evaluate(self, placement: Placement) -> Outcome:
        """The cost of the expanded placement."""
        self.evaluations += 1
        return self._evaluator.evaluate(self._coarsening.expand(placement))

    def evaluate_batch(self, device: IntArray) -> tuple[FloatArray, BoolArray]:
        """The costs of the expanded placements."""
        device = np.atleast_2d(device)
        self.evaluations += len(device)
        return self._evaluator.evaluate_batch(device[:, self._coarsening.group_of])


def place_coarse(
    placer: Placer,
    coarsening: Coarsening,
    *,
    budget: Budget,
    seed: int = 0,
    start: Placement | None = None,
    evaluator: Evaluator | None = None,
    on_progress: ProgressCallback | None = None,
) -> Solution:
    """Place the groups, expand, and evaluate on the full problem: a solution of that one.

    The cost is that of the expanded placement and the bound that of the full problem: a bound of the coarse
    problem says nothing about placements that split a group. Under ``concurrent`` the placement may be better
    without the ``order`` that the placer found for whole groups, so both are tried. Evaluations of either
    problem count alike.

    With an ``evaluator`` of the full problem (one that measures, say) every placement of groups is expanded
    before it is evaluated, and the result is what the evaluator said.

    Raises
    ------
    InfeasibleError : the groups cannot be placed; single ops may be, unless the message says that they
        cannot.
    """
    began = time.perf_counter()
    fine = coarsening.fine
    limit = budget.evaluations
    if limit == 1 and not coarsening.exact:  # nothing could be learnt about the groups
        return placer.place(
            fine, budget=budget, seed=seed, start=start, evaluator=evaluator, on_progress=on_progress
        )
    bound = lower_bound(fine)

    def tell(progress: Progress) -> None:
        if on_progress is not None:
            seconds = time.perf_counter() - began
            on_progress(replace(progress, seconds=seconds, bound=min(bound.value, progress.cost)))

    confirmed = coarsening.exact or evaluator is not None
    try:
        found = placer.place(
            coarsening.coarse,
            budget=budget if confirmed or limit is None else replace(budget, evaluations=limit - 1),
            seed=seed,
            start=None if start is None else coarsening.restrict(start),
            evaluator=None if evaluator is None else GroupEvaluator(coarsening, evaluator),
            on_progress=tell,
        )
    except NoPlacementError as error:
        raise type(error)(
            f"the {coarsening.coarse.n} groups of {fine.n} ops cannot be placed ({error}): "
            "coarsen less, or not at all"
        ) from None
    solution = replace(found, parameters={**found.parameters, "coarsen": ",".join(coarsening.rules)})
    if evaluator is not None:
        return replace(solution, placement=coarsening.expand(found.placement))
    room = 2**62 if limit is None or confirmed else limit - found.evaluations
    check = SimulatedEvaluator(fine)

    def out_of_time() -> bool:
        return budget.seconds is not None and time.perf_counter() - began >= budget.seconds

    cost, placement = _best(check, _expanded(coarsening, found.placement)[:room])
    if not math.isfinite(cost):
        # Peak memory is the one constraint that groups can meet and their ops break.
        cost, placement = _best(check, [first_feasible(fine, seed, out_of_time)])
        solution = replace(solution, found_by="first feasible")
    seconds = time.perf_counter() - began
    evaluations = found.evaluations + (0 if confirmed else check.evaluations)
    earlier = [point for point in found.history if point.cost > cost] if confirmed else []
    return replace(
        solution,
        placement=placement,
        cost=cost,
        bound=min(bound.value, cost),
        bound_by=bound.name,
        evaluations=evaluations,
        seconds=seconds,
        history=(*earlier, Point(seconds, evaluations, cost)),
    )


def _best(check: SimulatedEvaluator, candidates: list[Placement]) -> tuple[float, Placement]:
    outcomes = [(check.evaluate(placement).value, placement) for placement in candidates]
    return min(outcomes, key=lambda outcome: outcome[0])


def _expanded(coarsening: Coarsening, placement: Placement) -> list[Placement]:
    """The full placements that a coarse one stands for, the most faithful first."""
    coarse = coarsening.coarse
    if isinstance(coarse.model, Offload) and placement.call is None:
        call = np.zeros(coarse.n, np.int32)
        for number, cut in enumerate(evaluate(coarse, placement).calls):
            call[list(cut.ops)] = number
        placement = Placement(placement.device, call=call)
    full = [coarsening.expand(placement)]
    if isinstance(coarse.model, Concurrent) and placement.order is not None:
        full.append(Placement(full[0].device))
    return full
