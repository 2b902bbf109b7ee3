"""Bounds on ``serial``: every op on its fastest device, and a dual that counts transfers."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numba import njit

from loadmaster.arrays import FloatArray
from loadmaster.problem._problem import Problem
from loadmaster.problem.bounds._bound import EPS, Bound
from loadmaster.problem.bounds._view import Arcs, View, class_tensors, row_ptr

__all__ = ["Links", "serial_bounds", "transfer_dual"]


def serial_bounds(problem: Problem, view: View) -> list[Bound]:
    """Every class on its fastest device; the same with the transfers that this causes, or avoids."""
    fastest = float(view.cost.min(axis=1).sum())
    dual = transfer_dual(problem, view, view.cost, Links.of(view.latency, view.rate))
    return [Bound(fastest, "fastest devices"), Bound(max(dual, fastest), "fastest devices and transfers")]


class Links(NamedTuple):
    """(K, K) latency and rate between kinds, 0 on the diagonal; where possible also as sums, source + target.

    With ``additive``, latency[a, b] = source[0, a] + target[0, b] for a != b, and likewise row 1 for the
    rate: the best of K sources for each of K targets is then found in O(K).
    """

    latency: FloatArray
    rate: FloatArray
    source: FloatArray
    target: FloatArray
    additive: bool

    @staticmethod
    def of(latency: FloatArray, rate: FloatArray) -> Links:
        apart = ~np.eye(len(rate), dtype=bool)
        links = np.where(apart, latency, 0.0), np.where(apart, rate, 0.0)
        most = np.array([[table.max()] * len(rate) for table in links])
        additive = all(bool((table[apart] == table.max()).all()) for table in links)
        return Links(*links, most, np.zeros_like(most), additive)

    @staticmethod
    def sums(source: FloatArray, target: FloatArray) -> Links:
        """From (2, K) latencies and rates of the two ends."""
        latency, rate = (a[:, None] + b[None, :] for a, b in zip(source, target, strict=True))
        return Links.of(latency, rate)._replace(source=source, target=target, additive=True)


def transfer_dual(problem: Problem, view: View, unary: FloatArray, links: Links) -> float:
    """A lower bound on min over x of Σ_c unary[c, x_c] + Σ_t transfers of t, by message passing.

    A tensor that r other classes read costs at least 1/r of the sum of what it would cost for each of them
    alone (and just that if all of them are in one place), so the sum of these shares over pairs of classes
    is a relaxation. Moving amounts between the costs of classes and of pairs (the messages) leaves the total
    of every x as it is; for any messages the sum of all minima is therefore a bound. Its maximum is the
    local-polytope LP.

    References
    ----------
    V. Kolmogorov, "A new look at reweighted message passing", PAMI 2015.
    """
    tensor, own, reader = class_tensors(problem, view)
    classes, kinds = unary.shape
    if not len(tensor) or kinds == 1:
        return float(unary.min(axis=1).sum())
    share = 1.0 / np.bincount(tensor)[tensor]
    arcs = Arcs.merge(classes, own, reader, share, problem.size[tensor])
    sweeps = min(40, int(3e7 / (len(arcs.tail) * (4 * kinds if links.additive else kinds**2))))
    if sweeps == 0:
        return float(unary.min(axis=1).sum())
    place = np.full(classes, problem.n, np.int32)
    np.minimum.at(place, view.of, problem.graph.position)
    order = np.argsort(place, kind="stable").astype(np.int32)
    place[order] = np.arange(classes, dtype=np.int32)
    ends = np.concatenate([arcs.tail, arcs.head])
    incident = (np.argsort(ends, kind="stable") % len(arcs.tail)).astype(np.int32)
    return float(_sweep(unary, arcs, links, order, place, row_ptr(ends, classes), incident, sweeps))


@njit(cache=True, nogil=True)
def _sweep(unary, arcs, links, order, place, ptr, incident, sweeps):  # type: ignore[no-untyped-def]
    """Sequential reweighted message passing over the nodes in ``order`` and back; the bound that it proves.

    ``moved[0, e, a]`` and ``moved[1, e, b]`` are what arc e has passed on to its tail at a and to its head
    at b. A node takes what the arcs behind it can spare, then spreads what it has over the arcs ahead.
    ``incident`` is a CSR node -> arcs, ``place`` the inverse of ``order``. The bound is evaluated after
    every fourth sweep; a gain of less than one part in 10⁴ ends it.
    """
    nodes, kinds = unary.shape
    tail, head, number, size = arcs
    latency, rate, source, target, additive = links
    moved = np.zeros((2, len(tail), kinds))
    total = np.empty(kinds)
    best = -math.inf
    for sweep in range(2 * sweeps):
        forward = sweep % 2 == 0
        for i in range(nodes):
            v = order[i] if forward else order[nodes - 1 - i]
            ahead = 0
            total[:] = unary[v]
            for j in range(ptr[v], ptr[v + 1]):
                e = incident[j]
                side = 0 if tail[e] == v else 1
                other = head[e] if side == 0 else tail[e]
                if (place[other] > place[v]) == forward:
                    ahead += 1
                elif additive:
                    mine, its = (source, target) if side == 0 else (target, source)
                    least = math.inf
                    for b in range(kinds):
                        if unary[other, b] < math.inf:
                            link = number[e] * its[0, b] + size[e] * its[1, b]
                            least = min(least, link - moved[1 - side, e, b])
                    for a in range(kinds):
                        moved[side, e, a] = least + number[e] * mine[0, a] + size[e] * mine[1, a]
                        if unary[other, a] < math.inf:
                            moved[side, e, a] = min(moved[side, e, a], -moved[1 - side, e, a])
                else:
                    for a in range(kinds):
                        least = math.inf
                        for b in range(kinds):
                            if unary[other, b] < math.inf:
                                x, y = (a, b) if side == 0 else (b, a)
                                link = number[e] * latency[x, y] + size[e] * rate[x, y]
                                least = min(least, link - moved[1 - side, e, b])
                        moved[side, e, a] = least
                for a in range(kinds):
                    total[a] += moved[side, e, a]
            if ahead == 0:
                continue
            part = 1.0 / max(ahead, ptr[v + 1] - ptr[v] - ahead)
            for j in range(ptr[v], ptr[v + 1]):
                e = incident[j]
                side = 0 if tail[e] == v else 1
                other = head[e] if side == 0 else tail[e]
                if (place[other] > place[v]) == forward:
                    for a in range(kinds):
                        if total[a] < math.inf:
                            moved[side, e, a] -= part * total[a]
        if sweep % 8 == 7 or sweep == 2 * sweeps - 1:
            value = _sum_of_minima(unary, arcs, latency, rate, ptr, incident, moved)
            if value <= best + 1e-4 * abs(best):
                return max(best, value)
            best = value
    return best


@njit(cache=True, nogil=True)
def _sum_of_minima(unary, arcs, latency, rate, ptr, incident, moved):  # type: ignore[no-untyped-def]
    """The bound that the messages prove, less what rounding can have added.

    Unlike everywhere else, numbers of either sign are added here: the error is relative to the sum of
    magnitudes.
    """
    nodes, kinds = unary.shape
    tail, head, number, size = arcs
    bound = 0.0
    magnitude = 0.0
    for v in range(nodes):
        least, most = math.inf, 0.0
        for a in range(kinds):
            total = unary[v, a]
            absolute = total
            if total < math.inf:
                for j in range(ptr[v], ptr[v + 1]):
                    e = incident[j]
                    message = moved[0 if tail[e] == v else 1, e, a]
                    total += message
                    absolute += abs(message)
                least, most = min(least, total), max(most, absolute)
        bound += least
        magnitude += most
    for e in range(len(tail)):
        least, most = math.inf, 0.0
        for a in range(kinds):
            for b in range(kinds):
                if unary[tail[e], a] < math.inf and unary[head[e], b] < math.inf:
                    link = number[e] * latency[a, b] + size[e] * rate[a, b]
                    least = min(least, link - moved[0, e, a] - moved[1, e, b])
                    most = max(most, link + abs(moved[0, e, a]) + abs(moved[1, e, b]))
        bound += least
        magnitude += most
    return bound - 4.0 * EPS * (nodes + len(tail)) * magnitude
