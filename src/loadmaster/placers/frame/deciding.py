"""Deciding whether there is a feasible placement: exhaustive searches, in slices of a few milliseconds."""

from __future__ import annotations

from collections.abc import Generator, Iterator

import numpy as np

from loadmaster.arrays import BoolArray
from loadmaster.graph.order import csr_from_pairs
from loadmaster.placers.frame._filling import FOUND, REJECTED, UNDECIDED, fill_devices, new_filling
from loadmaster.placers.frame._trying import CALLS, CONVEX, FREE, SLOTS, new_trying, try_devices
from loadmaster.placers.frame.atoms import Atoms, judges_peak, make_atoms
from loadmaster.placers.frame.contradictions import narrowed
from loadmaster.problem import Offload, Pipeline, Placement, Problem, SimulatedEvaluator, forward_arcs

__all__ = ["Deciding"]

WIDER, TIGHTER = 1.0 + 1e-12, 1.0 - 1e-12
"""Bytes are added up in another order than the evaluator does: what is refused must be too much in any order."""
DEARER = 10
"""A step op by op takes so many times as long as one device after device."""
LEAVES = 64
"""Complete placements that are judged at a time."""
LARGEST = 5000
"""Atoms above which nothing is searched through."""


class Deciding:
    """A search through all placements of a problem, which may be left and taken up again.

    Where only memory (and a chain) matters, devices are filled one after another (``_filling.py``). For what
    else the execution model asks, that is tried first without it: if nothing fits, there is no placement,
    and what fits may satisfy the rest as well. Then it is op by op (``_trying.py``).

    ``found`` is the placement; ``over`` says that it was found or that there is none.
    """

    def __init__(self, problem: Problem) -> None:
        self._problem = problem
        self._check = SimulatedEvaluator(problem)
        self._parts = self._all_parts()
        self.found: Placement | None = None
        self.over = False
        self._steps = 0

    def go_on(self, steps: int) -> bool:
        """Search for about so many steps; True if it is over."""
        if self.over:
            return True
        self._steps = steps
        try:
            self.found = next(self._parts)
        except StopIteration:
            self.over = True
        self.over = self.over or self.found is not None
        return self.over

    def _feasible(self, placement: Placement) -> bool:
        return self._check.evaluate(placement).feasible

    def _all_parts(self) -> Iterator[Placement | None]:
        """Yields None after each slice, and the placement at last if there is one; ending means that there is none."""
        problem = self._problem
        model = problem.model
        if problem.classes > LARGEST:
            while True:
                yield None
        contiguity = model.contiguity if isinstance(model, Pipeline) else "none"
        if contiguity == "chain":
            atoms = make_atoms(problem, unite=True)
            yield from self._filled(atoms, narrowed(problem), arcs=True, certain=True)
            return
        simple = contiguity == "none" and not isinstance(model, Offload) and not judges_peak(problem)
        atoms = make_atoms(problem, unite=False)
        fits = yield from self._filled(atoms, atoms.allowed, arcs=False, certain=simple)
        if simple or not fits:
            return
        if contiguity == "device":
            # A chain is contiguous in every sense.
            chain = make_atoms(problem, unite=True)
            if chain.allowed.any(axis=1).all():
                yield from self._filled(chain, chain.allowed, arcs=True, certain=False)
            yield from self._tried(CONVEX)
        elif isinstance(model, Offload):
            yield from self._tried(CALLS)
            if model.max_calls > 1:
                yield from self._tried(SLOTS)
        else:
            yield from self._tried(FREE)

    def _filled(
        self, atoms: Atoms, allowed: BoolArray, *, arcs: bool, certain: bool
    ) -> Generator[Placement | None, None, bool]:
        """Device after device; returns whether anything fits.

        certain : what fits is feasible, but for rounding: then the search goes on until it is decided.
        """
        problem = self._problem
        # Large atoms first; the other way round for as long as it takes would be as good.
        order = np.argsort(-atoms.memory, kind="stable").astype(np.int32)
        number = np.empty(atoms.count, np.int32)
        number[order] = np.arange(atoms.count, dtype=np.int32)
        none = np.zeros(0, np.int32)
        tail, head = none, none
        if arcs:
            tail = np.repeat(np.arange(atoms.count, dtype=np.int32), np.diff(atoms.successor_ptr))
            tail, head = number[tail], number[atoms.successor]
        weighed = problem.resident if judges_peak(problem) else problem.memory
        for slack in (WIDER, TIGHTER):
            state = new_filling(
                np.ascontiguousarray(allowed[order]),
                atoms.memory[order],
                problem.capacity,
                csr_from_pairs(tail, head, atoms.count),
                number[atoms.of_op],
                weighed,
                slack,
            )
            outcome = UNDECIDED
            while outcome == UNDECIDED:
                outcome = fill_devices(state, self._steps)
                if outcome == UNDECIDED:
                    yield None
            if outcome == FOUND:
                placement = Placement(state.at[number][atoms.of_op])
                if self._feasible(placement):
                    yield placement
                return True
            if state.counts[REJECTED] == 0:
                return False
        if certain:
            # Full to the last byte, where rounding decides: only trying all is certain.
            yield from self._tried(CONVEX if arcs else FREE)
        return True

    def _tried(self, mode: int) -> Iterator[Placement | None]:
        """Op by op; complete placements are judged by the evaluator."""
        problem, graph = self._problem, self._problem.graph
        order, arcs = graph.topological_order, graph.arcs
        calls = 1
        if isinstance(problem.model, Offload):
            calls = problem.model.max_calls
            order = np.lexsort((graph.position, graph.levels)).astype(np.int32)
        if mode == CONVEX:
            arcs = forward_arcs(problem)
        atoms = make_atoms(problem, unite=False)
        state = new_trying(
            mode,
            order,
            problem.class_of,
            problem.class_allowed,
            atoms.memory,
            problem.capacity,
            csr_from_pairs(arcs[1], arcs[0], problem.n),
            problem.pool,
            calls,
        )
        device, call = np.empty((2, LEAVES, problem.n), np.int32)
        while True:
            count, over = try_devices(state, self._steps // DEARER + 1, device, call)
            for i in range(count):
                placement = Placement(device[i].copy(), call=call[i].copy() if mode == SLOTS else None)
                if self._feasible(placement):
                    yield placement
                    return
            if over:
                return
            yield None
