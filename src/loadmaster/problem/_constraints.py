"""Which constraints a placement breaks, whatever the execution model."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from loadmaster.arrays import IntArray
from loadmaster.problem._evaluation import Violation
from loadmaster.problem._problem import Problem

__all__ = ["capacity_violations", "placement_violations"]


def placement_violations(problem: Problem, device: IntArray) -> Iterator[Violation]:
    """Unsupported and forbidden ops, surplus devices, pins, colocation: all but what the execution model
    brings."""
    op, name = problem.graph.names, problem.cluster.names
    rows = np.arange(problem.n)
    for v in np.flatnonzero(np.isinf(problem.time[rows, device])).tolist():
        d = int(device[v])
        yield Violation("unsupported", f"op {op[v]!r} is not supported on device {name[d]!r}", (v,), d)
    for v in np.flatnonzero(problem.forbidden[rows, device]).tolist():
        d = int(device[v])
        yield Violation("forbidden", f"op {op[v]!r} is forbidden on device {name[d]!r}", (v,), d)
    for v in np.flatnonzero((problem.pin >= 0) & (problem.pin != device)).tolist():
        want, d = int(problem.pin[v]), int(device[v])
        yield Violation("pin", f"op {op[v]!r} is pinned to {name[want]!r} but is on {name[d]!r}", (v,), d)
    for d in problem.surplus:
        users = np.flatnonzero(device == d)
        if len(users):
            text = f"device {name[d]!r} is used but is not one of the problem's devices"
            yield Violation("surplus", text, tuple(users.tolist()), d)
    if problem.classes < problem.n:
        ptr, member = problem.members
        first = device[member[ptr[:-1]]]
        split = np.unique(problem.class_of[first[problem.class_of] != device])
        for c in split.tolist():
            ops = member[ptr[c] : ptr[c + 1]].tolist()
            shown = ", ".join(repr(op[v]) for v in ops[:4]) + (", …" if len(ops) > 4 else "")
            yield Violation("colocation", f"the colocated ops {shown} are split", tuple(ops))


def capacity_violations(problem: Problem, memory: npt.NDArray[np.float64]) -> Iterator[Violation]:
    """Devices that hold more than they can; ``memory`` (D,) is the sum or the peak, as the model says."""
    for d in np.flatnonzero(memory > problem.capacity).tolist():
        name, most = problem.cluster.names[d], problem.capacity[d]
        text = f"device {name!r} holds {memory[d]:.6g} bytes, but its capacity is {most:.6g}"
        yield Violation("capacity", text, device=d)
