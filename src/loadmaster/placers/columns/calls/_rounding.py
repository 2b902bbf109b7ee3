"""From columns of the master program to placements, and back."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from loadmaster.arrays import BoolArray, FloatArray
from loadmaster.placers.columns.calls._master import Column
from loadmaster.placers.columns.calls._states import Accelerators
from loadmaster.problem import Placement, Problem, evaluate

__all__ = ["calls_of", "rounded"]


ROUNDS = 12
"""Placements that are made of one solution of the master."""


def rounded(
    problem: Problem,
    accelerators: list[Accelerators],
    columns: list[Column],
    weight: FloatArray,
    rng: np.random.Generator,
) -> Iterator[Placement]:
    """Placements that use disjoint columns, those of large weight first; what is left goes to the CPU.

    The first follows the weights, the others disturb them. Classes of ``problem`` are those of the columns.
    """
    used = np.flatnonzero(weight > 1e-6)
    if not len(used):
        return
    cpu = np.where(problem.class_allowed & problem.pool, problem.class_time, np.inf)
    home = cpu.argmin(axis=1).astype(np.int32)
    position = np.full(problem.classes, problem.n, np.int64)
    np.minimum.at(position, problem.class_of, problem.graph.position)
    seen = set()
    for i in range(ROUNDS):
        noise = rng.random(len(used)) if i else np.zeros(len(used))
        chosen = used[np.argsort(-(weight[used[: len(used)]] + 0.5 * noise), kind="stable")]
        device, call = home.copy(), np.zeros(problem.classes, np.int32)
        taken = np.zeros(problem.classes, np.bool_)
        free = [like.kind.devices.tolist() for like in accelerators]
        for j in chosen.tolist():
            column = columns[j]
            times = column.inside.sum(axis=0)
            if not free[column.kind] or times.max() > 1 or (taken & (times > 0)).any():
                continue
            d = free[column.kind].pop(0)
            taken |= times > 0
            rows = sorted(column.inside, key=lambda row: int(position[row].min(initial=problem.n)))
            for number, row in enumerate(rows):
                device[row], call[row] = d, number
        key = device.tobytes() + call.tobytes()
        if key not in seen:
            seen.add(key)
            of = problem.class_of
            yield Placement(device[of], call=call[of] if call.any() else None)


def calls_of(
    problem: Problem, accelerators: list[Accelerators], placement: Placement
) -> Iterator[tuple[int, BoolArray]]:
    """(kind, (calls, classes)) of every accelerator that a placement uses."""
    kind_of = {d: k for k, like in enumerate(accelerators) for d in like.kind.devices.tolist()}
    found: dict[int, list[BoolArray]] = {}
    for call in evaluate(problem, placement).calls:
        inside = np.zeros(problem.classes, np.bool_)
        inside[problem.class_of[list(call.ops)]] = True
        found.setdefault(call.device, []).append(inside)
    for d, rows in found.items():
        if d in kind_of:
            yield kind_of[d], np.stack(rows)
