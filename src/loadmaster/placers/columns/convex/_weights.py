"""Multiplicative weights for the prices of the classes: several rounds in one compiled call.

In a round the best set of each kind and larger ideal is found, and sets are drawn from these with a probability that
falls with what they are worth less than the best one. Classes that are drawn more often than the mean become cheaper,
the others dearer.

References
----------
S. Plotkin, D. Shmoys, É. Tardos, "Fast approximation algorithms for fractional packing and covering problems",
Mathematics of Operations Research 1995.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from loadmaster.placers.columns.convex._sets import best_sets, worth_of

__all__ = ["weigh"]

PACE, SLOWER = 0.03, 100.0
"""How much the weights change at first, and rounds after which it is less by a root of two."""
SOFT = 1e-3
"""Sets that are worth so much less than the best one (a share) are drawn a third as often."""
MEMORY = 0.02
"""Weight of the newest prices in the mean."""


@njit(cache=True, nogil=True)
def weigh(lattice, sets, counts, prices, mean, end, since, rounds):  # type: ignore[no-untyped-def]
    """Rounds number ``since`` and so on, over the first ``end`` sets; ``prices`` and ``mean`` are changed."""
    kinds, ideals = len(counts), len(lattice.top_ptr) - 1
    value, chosen = np.empty((kinds, ideals)), np.empty((kinds, ideals), np.int64)
    for turn in range(since, since + rounds):
        value[:] = 0.0
        chosen[:] = -1
        best_sets(sets, worth_of(lattice, prices), 0, end, value, chosen)
        most = max(value.max(), 1e-300)
        mass = np.zeros(ideals)
        for k in range(kinds):
            best, whole = value[k].max(), 0.0
            for t in range(ideals):
                if chosen[k, t] >= 0:
                    whole += np.exp((value[k, t] - best) / (SOFT * most))
            for t in range(ideals):
                if chosen[k, t] >= 0:
                    share = counts[k] / whole * np.exp((value[k, t] - best) / (SOFT * most))
                    mass[t] += share
                    mass[sets.source[chosen[k, t]]] -= share
        held = _held(lattice, mass, len(prices))
        prices *= np.exp(-PACE / np.sqrt(1.0 + turn / SLOWER) * (held - held.mean()))
        prices /= prices.sum()
        mean += MEMORY * (prices - mean)


@njit(cache=True, nogil=True)
def _held(lattice, mass, atoms):  # type: ignore[no-untyped-def]
    """(atoms,) the sum over all ideals that contain an atom; ``mass``: (ideals,), used up."""
    held = np.zeros(atoms)
    for i in range(len(mass) - 1, 0, -1):
        last = lattice.top_ptr[i + 1] - 1
        held[lattice.top[last]] += mass[i]
        mass[lattice.below[last]] += mass[i]
    return held
