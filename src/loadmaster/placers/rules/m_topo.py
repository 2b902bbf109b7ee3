"""Baechi's m-TOPO: devices filled in topological order."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from loadmaster.arrays import IntArray
from loadmaster.placers.frame.constructed import Construction, allowed_and_repaired
from loadmaster.placers.frame.feasible import atoms_of
from loadmaster.placers.rules._memory_fill import accelerators_first, fill_by_memory
from loadmaster.problem import Placement, Problem

__all__ = ["MTopo"]


@dataclass(frozen=True)
class MTopo(Construction):
    """Devices filled one after another in topological order, each with its share of the memory.

    The limit of a device is an even share of all bytes plus the largest op, or its memory if that is less;
    bytes count with the colocated ops together. Devices come in the order of the cluster, accelerators
    first, and CPUs only where there is no accelerator or the accelerators cannot hold everything (the paper
    places on equal GPUs). Times and transfers play no part.

    References
    ----------
    B. Jeon, L. Cai, P. Srivastava, J. Jiang, X. Ke, Y. Meng, C. Xie, I. Gupta, "Baechi: fast device placement
    of machine learning graphs", SoCC 2020, section 3.1.1.
    """

    name: ClassVar[str] = "m-topo"
    summary: ClassVar[str] = "Baechi's m-TOPO: even shares of memory in topological order"

    def candidates(self, problem: Problem) -> Iterator[Placement]:
        """One pass; one evaluation, or two where the accelerators do not suffice."""
        return _candidates(problem)


def _candidates(problem: Problem) -> Iterator[Placement]:
    atoms = atoms_of(problem)
    if not atoms.count:
        return
    sequence = accelerators_first(problem)
    total, largest = float(atoms.memory.sum()), float(atoms.memory.max())
    order = atoms.order
    for some in (sequence[~problem.pool[sequence]], sequence):
        if len(some):
            limit = np.minimum(problem.capacity, total / len(some) + largest)
            at = fill_by_memory(problem, order, some, limit)
            if (at[_has_choice(problem, some)] >= 0).all():
                break
    yield Placement(allowed_and_repaired(problem, at))


def _has_choice(problem: Problem, some: IntArray) -> npt.NDArray[np.bool_]:
    """(atoms,) whether an atom may go to one of these devices at all."""
    return np.asarray(atoms_of(problem).allowed[:, some].any(axis=1))
