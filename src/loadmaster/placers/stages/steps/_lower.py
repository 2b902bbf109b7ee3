"""Lower bounds on a step by dynamic programming over chains of cuts, from the last stage to the first.

With one stage per rank a message is received while the receiver does nothing else, so that a step takes at least as
long as one without transfers in which receiving is a part of computing: F' = hop + F, B' = hop + B. Let X be the sum of
F' + B' over the stages after stage j, L that of its own, M the microbatches and w = min(M, S - j) those in flight. From
the first forward to the last backward pass of stage j it takes at least

- ``gpipe``:  M F' + X + M B',
- ``1f1b``:   F' + max(X, (w - 1) F') + (M - w) L + max(X, (w - 1) B') + B'   (between its first forward and its first
  backward pass the stage runs w - 1 forwards, between its last forward and last backward pass w - 1 backwards; if M = w
  only one of the two counts), and (q + 1)(L + X) + (M - 1 - q w) B' with q = (M - 1) // w, as forward m + w comes after
  backward m.

Before and after it the stages before j each take F' and B'. So with T(j) for the stages from j on,
T(j) >= max(L + T(j + 1), the above): minimized over all chains, a bound for every cut and number of stages.
"""

from __future__ import annotations

import numpy as np
from numba import njit

__all__ = ["alone", "lower_bounds", "nearest", "stage_seconds"]


@njit(cache=True, nogil=True)
def alone(flush, microbatches, flying, f, b, x):  # type: ignore[no-untyped-def]
    """Least seconds from the first forward to the last backward pass of a stage with x seconds of stages after it."""
    m, w, load = microbatches, flying, f + b
    if flush:
        return m * f + x + m * b
    if m > w:
        least = f + max(x, (w - 1) * f) + (m - w) * load + max(x, (w - 1) * b) + b
    else:
        least = max(f + max(x, (m - 1) * f) + m * b, m * f + max(x, (m - 1) * b) + b)
    q = (m - 1) // w
    return max(least, (q + 1) * (load + x) + (m - 1 - q * w) * b)


@njit(cache=True, nogil=True)
def stage_seconds(  # type: ignore[no-untyped-def]
    settings, forward, backward, banned, held, cut, ties, tie_memory, base, capacity, a, b, k, flying, last
):
    """(F, B) of the stage from ideal a to b on kind k, checkpoints included; F < 0 if it may not be there."""
    if banned[b, k] - banned[a, k] > 0.5:
        return -1.0, 0.0
    f, g = forward[b, k] - forward[a, k], backward[b, k] - backward[a, k]
    if np.isinf(capacity[k]):
        return f, g
    need = base[k] + held[b, 0] - held[a, 0]
    for t in range(len(tie_memory)):
        if ties[b, t] - ties[a, t] > 0.5:
            need += tie_memory[t]
    if a > 0:
        need += settings[0] * cut[a, 1]
    if not last:
        need += settings[0] * cut[b, 3]
    kept = held[b, 1] - held[a, 1]
    room = capacity[k] * (1.0 + 1e-12)
    if need + flying * kept > room:
        if settings[3] == 0 or need + kept > room:
            return -1.0, 0.0
        g += f
    return f, g


@njit(cache=True, nogil=True)
def nearest(cut, hop, into, back):  # type: ignore[no-untyped-def]
    """Fill (N, K) tables: the least seconds of a message over each cut to kind k, forward and backward."""
    kinds = hop.shape[1]
    for i in range(len(cut)):
        for k in range(kinds):
            into[i, k] = back[i, k] = np.inf
            for j in range(kinds):
                if np.isinf(hop[0, j, k]):
                    continue
                f = 0.0 if cut[i, 0] < 0.0 else hop[0, j, k] + cut[i, 0] * hop[1, j, k]
                b = 0.0 if cut[i, 2] < 0.0 else hop[0, j, k] + cut[i, 2] * hop[1, j, k]
                into[i, k], back[i, k] = min(into[i, k], f), min(back[i, k], b)


@njit(cache=True, nogil=True)
def lower_bounds(  # type: ignore[no-untyped-def]
    settings, flush, stages, number, stride, ptr, after, forward, backward, banned, held, cut, ties, tie_memory,
    base, capacity, into, back, least, path, top,
):  # fmt: skip
    """Fill, by state and ideal: ``least``, the bound for all that comes after the ideal; ``path``, the least sum of
    F' + B'; ``top`` (state, ideal, 2), the least of the largest F' and of the largest B'.

    A state says which devices the stages before have used (``stride`` > 0, number of each kind), or only how many
    (``stride`` 0: a relaxation, for many unlike devices).
    """
    n, kinds = forward.shape
    m, per_rank = settings[0], settings[1]
    exact = stride[0] > 0
    states = least.shape[0]
    least[:] = np.inf
    path[:] = np.inf
    top[:] = np.inf
    used = np.zeros(kinds, np.int64)
    for s in range(stages, -1, -1):
        for state in range(states):
            if exact:
                rest, total = state, 0
                for k in range(kinds - 1, -1, -1):
                    used[k] = rest // stride[k]
                    rest -= used[k] * stride[k]
                    total += used[k]
                if total != s:
                    continue
            elif state != s:
                continue
            if s == stages:
                least[state, n - 1] = path[state, n - 1] = top[state, n - 1, 0] = top[state, n - 1, 1] = 0.0
                continue
            last = s == stages - 1
            flying = m if flush else min(m, stages - s)
            for a in range(n - 1):
                if (a == 0) != (s == 0):
                    continue
                for i in range(ptr[a], ptr[a + 1]):
                    b = after[i]
                    if (b == n - 1) != last:
                        continue
                    for k in range(kinds):
                        if exact and used[k] == number[k]:
                            continue
                        then = state + (stride[k] if exact else 1)
                        if np.isinf(path[then, b]):
                            continue
                        if per_rank > 1:
                            # Memory depends on all stages of the rank, and checkpoints only add.
                            if banned[b, k] - banned[a, k] > 0.5:
                                continue
                            f, g = forward[b, k] - forward[a, k], backward[b, k] - backward[a, k]
                        else:
                            f, g = stage_seconds(
                                settings, forward, backward, banned, held, cut, ties, tie_memory, base, capacity,
                                a, b, k, flying, last,
                            )  # fmt: skip
                            if f < 0.0:
                                continue
                        if s > 0:
                            f += into[a, k]
                        if not last:
                            g += back[b, k]
                        x = path[then, b]
                        path[state, a] = min(path[state, a], f + g + x)
                        if per_rank > 1:
                            least[state, a] = path[state, a]
                            continue
                        own = alone(flush, m, flying, f, g, x)
                        least[state, a] = min(least[state, a], max(own, f + g + least[then, b]))
                        top[state, a, 0] = min(top[state, a, 0], max(f, top[then, b, 0]))
                        top[state, a, 1] = min(top[state, a, 1], max(g, top[then, b, 1]))
