"""First fit by memory in model order, as Hugging Face accelerate does."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from loadmaster.placers.frame.constructed import Construction, allowed_and_repaired
from loadmaster.placers.frame.feasible import atoms_of
from loadmaster.placers.rules._memory_fill import accelerators_first, fill_by_memory, model_order
from loadmaster.problem import Placement, Problem

__all__ = ["Accelerate"]


@dataclass(frozen=True)
class Accelerate(Construction):
    """Accelerators, then CPUs, filled one after another in the order of the model, by memory alone.

    This is what ``device_map="auto"`` does: no accelerator but the last takes more than an even share of all
    bytes plus a buffer of 1.25 times the largest layer, here the largest group of colocated ops; with
    ``balanced`` off, it is ``device_map="sequential"``: each is filled up to its memory. A device once left is not
    returned to. What does not fit anywhere by this rule goes where there is room. The room that the original
    keeps free for offloaded layers, and its offloading to disk, have no counterpart here.

    References
    ----------
    Hugging Face accelerate, ``infer_auto_device_map`` and ``get_balanced_memory`` (documentation, "Handling
    big models for inference", section "Designing a device map").
    """

    balanced: bool = True
    """Even shares for the accelerators (``"auto"``) instead of full ones (``"sequential"``)."""

    name: ClassVar[str] = "accelerate"
    summary: ClassVar[str] = "first fit by memory in model order (Hugging Face accelerate)"

    def candidates(self, problem: Problem) -> Iterator[Placement]:
        """One pass, one evaluation."""
        return _candidates(problem, balanced=self.balanced)


def _candidates(problem: Problem, *, balanced: bool) -> Iterator[Placement]:
    atoms = atoms_of(problem)
    if not atoms.count:
        return
    sequence = accelerators_first(problem)
    limit = problem.capacity.copy()
    accelerators = sequence[~problem.pool[sequence]]
    if balanced and len(accelerators) > 1:
        share = float(atoms.memory.sum()) / len(accelerators) + 1.25 * float(atoms.memory.max())
        limit[accelerators[:-1]] = np.minimum(limit[accelerators[:-1]], share)
    at = fill_by_memory(problem, model_order(problem), sequence, limit)
    if (at < 0).any() and balanced:
        at = fill_by_memory(problem, model_order(problem), sequence, problem.capacity)
    yield Placement(allowed_and_repaired(problem, at))
