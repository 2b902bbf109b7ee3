"""The numbers of a problem: none that is wrong, none that cannot be added up safely.

Costs, bounds, ranks and memory are sums of the numbers of a problem; squares of them appear in searches that
learn. So the numbers of one kind, all added up as :func:`reject_large_sums` does, must stay within :data:`MOST`:
then every sum that can be formed is finite, and its square too. There is no least number: what is tiny may
vanish in a sum, which is right.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from loadmaster.arrays import FloatArray
from loadmaster.errors import InputError

if TYPE_CHECKING:
    from loadmaster.problem._problem import Problem

__all__ = ["MOST", "reject_bad_numbers"]

MOST = 1e100
"""The most that numbers of one kind (seconds, bytes, operations) may add up to. No machine comes near it, and
even the cube of it is within what floating point numbers hold (1.8e308)."""

LINKS = ("latency", "rate", "send_latency", "send_rate", "recv_latency", "recv_rate")


def reject_bad_numbers(problem: Problem) -> None:
    """Check every number of a problem whose arrays have the right shapes.

    Raises
    ------
    InputError : names the op, the tensor or the device, the value, and the limit.
    """
    _reject_wrong(problem)
    _reject_wrong_indices(problem)
    _reject_wrong_ties(problem)
    # What is checked may overflow, of course.
    with np.errstate(over="ignore"):
        reject_large_sums(problem)


def _reject_wrong(problem: Problem) -> None:
    op, device = problem.graph.names, problem.cluster.names
    bad = np.argwhere(np.isnan(problem.time) | (problem.time < 0))
    if len(bad):
        v, d = bad[0]
        raise InputError(f"op {op[v]!r} on device {device[d]!r}: time must be >= 0, not {problem.time[v, d]}")
    for name in _held(problem):
        values = getattr(problem, name)
        wrong = np.flatnonzero(~(np.isfinite(values) & (values >= 0)))
        if len(wrong):
            raise InputError(
                f"op {op[wrong[0]]!r}: {name} must be a finite number >= 0, not {values[wrong[0]]}"
            )
    wrong = np.flatnonzero(~(np.isfinite(problem.size) & (problem.size >= 0)))
    if len(wrong):
        raise InputError(
            f"{_tensor(problem, int(wrong[0]))}: size must be a finite number >= 0, not {problem.size[wrong[0]]}"
        )
    for name in LINKS:
        values = getattr(problem, name)
        where = np.argwhere(~(np.isfinite(values) & (values >= 0)))
        if len(where):
            place = " -> ".join(repr(device[i]) for i in where[0])
            raise InputError(f"{name} of {place} must be a finite number >= 0, not {values[tuple(where[0])]}")
    wrong = np.flatnonzero(np.isnan(problem.capacity) | (problem.capacity < 0))
    if len(wrong):
        raise InputError(
            f"device {device[wrong[0]]!r}: capacity must be >= 0, not {problem.capacity[wrong[0]]}"
        )


def _held(problem: Problem) -> tuple[str, ...]:
    """Arrays of bytes per op."""
    return ("memory", "resident") if problem.kept is None else ("memory", "resident", "kept")


def _reject_wrong_ties(problem: Problem) -> None:
    op = problem.graph.names
    for i, tie in enumerate(problem.ties):
        for v in tie.ops:
            if not 0 <= v < problem.n:
                raise InputError(f"tie {i} names op {v}, which does not exist (there are {problem.n})")
        name = op[tie.ops[0]] if tie.ops else ""
        if len(tie.ops) < 2:
            raise InputError(f"tie {i} must name at least two ops that share weights, not {len(tie.ops)}")
        for what, value in (("size", tie.size), ("memory", tie.memory)):
            if not (np.isfinite(value) and 0 <= value <= MOST / len(problem.ties)):
                raise InputError(
                    f"the tie of op {name!r}: {what} must be a number from 0 to {MOST:g}, not {value}"
                )


def _reject_wrong_indices(problem: Problem) -> None:
    op, size = problem.graph.names, problem.devices
    wrong = np.flatnonzero((problem.pin < -1) | (problem.pin >= size))
    if len(wrong):
        raise InputError(
            f"op {op[wrong[0]]!r} is pinned to device {problem.pin[wrong[0]]}, which does not exist"
        )
    wrong = np.flatnonzero((problem.class_of < 0) | (problem.class_of >= max(len(op), 1)))
    if len(wrong):
        raise InputError(
            f"op {op[wrong[0]]!r}: colocation class {problem.class_of[wrong[0]]} is out of range"
        )
    if len(op) and not np.bincount(problem.class_of).all():
        gap = int(np.flatnonzero(np.bincount(problem.class_of) == 0)[0])
        raise InputError(f"colocation class {gap} has no op: number the classes without gaps")
    for d in problem.surplus:
        if not 0 <= d < size:
            raise InputError(f"surplus device {d} does not exist (there are {size})")


def reject_large_sums(problem: Problem) -> None:
    """Refuse numbers whose sum is beyond :data:`MOST`.

    For seconds that is the sum of the largest time of every op (on a device that supports it), and of the
    dearest transfer of every tensor as often as it has readers, or there are devices if these are more.
    """
    graph, device = problem.graph, problem.cluster.names
    of_op, of_tensor = partial(_op, problem), partial(_tensor, problem)
    longest = np.where(np.isfinite(problem.time), problem.time, 0.0).max(axis=1, initial=0.0)
    _limit(longest, "seconds", of_op, "time")
    for name in LINKS:
        values = getattr(problem, name)
        unit = "seconds per byte" if name.endswith("rate") else "seconds"
        _limit(values.ravel(), unit, partial(_ends, problem, values.shape), name)
    _limit(problem.size, "bytes (or seconds)", of_tensor, "size")
    latency = sum(getattr(problem, name).max(initial=0.0) for name in LINKS[::2])
    rate = sum(getattr(problem, name).max(initial=0.0) for name in LINKS[1::2])
    often = np.maximum(np.diff(graph.consumer_ptr), problem.devices)
    _limit(often * (latency + problem.size * rate), "seconds", of_tensor, "the time of all its transfers")
    for name in _held(problem):
        _limit(getattr(problem, name), "bytes", of_op, name)
    for name in ("flops", "bytes_read", "bytes_written", "param_bytes"):
        _limit(getattr(graph, name), "operations" if name == "flops" else "bytes", of_op, name)
    _limit(graph.tensor_bytes, "bytes", of_tensor, "bytes")
    capacity = np.where(np.isinf(problem.capacity), 0.0, problem.capacity)
    _limit(
        capacity,
        "bytes",
        lambda d: f"device {device[d]!r}",
        "capacity (leave it out where there is no limit)",
    )


def _limit(values: FloatArray, unit: str, owner: Callable[[int], str], what: str) -> None:
    """The values must add up to :data:`MOST` at most; else the largest is named with its owner."""
    if not len(values) or values.max() <= MOST / len(values) or values.sum() <= MOST:
        return
    worst = int(values.argmax())
    raise InputError(
        f"{owner(worst)}: {what} is {values[worst]:g}, too large to add up safely: the sum of all such "
        f"numbers must be at most {MOST:g} {unit}"
    )


def _op(problem: Problem, v: int) -> str:
    return f"op {problem.graph.names[v]!r}"


def _tensor(problem: Problem, t: int) -> str:
    return f"a tensor of op {problem.graph.names[problem.graph.tensor_producer[t]]!r}"


def _ends(problem: Problem, shape: tuple[int, ...], index: int) -> str:
    return " -> ".join(repr(problem.cluster.names[i]) for i in np.unravel_index(index, shape))
