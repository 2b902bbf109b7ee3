"""Topological orders of atoms, for programs that cut one order into stages."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from numba import njit

from loadmaster.placers._contraction import Contracted
from loadmaster.placers._moves import uniform

__all__ = ["some_order"]

IntArray = npt.NDArray[np.int32]

SAMPLE = 16
"""Ready atoms that are compared at each step."""


def some_order(contracted: Contracted, number: int, seed: int) -> IntArray:
    """The topological order of that number: 0 is the atoms' own, the others are random, of three flavours in
    turn.

    The next atom is, among those that are ready: the one that became ready last, mostly; of a few taken at
    random the one that adds least to the tensors that are open (produced, but not yet read by all); any.
    """
    if number == 0:
        return np.arange(contracted.atoms, dtype=np.int32)
    flavour = (number - 1) % 3
    depth_first = 0.95 if flavour == 0 else 0.0
    sample = SAMPLE if flavour == 1 else 1
    waiting = np.diff(contracted.predecessor_ptr).astype(np.int32)
    tables = contracted.tables
    weight = (tables.send + tables.recv).max(axis=1, initial=0.0)
    rng = np.random.SeedSequence([seed, number]).generate_state(1, np.uint64)
    return _order(
        contracted.successor_ptr, contracted.successor, waiting, tables, weight, rng, depth_first, sample
    )


@njit(cache=True, nogil=True)
def _order(ptr, successor, waiting, tables, weight, rng, depth_first, sample):  # type: ignore[no-untyped-def]
    """O(atoms * sample * degree)."""
    n = len(waiting)
    count = np.zeros(len(tables.pins), np.int32)
    ready, order = np.empty(n, np.int32), np.empty(n, np.int32)
    top = 0
    for a in range(n):
        if waiting[a] == 0:
            ready[top] = a
            top += 1
    for made in range(n):
        chosen = top - 1
        if top > 1 and uniform(rng) >= depth_first:
            least = np.inf
            for _ in range(min(sample, 4 * top)):
                i = int(uniform(rng) * top)
                v, grows = ready[i], 0.0
                if sample > 1:
                    for j in range(tables.net_ptr[v], tables.net_ptr[v + 1]):
                        e = tables.net[j]
                        if count[e] == 0:
                            grows += weight[e]
                        elif count[e] + 1 == tables.pins[e]:
                            grows -= weight[e]
                if grows < least:
                    least, chosen = grows, i
        v = ready[chosen]
        if depth_first > 0.0:
            ready[chosen : top - 1] = ready[chosen + 1 : top]
        else:
            ready[chosen] = ready[top - 1]
        top -= 1
        order[made] = v
        for j in range(tables.net_ptr[v], tables.net_ptr[v + 1]):
            count[tables.net[j]] += 1
        for j in range(ptr[v], ptr[v + 1]):
            waiting[successor[j]] -= 1
            if waiting[successor[j]] == 0:
                ready[top] = successor[j]
                top += 1
    return order
