"""Orders of the classes that keep few nets open: a path decomposition of the hypergraph, found greedily."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit

from loadmaster.arrays import BoolArray, IntArray
from loadmaster.placers.columns._nets import Bundles

__all__ = ["Order", "costly_nets", "narrow_order"]


HOPELESS = 100
"""Open nets at which a greedy order is not continued in earnest: far more than any number of states allows."""
WORK = 40_000_000
"""Visits of nets that the search for an order may make, about a second."""


class Order(NamedTuple):
    """Classes in the order in which they are decided.

    order : (classes,).
    width : (classes,) nets open (some pins decided, some not) after each class.
    """

    order: IntArray
    width: IntArray

    @property
    def size(self) -> float:
        """Σ 3^width, a bound on the number of states."""
        return float((3.0 ** np.minimum(self.width, 500)).sum())


def costly_nets(bundles: Bundles) -> BoolArray:
    """(nets,) those that cost something on some kind of device."""
    costly = np.zeros(len(bundles.producer), np.bool_)
    for kind in bundles.kinds:
        costly |= (kind.send > 0) | (kind.recv > 0)
    return costly


def narrow_order(
    bundles: Bundles, costly: BoolArray, seed: int = 0, line: IntArray | None = None, work: int = WORK
) -> Order:
    """The best of many greedy orders, by the number of states that they may lead to.

    Each begins at another class and takes, among the classes that share an open net, the one that opens the
    fewest nets and closes the most; ties and near ties at random. ``costly`` (nets,) are the nets that count.
    The classes of ``line`` come in its order, if it is given; ``work`` limits the search, about a second by
    default.
    """
    turn = np.full(bundles.classes, -1, np.int32)
    if line is not None:
        turn[line] = np.arange(len(line))
    else:
        line = np.zeros(0, np.int32)
    net_ptr, net = bundles.net_ptr, bundles.net
    keep = costly[net]
    kept = np.concatenate([[0], np.cumsum(keep)])
    net_ptr, net = kept[net_ptr].astype(np.int32), net[keep]
    n = bundles.classes
    rounds = int(min(8 * n, max(1, work // (8 * (len(bundles.pin) + n) + 1))))
    rng = np.random.default_rng(seed)
    best: Order | None = None
    for _ in range(rounds):
        first = int(rng.integers(n))
        if turn[first] > 0:
            first = int(line[0])
        mix = int(rng.integers(1, 2**62))
        order, width = _greedy(first, turn, line, net_ptr, net, bundles.pin_ptr, bundles.pin, mix)
        found = Order(order, width)
        if best is None or found.size < best.size:
            best = found
    assert best is not None
    return best


@njit(cache=True, nogil=True)
def _greedy(start, turn, line, net_ptr, net, pin_ptr, pin, seed):  # type: ignore[no-untyped-def]
    """One greedy order: (order, width). ``candidate`` lists the undecided classes that share an open net; the
    class ``line[i]`` has ``turn`` i and must wait for those before it."""
    n = len(net_ptr) - 1
    order, width = np.empty(n, np.int32), np.empty(n, np.int32)
    decided, listed = np.zeros(n, np.bool_), np.zeros(n, np.bool_)
    seen = np.zeros(len(pin_ptr) - 1, np.int32)
    candidate = np.empty(n, np.int32)
    candidates = 0
    left = 0
    passed = 0
    opened = 0
    x = np.uint64(seed)
    current = start
    for i in range(n):
        order[i] = current
        decided[current] = True
        passed += turn[current] >= 0
        for j in range(net_ptr[current], net_ptr[current + 1]):
            e = net[j]
            if seen[e] == 0:
                opened += 1
                for k in range(pin_ptr[e], pin_ptr[e + 1]):
                    if not listed[pin[k]]:
                        listed[pin[k]] = True
                        candidate[candidates] = pin[k]
                        candidates += 1
            seen[e] += 1
            if seen[e] == pin_ptr[e + 1] - pin_ptr[e]:
                opened -= 1
        width[i] = opened
        if opened > HOPELESS:
            for v in range(n):
                if not decided[v] and turn[v] < 0:
                    i += 1
                    order[i], width[i] = v, opened
            for v in line:
                if not decided[v]:
                    i += 1
                    order[i], width[i] = v, opened
            break
        best, least = -1, np.inf
        k = 0
        while k < candidates:
            v = candidate[k]
            if decided[v]:
                candidates -= 1
                candidate[k] = candidate[candidates]
                continue
            k += 1
            if turn[v] > passed:
                continue
            score = 0.0
            for j in range(net_ptr[v], net_ptr[v + 1]):
                e = net[j]
                missing = pin_ptr[e + 1] - pin_ptr[e] - seen[e]
                if seen[e] == 0:
                    score += 1.0
                elif missing == 1:
                    score -= 1.0
                else:
                    score -= 0.3 / missing
            x ^= x << np.uint64(13)
            x ^= x >> np.uint64(7)
            x ^= x << np.uint64(17)
            score += 0.2 * ((x >> np.uint64(40)) * (1.0 / (1 << 24)))
            if score < least:
                best, least = v, score
        if best < 0 and passed < len(line):
            best = line[passed]
        elif best < 0:
            while left < n and decided[left]:
                left += 1
            best = left
        current = best
    return order, width
