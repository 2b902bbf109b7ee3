"""A chain of stages, and the loads of its devices."""

from __future__ import annotations

import numpy as np
from numba import njit

from loadmaster.arrays import FloatArray, IntArray
from loadmaster.placers.stages._contraction import Contracted

__all__ = ["Stages", "chain_loads", "rounding_of"]

Stages = list[tuple[IntArray, int]]
"""The atoms and the kind of device of each stage of a chain."""


def chain_loads(contracted: Contracted, stages: Stages) -> FloatArray:
    """(stages, L) loads of the stages of a chain."""
    order = np.concatenate([members for members, _ in stages]).astype(np.int32)
    sizes = np.array([len(members) for members, _ in stages])
    kind = np.array([kind for _, kind in stages], np.int32)
    return _loads(contracted.tables, order, sizes, kind)


def rounding_of(contracted: Contracted) -> float:
    """Seconds by which adding and taking away may have falsified a load."""
    tables = contracted.tables
    terms = len(tables.time) + len(tables.net)
    largest = np.where(np.isfinite(tables.time), tables.time, 0.0).sum(axis=0).max(initial=0.0)
    largest += (tables.send + tables.recv).sum(axis=0).max(initial=0.0)
    return float(4 * np.finfo(np.float64).eps * terms * largest)


@njit(cache=True, nogil=True)
def _loads(tables, order, sizes, kind):  # type: ignore[no-untyped-def]
    loads, channels = tables.loads, tables.change.shape[1]
    found = np.zeros((len(sizes), loads))
    count = np.zeros(len(tables.pins), np.int32)
    at = 0
    for s in range(len(sizes)):
        compute, comm = np.zeros(loads), np.zeros(channels * loads)
        count[:] = 0
        for v in order[at : at + sizes[s]]:
            for side in range(loads):
                compute[side] += tables.time[v, kind[s] * loads + side]
            for i in range(tables.net_ptr[v], tables.net_ptr[v + 1]):
                e = tables.net[i]
                case = tables.role[i] + 2 * (count[e] == 0) + (count[e] + 1 == tables.pins[e])
                count[e] += 1
                for c in range(channels):
                    comm[c * loads + tables.load[e]] += tables.change[e, c, case]
        at += sizes[s]
        c = tables.channel[kind[s]]
        for side in range(loads):
            talk = comm[c * loads + side] if c >= 0 else 0.0
            found[s, side] = max(compute[side], talk) if tables.overlap else compute[side] + talk
    return found
