"""What makes the arrays of a problem acceptable: their shapes, and the numbers in them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from loadmaster.errors import InputError

if TYPE_CHECKING:
    from loadmaster.problem._problem import Problem

__all__ = ["reject_bad_numbers", "reject_bad_shapes"]


def reject_bad_shapes(problem: Problem) -> None:
    """Raise :class:`InputError` if an array does not fit the graph and the cluster."""
    n, m, size = problem.graph.n, problem.graph.tensors, len(problem.cluster)
    shapes: dict[str, tuple[int, ...]] = {
        "time": (n, size),
        "size": (m,),
        "latency": (size, size),
        "rate": (size, size),
        "send_latency": (size,),
        "send_rate": (size,),
        "recv_latency": (size,),
        "recv_rate": (size,),
        "memory": (n,),
        "capacity": (size,),
        "resident": (n,),
        "class_of": (n,),
        "pin": (n,),
        "forbidden": (n, size),
    }
    if problem.origin is not None:
        shapes["origin"] = (n, size)
    for name, shape in shapes.items():
        array = getattr(problem, name)
        if array.shape != shape:
            raise InputError(
                f"{name} has shape {array.shape}, but {n} ops, {m} tensors and {size} devices need {shape}"
            )


def reject_bad_numbers(problem: Problem) -> None:
    """Raise :class:`InputError` with the first op, tensor or device that has an impossible number."""
    op, device = problem.graph.names, problem.cluster.names
    bad = np.argwhere(np.isnan(problem.time) | (problem.time < 0))
    if len(bad):
        v, d = bad[0]
        raise InputError(f"op {op[v]!r} on device {device[d]!r}: time must be >= 0, not {problem.time[v, d]}")
    for name in ("memory", "resident"):
        values = getattr(problem, name)
        wrong = np.flatnonzero(~(np.isfinite(values) & (values >= 0)))
        if len(wrong):
            raise InputError(
                f"op {op[wrong[0]]!r}: {name} must be a finite number >= 0, not {values[wrong[0]]}"
            )
    wrong = np.flatnonzero(~(np.isfinite(problem.size) & (problem.size >= 0)))
    if len(wrong):
        producer = op[problem.graph.tensor_producer[wrong[0]]]
        raise InputError(
            f"a tensor of op {producer!r}: size must be a finite number >= 0, not {problem.size[wrong[0]]}"
        )
    for name in ("latency", "rate", "send_latency", "send_rate", "recv_latency", "recv_rate"):
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
    wrong = np.flatnonzero((problem.pin < -1) | (problem.pin >= len(device)))
    if len(wrong):
        raise InputError(
            f"op {op[wrong[0]]!r} is pinned to device {problem.pin[wrong[0]]}, which is not there"
        )
    wrong = np.flatnonzero((problem.class_of < 0) | (problem.class_of >= max(len(op), 1)))
    if len(wrong):
        raise InputError(
            f"op {op[wrong[0]]!r}: colocation class {problem.class_of[wrong[0]]} is out of range"
        )
