"""Work that is spread over like devices must be carried between them: a bound on ``pipeline``, by many small flows.

Take the K devices of one kind; μ is the time of a class there, and c_t the least that a device of the kind pays when a
tensor t crosses its border (sending or receiving). A *ball* is a class v, some classes B around it and a rate λ: a flow
that brings λ μ_u from v to every u in B. All flows together must go through each tensor with at most c_t. Then the
transfers of a device are at least what flows over its border.

A device holds at most C of μ, where C is the cost. So of B at least μ(B) - C is on other devices than v, and every flow
between two devices of the kind is paid for by both. Classes X on other kinds of devices are paid for once only, and not
computed here. Added up over the K devices, with weights ω for the loads of all other devices,

    (K + Σ ω + 2 Σ λ) C  >=  μ(all) + 2 Σ λ μ(B) - max over X of { gain(X) - what is left of the tensors around X },

where a class gains μ (1 + the rates of the balls it is in) less ω times its time there. The maximum is a minimum cut.
(With μ(B) > 2C a ball around a class of X is worth less than that; the class gains the difference.)

This is the dual of a linear program with *spreading metrics*: lengths of the tensors such that every class is far from
all but C of the work. It sees both borders of a stage in the middle of a chain, where a fair share sees one.

The flows are found by multiplicative weights: the fuller a tensor, the longer it is; the next ball goes along shortest
paths. Any flows that keep to the capacities prove a bound.

References
----------
G. Even, J. Naor, S. Rao, B. Schieber, "Fast approximate graph partitioning algorithms", SIAM J. Comput. 28, 1999.
N. Garg, J. Könemann, "Faster and simpler algorithms for multicommodity flow", SIAM J. Comput. 37, 2007.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from loadmaster.arrays import BoolArray, FloatArray
from loadmaster.placers.cuts._balls import route
from loadmaster.placers.cuts._cut_graph import Arcs, minimum_cut
from loadmaster.problem import Problem
from loadmaster.problem.bounds import View, class_tensors, load_dual, view_of

__all__ = ["spreading_bounds"]

Index = npt.NDArray[np.int64]

STEEP = 0.3
"""How much longer a tensor becomes (as a power of e) when as much as it can carry goes through it once more;"""
STEEPER = 3.0
"""on large graphs, where there is time for few balls."""
MANY = 5000
"""Classes of a large graph."""
WORTH = 0.7
"""A ball is used if it is worth so much of what the best of late was, for its flow."""
BATCH = 16
"""Balls between two looks at the clock."""
FIRST, MORE = 200, 1.6
"""Balls until the bound is computed for the first time, and so many times as many until the next."""
ENOUGH = 2e-4
"""It ends when twice in a row the bound has gained less than this part of itself."""
WEIGHTS = 5
"""Minimum cuts for the weight of the other devices, each time."""


def spreading_bounds(
    problem: Problem,
    known: float,
    target: Callable[[], float],
    over: Callable[[], bool],
    balls: int,
    seed: int = 0,
) -> Iterator[float]:
    """Rising lower bounds on the cost of any pipeline whose transfers add to the load, until ``target`` is met.

    known : a bound that holds already.
    target : the cost of a known placement, asked again and again; it may fall.
    over : whether to stop.
    balls : at most so many of them.

    Complexity: a ball takes O(p log p) for p tensors and readers in it.
    """
    view = view_of(problem)
    if view is None or not math.isfinite(target()):
        return
    value, weight = load_dual(view.cost, view.number)
    kind = int(np.argmax(weight * view.number))
    if value <= 0 or view.number[kind] < 2:
        return
    flows = _Flows(problem, view, kind, max(known, value), seed)
    if not len(flows.nets.capacity):
        return
    other = np.delete(weight / max(weight[kind], 1e-300), kind)
    made, next_look, vain, best = 0, FIRST, 0, known
    while best < target() and made < balls and vain < 2 and not over():
        flows.route(target())
        made += BATCH
        if made >= next_look:
            next_look = int(MORE * made)
            before, best = best, max(best, flows.bound(other, target, over))
            vain = vain + 1 if best <= before + ENOUGH * best else 0
            if best > before:
                yield best
    if made and vain < 2:
        last = flows.bound(other, target, lambda: False)
        if last > best:
            yield last


class _Nets(NamedTuple):
    """Tensors with readers in other classes than their own, and what they join.

    capacity : (T,) seconds that a device of the kind pays at least for a transfer.
    first, member : CSR tensor -> its class and those that read it.
    of, net : CSR class -> tensors.
    """

    capacity: FloatArray
    first: Index
    member: Index
    of: Index
    net: Index


def _nets(problem: Problem, view: View, kind: int) -> _Nets:
    tensor, own, reader = class_tensors(problem, view)
    classes, devices = len(view.cost), view.kinds[kind]
    used, row = np.unique(tensor, return_inverse=True)
    size = problem.size[used]
    pays = np.minimum(
        problem.send_latency[devices].min() + size * problem.send_rate[devices].min(),
        problem.recv_latency[devices].min() + size * problem.recv_rate[devices].min(),
    )
    carried = pays > 0  # what costs nothing carries nothing
    number = np.cumsum(carried) - 1
    row = row.reshape(-1)
    keep = carried[row]
    net, own, reader = number[row[keep]], own[keep].astype(np.int64), reader[keep].astype(np.int64)
    key = np.unique(np.concatenate([net * classes + own, net * classes + reader]))
    net, member = key // classes, key % classes
    by_class = np.argsort(member, kind="stable")
    return _Nets(
        capacity=pays[carried],
        first=_starts(net, int(carried.sum())),
        member=member,
        of=_starts(member, classes),
        net=net[by_class],
    )


def _starts(row: Index, rows: int) -> Index:
    found = np.zeros(rows + 1, np.int64)
    np.cumsum(np.bincount(row, minlength=rows), out=found[1:])
    return found


class _Flows:
    """Flows so far. They are scaled down to the capacities when a bound is computed from them."""

    def __init__(self, problem: Problem, view: View, kind: int, known: float, seed: int) -> None:
        self.view, self.kind, self.known = view, kind, known
        self.nets = _nets(problem, view, kind)
        self.here: BoolArray = np.isfinite(view.cost[:, kind])
        self.mass = np.where(self.here, view.cost[:, kind], 0.0)
        nets, classes = self.nets, len(self.mass)
        self.steep = STEEPER if classes > MANY else STEEP
        self.length = 1.0 / nets.capacity if len(nets.capacity) else nets.capacity
        self.full = np.zeros(len(nets.capacity))
        self.reach, self.excess = np.zeros(classes), np.zeros(classes)
        self.rate = self.filled = 0.0
        self.worth = 0.0
        self._rng = np.random.default_rng(seed)
        around = np.bincount(nets.member, np.repeat(nets.capacity, np.diff(nets.first)), classes)
        chance = np.cumsum(np.where(self.here, around, 0.0))
        self._chance = chance / chance[-1] if classes and chance[-1] > 0 else None

    def route(self, cost: float) -> None:
        """Some more balls, around classes with much to carry."""
        if self._chance is None:
            return
        source = np.searchsorted(self._chance, self._rng.random(BATCH), side="right")
        source = np.minimum(source, len(self.mass) - 1)
        nets = self.nets
        filled, rate, best, used = route(
            source, nets.capacity, nets.first, nets.member, nets.of, nets.net, self.mass, cost, self.known,
            WORTH * self.worth, self.steep, self.length, self.full, self.reach, self.excess,
        )  # fmt: skip
        self.filled += filled
        self.rate += rate
        self.worth = max(0.999 * self.worth, 0.5 * best) if used else best
        if float(self.length.max(initial=0.0)) > 1e200:  # only ratios of lengths matter
            self.length *= 1e-200
        # Lengths that have become nothing must not hide what is full.
        np.maximum(self.length, 1e-250, out=self.length)

    def bound(self, other: FloatArray, target: Callable[[], float], over: Callable[[], bool]) -> float:
        """The best of some weights of the other devices. ``other`` (kinds - 1,) are weights to begin with."""
        most = float(self.full.max(initial=0.0))
        scale = (1.0 - 1e-9) / most if most > 0 else 0.0
        best, low, high = 0.0, 0.0, math.inf
        factor = 1.0
        for _ in range(WEIGHTS if len(other) else 1):
            value, busy = self._proved(scale, factor * other)
            best = max(best, value)
            if best >= target() or over():
                break
            # Where the others are given more than they have time for, their time is worth more.
            if busy > best:
                low = factor
            else:
                high = factor
            factor = 1.5 * factor if math.isinf(high) else 0.5 * (low + high)
        return best

    def _proved(self, scale: float, other: FloatArray) -> tuple[float, float]:
        """What is proved with these weights; and the mean time that other devices would need for the best X."""
        view, nets, kind = self.view, self.nets, self.kind
        elsewhere = np.delete(view.cost, kind, axis=1)
        number = np.delete(view.number, kind)
        classes, tensors = len(self.mass), len(nets.capacity)
        gain = np.where(self.here, self.mass + scale * (self.mass * self.reach + self.excess), 0.0)
        possible = np.isfinite(elsewhere)
        paid = np.where(possible, np.where(possible, elsewhere, 0.0) * other, math.inf)
        pay = paid.min(axis=1, initial=math.inf)
        left = np.maximum(nets.capacity * (1.0 - scale * self.full), 0.0)
        every, net = np.arange(classes), np.repeat(np.arange(tensors), np.diff(nets.first))
        endless = np.full(len(net), math.inf)
        parts = [
            (np.full(classes, -1), every, np.where(self.here, gain, math.inf)),
            (every, np.full(classes, -2), pay),
            (nets.member, classes + net, endless),
            (classes + np.arange(tensors), classes + tensors + np.arange(tensors), left),
            (classes + tensors + net, nets.member, endless),
        ]
        # The source's side is X: who is there pays, who is not loses what it would gain.
        tail, head, capacity = (np.concatenate([part[i] for part in parts]) for i in range(3))
        keep = capacity > 0
        cut = minimum_cut(
            Arcs(
                classes + 2 * tensors,
                tail[keep].astype(np.int64),
                head[keep].astype(np.int64),
                capacity[keep],
            )
        )
        if not math.isfinite(cut.value):  # some class has nowhere to go
            return 0.0, 0.0
        total = float(self.mass.sum()) + 2.0 * scale * self.filled - float(gain.sum()) + cut.value
        rates = float(view.number[kind]) + float((number * other).sum()) + 2.0 * scale * self.rate
        size = float(self.mass.sum()) + 2.0 * scale * self.filled + float(gain.sum())
        away = cut.source_side[:classes] & possible.any(axis=1)
        busy = 0.0
        if len(number):
            at = paid[away].argmin(axis=1)
            busy = float(elsewhere[away, at].sum()) / max(float(number.sum()), 1.0)
        return (total - 1e-11 * size) / rates, busy
