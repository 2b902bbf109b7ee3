"""Devices that are slower than they were when they were measured, and the plan that would be better then."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np

from loadmaster.errors import NoPlacementError
from loadmaster.plan import Plan
from loadmaster.problem import Placement, Problem, evaluate
from loadmaster.runtime._lint import Finding
from loadmaster.runtime._piece_costs import paces
from loadmaster.runtime._pieces import Piece
from loadmaster.runtime.ray._replanning import Placing, slowed
from loadmaster.units import seconds_text

__all__ = ["better_plan", "slow_devices", "slow_factors"]

SLOW = 1.5
"""How many times as long as predicted, against the device that keeps to it best: calls and copies are all devices'."""
WORTH = 0.02
"""Share of the time that another plan must save to be spoken of."""


def slow_factors(
    problem: Problem,
    pieces: Sequence[Piece],
    spans: Sequence[Mapping[str, Any]],
    paced: Collection[str] = (),
) -> dict[str, float]:
    """The devices that are much slower than predicted, and how many times as long they take; all others keep to it.

    Those in ``paced`` were found slow before, under another plan: a device with more work than it can do looks slower
    than it is, so that their pace is corrected either way.
    """
    times = {name: taken / given for name, (taken, given) in paces(problem, pieces, spans).items()}
    least = max(1.0, min((times[name] for name in times if name not in paced), default=1.0))
    return {
        name: times[name] / least for name in sorted(times) if name in paced or times[name] > SLOW * least
    }


def slow_devices(
    problem: Problem,
    pieces: Sequence[Piece],
    spans: Sequence[Mapping[str, Any]],
    where: Mapping[str, str],
    advice: str = "profile it again with --refresh, and place the model anew",
) -> list[Finding]:
    """What a run says about devices that took much longer than predicted; ``where``: device -> node."""
    return [
        Finding(
            "slow-node",
            "warning",
            f"device {name!r} on node {where.get(name, '')!r} takes {factor:.1f} times as long as it was measured "
            f"to take: {advice}",
        )
        for name, factor in slow_factors(problem, pieces, spans).items()
    ]


def better_plan(
    problem: Problem, placement: Placement, factors: Mapping[str, float], place: Placing, **read: Any
) -> tuple[Plan | None, str]:
    """The plan that would be better with devices at the pace that was measured, if there is one, and a sentence.

    ``read`` are the shapes and values that the model was read with.
    """
    real = slowed(problem, factors)
    now = evaluate(real, placement).cost
    try:
        found = place(real)
    except NoPlacementError:
        return None, f"no other plan was found; this one takes {seconds_text(now)} (predicted) at that pace"
    if found.cost > (1 - WORTH) * now:
        return None, f"no plan is better by more than {WORTH:.0%} at that pace"
    moved = ", ".join(
        f"{int(np.sum(found.placement.device == real.cluster.index[name]))} ops there, not "
        f"{int(np.sum(placement.device == real.cluster.index[name]))}"
        for name in factors
    )
    text = (
        f"at that pace a plan with {moved}, takes {seconds_text(found.cost)} instead of {seconds_text(now)} "
        f"(predicted, {now / found.cost:.2f}x)"
    )
    return Plan.from_solution(real, found, **read), text
