"""The node fractal dimension of HSDAG: how fast the neighbourhood of a node grows with its radius."""

from __future__ import annotations

import numpy as np
from numba import njit

from loadmaster.arrays import FloatArray, IntArray
from loadmaster.graph.order import csr_from_pairs

__all__ = ["fractal_dimension"]


BALL = 4096
"""A ball stops growing once it holds so many nodes."""


def fractal_dimension(n: int, tail: IntArray, head: IntArray, *, ball: int = BALL) -> FloatArray:
    """(n,) slope of log N(v, r) over log r, by least squares over the hop distances r that occur from v.

    N(v, r) counts the nodes other than v within r hops. Hops go either way along an arc: the direction would
    leave a source with everything and a sink with nothing. Only nodes that can be reached count. With fewer
    than two distances the dimension is 0. In graphs of more than ``ball`` nodes the balls are cut off at the
    first radius that holds so many, so the dimension is a local one there. O(n min(n + arcs, ball)).

    >>> tail, head = np.arange(9, dtype=np.int32), np.arange(1, 10, dtype=np.int32)
    >>> bool(abs(fractal_dimension(10, tail, head)[0] - 1.0) < 1e-12)  # from the end of a path, N = r
    True

    References
    ----------
    S. Duan et al., "A structure-aware framework for learning device placements on computation graphs",
    NeurIPS 2024, equation 4.
    """
    both = np.concatenate([tail, head]), np.concatenate([head, tail])
    ptr, neighbour = csr_from_pairs(both[0].astype(np.int32), both[1].astype(np.int32), n)
    return _slopes(ptr, neighbour, ball)


@njit(cache=True, nogil=True)
def _slopes(ptr, neighbour, ball):  # type: ignore[no-untyped-def]
    """One breadth-first search a node; ``seen`` holds the root of the last search that met a node."""
    n = len(ptr) - 1
    slope = np.zeros(n)
    seen = np.full(n, -1, np.int32)
    queue = np.empty(n, np.int32)
    for root in range(n):
        seen[root] = root
        queue[0] = root
        first, last = 0, 1
        radius = 0
        points, sx, sy, sxx, sxy = 0, 0.0, 0.0, 0.0, 0.0
        while first < last and last <= ball:
            end = last
            for i in range(first, end):
                for j in range(ptr[queue[i]], ptr[queue[i] + 1]):
                    u = neighbour[j]
                    if seen[u] != root:
                        seen[u] = root
                        queue[last] = u
                        last += 1
            first = end
            radius += 1
            if last > end:
                x, y = np.log(radius), np.log(last - 1)
                points += 1
                sx += x
                sy += y
                sxx += x * x
                sxy += x * y
        if points > 1:
            slope[root] = (points * sxy - sx * sy) / (points * sxx - sx * sx)
    return slope
