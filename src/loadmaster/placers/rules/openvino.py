"""OpenVINO's own rule: the first device that supports an op."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from loadmaster.placers.frame.constructed import Construction, allowed_and_repaired
from loadmaster.placers.frame.feasible import atoms_of
from loadmaster.problem import Placement, Problem

__all__ = ["OpenVino"]


@dataclass(frozen=True)
class OpenVino(Construction):
    """Every op on the first device of a priority list that supports it: what OpenVINO's HETERO mode does.

    ``HETERO:GPU,CPU`` asks each device in turn which ops it can run and gives it those that are left.
    Colocated ops go to the first device that may take all of them. HETERO knows nothing of memory: where a
    device would be overfull, ops are moved on where that costs least time.

    References
    ----------
    OpenVINO documentation, "Heterogeneous execution", automatic mode.
    """

    priority: tuple[str, ...] = ()
    """Names of devices, the most preferred first; devices that are not named follow, accelerators first, in
    the order of the cluster."""

    name: ClassVar[str] = "openvino"
    summary: ClassVar[str] = (
        "OpenVINO HETERO's rule: the first device in a priority list that supports the op"
    )

    def supports(self, problem: Problem) -> str | None:
        """Every problem that has the devices of the list."""
        for name in self.priority:
            if name not in problem.cluster.index:
                known = ", ".join(problem.cluster.names)
                return f"the priority list names the device {name!r}: the devices are {known}"
        return None

    def candidates(self, problem: Problem) -> Iterator[Placement]:
        """One pass, one evaluation."""
        return _candidates(problem, self.priority)


def _candidates(problem: Problem, priority: tuple[str, ...]) -> Iterator[Placement]:
    atoms = atoms_of(problem)
    if not atoms.count:
        return
    wanted = [problem.cluster.index[name] for name in priority]
    usual = np.argsort(problem.pool, kind="stable").tolist()
    sequence = np.array(wanted + [d for d in usual if d not in wanted])
    at = sequence[atoms.allowed[:, sequence].argmax(axis=1)]
    yield Placement(allowed_and_repaired(problem, at.astype(np.int32)))
