"""Work that is spread over like devices must be carried between them: a bound on ``pipeline``, by many small flows.

Take the K devices of one kind; μ is the time of a class there, and c_t the least that a device of the kind pays when a
tensor t crosses its border (sending or receiving). A *ball* is a class v, some classes B around it and a rate λ: a flow
that brings λ μ_u from v to every u in B. All flows together must go through each tensor with at most c_t. Then the
transfers of a device are at least what flows over its border. (Flows may also take more of some tensors: then a device
may claim too much, at most as many as the tensor joins; that is taken off.)

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

__all__ = ["Flows", "spreading_bounds"]

Index = npt.NDArray[np.int32]

STEEP = 0.3
"""How much longer a tensor becomes (as a power of e) when as much as it can carry goes through it once more;"""
STEEPER = 3.0
"""on large graphs, where there is time for few balls."""
CALMER = 0.5
"""It becomes so much less steep where the bound gains too little."""
MANY = 5000
"""Classes of a large graph."""
WORTH = 0.7
"""A ball is used if it is worth so much of what the best of late was, for its flow."""
BATCH = 16
"""Balls between two looks at the clock."""
FIRST, MORE = 200, 1.6
"""Balls until the bound is computed for the first time, and so many times as many until the next."""
ENOUGH, VAIN = 2e-4, 4
"""It ends when so many times in a row the bound has gained less than this part of itself."""
PARTS = (1.0, 0.7, 0.4, 0.2, 0.0)
"""Parts of the earlier flows that are kept beside those of late: whichever is best."""
LEAST, SCALES = 0.5, 26
"""Flows are scaled down until the fullest tensor can carry them, or less, down to this part; scales compared."""
WEIGHTS, CLOSER = 5, 3
"""Minimum cuts for the weight of the other devices, the first time and later."""


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
    other = np.delete(weight / max(weight[kind], 1e-300), kind)
    flows = Flows(problem, view, kind, other, max(known, value), seed)
    if not len(flows.nets.capacity):
        return
    made, next_look, vain, best = 0, FIRST, 0, known
    while best < target() and made < balls and vain < VAIN and not over():
        flows.route(target())
        made += BATCH
        if made >= next_look:
            next_look = int(MORE * made)
            flows.settle()
            before, best = best, max(best, flows.bound(target, over))
            vain = vain + 1 if best <= before + ENOUGH * best else 0
            if vain:
                flows.steep *= CALMER
            if best > before:
                yield best
    if made and vain < VAIN:
        flows.settle()
        last = flows.bound(target, lambda: False)
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
        member=member.astype(np.int32),
        of=_starts(member, classes),
        net=net[by_class].astype(np.int32),
    )


def _starts(row: Index, rows: int) -> Index:
    found = np.zeros(rows + 1, np.int32)
    np.cumsum(np.bincount(row, minlength=rows), out=found[1:])
    return found


class _Sums(NamedTuple):
    """Of balls that have been routed.

    full : (T,) how often each tensor is filled.
    reach, excess : (C,) the rates of the balls around a class, and what one gains elsewhere whose balls are large.
    filled, rate : Σ λ μ(B), Σ λ.
    """

    full: FloatArray
    reach: FloatArray
    excess: FloatArray
    filled: float
    rate: float


def _none(nets: _Nets, classes: int) -> _Sums:
    return _Sums(np.zeros(len(nets.capacity)), np.zeros(classes), np.zeros(classes), 0.0, 0.0)


def _added(old: _Sums, part: float, late: _Sums) -> _Sums:
    return _Sums(
        full=part * old.full + late.full,
        reach=part * old.reach + late.reach,
        excess=part * old.excess + late.excess,
        filled=part * old.filled + late.filled,
        rate=part * old.rate + late.rate,
    )


class Flows:
    """Flows so far. They are scaled down to the capacities when a bound is computed from them."""

    def __init__(
        self, problem: Problem, view: View, kind: int, other: FloatArray, known: float, seed: int
    ) -> None:
        self.view, self.kind, self.known = view, kind, known
        self.nets = _nets(problem, view, kind)
        self.here: BoolArray = np.isfinite(view.cost[:, kind])
        self.mass = np.where(self.here, view.cost[:, kind], 0.0)
        nets, classes = self.nets, len(self.mass)
        self.steep = STEEPER if classes > MANY else STEEP
        self.length = 1.0 / nets.capacity if len(nets.capacity) else nets.capacity
        self._width = np.full(1, float(self.length.mean()) if len(self.length) else 1.0)
        self.sums, self.late = _none(nets, classes), _none(nets, classes)
        self.other = other
        self.others = float(np.delete(view.number, kind) @ other)
        self.away, self.across, self.paid = (
            np.zeros(classes, np.bool_),
            np.zeros(len(nets.capacity), np.bool_),
            0.0,
        )
        self.worth = self.scale = 0.0
        self.looked = False
        pins = np.diff(nets.first)
        self._crossed = nets.capacity * np.minimum(pins, view.number[kind])
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
        nets, late = self.nets, self.late
        filled, rate, best, used = route(
            source, nets.capacity, nets.first, nets.member, nets.of, nets.net, self.mass, cost, self.known,
            WORTH * self.worth, self.steep, self._width, self.length, late.full, late.reach, late.excess,
        )  # fmt: skip
        self.late = late._replace(filled=late.filled + filled, rate=late.rate + rate)
        self.worth = max(0.999 * self.worth, 0.5 * best) if used else best
        if float(self.length.max(initial=0.0)) > 1e200:  # only ratios of lengths matter
            self.length *= 1e-200
            self._width *= 1e-200
        # Lengths that have become nothing must not hide what is full.
        np.maximum(self.length, 1e-250, out=self.length)

    def bound(self, target: Callable[[], float], over: Callable[[], bool]) -> float:
        """The best of some weights of the other devices, about those that were best the last time."""
        best, start, looked = 0.0, self.other, self.looked
        factor, low, high = 1.0, 0.8 if looked else 0.0, math.inf
        self.looked = True
        for _ in range((CLOSER if looked else WEIGHTS) if len(start) else 1):
            value, busy = self._proved(factor * start, best)
            best = max(best, value)
            if best >= target() or over():
                break
            # Where the others are given more than they have time for, their time is worth more.
            if busy > best:
                low = factor
            else:
                high = factor
            factor = (1.2 if looked else 1.5) * factor if math.isinf(high) else 0.5 * (low + high)
        return best

    def settle(self) -> None:
        """Put the flows of late to those before. They know better what is full, so that these may count for less."""
        kept = PARTS if self.sums.rate > 0 else (1.0,)
        both = [_added(self.sums, part, self.late) for part in kept]
        (_, self.scale), best = max((self._scaled(sums), i) for i, sums in enumerate(both))
        self.sums, self.late = both[best], _none(self.nets, len(self.mass))

    def _scaled(self, sums: _Sums) -> tuple[float, float]:
        """About what flows prove, and how far they are scaled down for it: until tensors can carry them, or all but a
        few that are dear to pay. With the weights and the X that were best the last time."""
        most = float(sums.full.max(initial=0.0))
        if most <= 0:
            return 0.0, 0.0
        work, devices = float(self.mass.sum()), float(self.view.number[self.kind]) + self.others
        away, across = self.away, self.across
        gain = float(self.mass[away].sum()) - self.paid
        more = float((self.mass * sums.reach + sums.excess)[away].sum())
        best, chosen = 0.0, 0.0
        for scale in (1.0 / np.linspace(most, LEAST * most, SCALES)).tolist():
            full = scale * sums.full
            left = float(self.nets.capacity[across] @ np.maximum(1.0 - full[across], 0.0))
            lost = self._crowded(full) + max(gain + scale * more - left, 0.0)
            value = (work + 2.0 * scale * sums.filled - lost) / (devices + 2.0 * scale * sums.rate)
            if value > best:
                best, chosen = value, scale
        return best, chosen * (1.0 - 1e-9)

    def _crowded(self, full: FloatArray) -> float:
        """What flows take of tensors beyond what they can carry, at all borders that each of them may cross."""
        return float(self._crossed @ np.maximum(full - 1.0, 0.0))

    def _proved(self, other: FloatArray, best: float) -> tuple[float, float]:
        """What is proved with these weights; and the mean time that other devices would need for the best X. If it is
        more than ``best``, both are kept."""
        view, nets, kind, sums, scale = self.view, self.nets, self.kind, self.sums, self.scale
        elsewhere = np.delete(view.cost, kind, axis=1)
        number = np.delete(view.number, kind)
        classes, tensors = len(self.mass), len(nets.capacity)
        gain = np.where(self.here, self.mass + scale * (self.mass * sums.reach + sums.excess), 0.0)
        possible = np.isfinite(elsewhere)
        paid = np.where(possible, np.where(possible, elsewhere, 0.0) * other, math.inf)
        pay = paid.min(axis=1, initial=math.inf)
        left = np.maximum(nets.capacity * (1.0 - scale * sums.full), 0.0)
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
        total = float(self.mass.sum()) + 2.0 * scale * sums.filled - float(gain.sum()) + cut.value
        total -= self._crowded(scale * sums.full)
        rates = float(view.number[kind]) + float((number * other).sum()) + 2.0 * scale * sums.rate
        size = float(self.mass.sum()) + 2.0 * scale * sums.filled + float(gain.sum())
        away = cut.source_side[:classes] & possible.any(axis=1)
        busy = 0.0
        if len(number):
            at = paid[away].argmin(axis=1)
            busy = float(elsewhere[away, at].sum()) / max(float(number.sum()), 1.0)
        value = (total - 1e-11 * size) / rates
        if value > best:
            self.other, self.others = other, float((number * other).sum())
            self.away, self.paid = away, float(pay[away].sum())
            inside = np.add.reduceat(away[nets.member].astype(np.int64), nets.first[:-1])
            self.across = (inside > 0) & (inside < np.diff(nets.first))
        return value, busy
