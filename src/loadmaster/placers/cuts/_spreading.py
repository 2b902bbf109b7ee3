"""Work that is spread over like devices must be carried between them: a bound on ``pipeline``, by many small flows.

Take the K devices of one kind; μ is the time of a class there, and c_t the least that a device of the kind pays when a
tensor t crosses its border (sending or receiving). A *ball* is a class v, some classes B around it and a rate λ: a flow
that brings λ μ_u from v to every u in B. All flows together must go through each tensor with at most c_t. Then the
transfers of a device are at least what flows over its border.

Flows may also take more of some tensors than that: then as many devices claim too much as have the tensor at their
border, at most as many as it joins; this is taken off. A few thin tensors would keep all flows small otherwise.

A device holds at most C of μ, where C is the cost. So of B at least μ(B) - C is on other devices than v, and every flow
between two devices of the kind is paid for by both. Classes X on other kinds of devices are paid for once only, and not
computed here. Added up over the K devices, with weights ω for the loads of all other devices,

    (K + Σ ω + 2 Σ λ) C  >=  μ(all) + 2 Σ λ μ(B) - max over X of { gain(X) - what is left of the tensors around X },

where a class gains μ (1 + the rates of the balls it is in) less ω times its time there. The maximum is a minimum cut.
(With μ(B) > 2C a ball around a class of X is worth less than that; the class gains the difference.)

This is the dual of a linear program with *spreading metrics*: lengths of the tensors such that every class is far from
all but C of the work. It sees both borders of a stage in the middle of a chain, where a fair share sees one.

The flows are found by multiplicative weights: the fuller a tensor, the longer it is; the next ball goes along shortest
paths. Where X has been of late, a ball is worth less and tensors are dearer, since X would pay for what is left of
them (fictitious play). Any flows prove a bound.

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

STEEP = 0.1
"""How much longer a tensor becomes (as a power of e) when as much as it can carry goes through it once more;"""
STEEPER = 3.0
"""on large graphs, where there is time for few balls."""
CALMER = 0.5
"""It becomes so much less steep where the bound gains too little."""
MANY = 5000
"""Classes of a large graph."""
WORTH, WORTH_LARGE = 0.8, 0.7
"""A ball is used if it is worth so much of what the best of late was, for its flow; on large graphs."""
NEAR = 1.25
"""Balls are made for a cost that is at most so many times the bound, whatever has been found yet."""
BATCH = 16
"""Balls between two looks at the clock."""
LOOK, PER_LOOK = 200, 100
"""Balls until the bound is computed again; as many classes per ball if that is more."""
RESPONSE = 0.2
"""Weight of the last X in the mean of all."""
STEPS = 0.01, 0.1
"""The weights of other devices change by such a part of themselves from one bound to the next."""
CHECK, MORE = 4, 1.6
"""Bounds until it is looked at what has been gained for the first time, and so many times as many until the next."""
ENOUGH, VAIN = 2e-4, 4
"""It ends when so many times in a row the bound has gained less than this part of itself."""
PARTS = (1.0, 0.9, 0.7, 0.4, 0.0)
"""Parts of the earlier flows that are kept beside those of late: whichever is best."""
LEAST, SCALES = 0.5, 26
"""Flows are scaled down until the fullest tensor can carry them, or less, down to this part; scales compared."""
WEIGHTS = 5
"""Minimum cuts for the weight of the other devices, the first time."""


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
    made, seen, looks, vain, best, before = 0, 0, 0, 0, known, known
    every, next_look, next_check = max(LOOK, len(flows.mass) // PER_LOOK), LOOK, CHECK
    while best < target() and made < balls and vain < VAIN and not over():
        flows.route(min(target(), NEAR * best) if best > 0 else target())
        made += BATCH
        if made < next_look:
            continue
        seen, next_look = made, min(made + every, 2 * made)
        looks += 1
        value = flows.look()
        if value > best:
            best = value
            yield best
        if looks == next_check:
            next_check = int(MORE * looks) + 1
            vain = vain + 1 if best <= before + ENOUGH * best else 0
            flows.steep *= CALMER if vain else 1.0
            before = best
    if made > seen and best < target():
        value = flows.look()
        if value > best:
            yield value


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

    def borders(self, left: FloatArray, classes: int) -> tuple[list[tuple[Index, Index, FloatArray]], int]:
        """Arcs (tail, head, capacity) of which a set of classes cuts ``left`` (T,) of each tensor that joins it to
        others, and how many nodes there are then: two more for each tensor that joins more than two classes."""
        pins = np.diff(self.first)
        one = self.member[self.first[:-1][pins == 2]]
        two = self.member[self.first[:-1][pins == 2] + 1]
        arcs = [(one, two, left[pins == 2]), (two, one, left[pins == 2])]
        many = int((pins != 2).sum())
        into = classes + np.arange(many, dtype=np.int32)
        at, member = np.repeat(into, pins[pins != 2]), self.member[np.repeat(pins != 2, pins)]
        endless = np.full(len(at), math.inf)
        arcs += [(member, at, endless), (into, into + many, left[pins != 2]), (at + many, member, endless)]
        return arcs, classes + 2 * many


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
        self.steep, self.least = (STEEPER, WORTH_LARGE) if classes > MANY else (STEEP, WORTH)
        self.length = 1.0 / nets.capacity if len(nets.capacity) else nets.capacity
        self._width = np.full(1, float(self.length.mean()) if len(self.length) else 1.0)
        self.sums, self.late = _none(nets, classes), _none(nets, classes)
        self.other = other
        self.away, self.across, self.paid = np.zeros(classes), np.zeros(len(nets.capacity)), 0.0
        self.worth = self.scale = 0.0
        self.looks, self.answers = 0, 0
        self.more, self.step = True, STEPS[1]
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
        # What a ball is worth less where X is, and a tensor dearer around it, in terms of its length.
        dear = self.across / (2.0 * self.worth) if self.worth > 0 else 0.0 * self.across
        filled, rate, best, used = route(
            source, nets.capacity, nets.first, nets.member, nets.of, nets.net, self.mass,
            self.mass * (1.0 - 0.5 * self.away), dear, cost, self.known,
            self.least * self.worth, self.steep, self._width, self.length, late.full, late.reach, late.excess,
        )  # fmt: skip
        self.late = late._replace(filled=late.filled + filled, rate=late.rate + rate)
        self.worth = max(0.999 * self.worth, 0.5 * best) if used else best
        if float(self.length.max(initial=0.0)) > 1e200:  # only ratios of lengths matter
            self.length *= 1e-200
            self._width *= 1e-200
        # Lengths that have become nothing must not hide what is full.
        np.maximum(self.length, 1e-250, out=self.length)

    def look(self) -> float:
        """Put the flows together, and what they prove with the present weights of the other devices; these are then
        adjusted. The first time some are tried."""
        self.settle()
        best, low, high = 0.0, 0.0, math.inf
        first, start, factor = self.looks == 0, self.other, 1.0
        for _ in range(WEIGHTS if first and len(start) else 1):
            self.other = factor * start
            value, busy = self.proved()
            if value > best:
                best, kept = value, self.other
            # Where the others are given more than they have time for, their time is worth more.
            low, high = (factor, high) if busy > value else (low, factor)
            factor = 1.5 * factor if math.isinf(high) else 0.5 * (low + high)
        if first:
            self.other = kept if best > 0 else start
        else:
            more = busy > value
            self.step = (
                max(0.5 * self.step, STEPS[0]) if more != self.more else min(1.3 * self.step, STEPS[1])
            )
            self.more = more
            self.other = self.other * (1.0 + self.step if more else 1.0 / (1.0 + self.step))
        self.looks += 1
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
        work = float(self.mass.sum())
        devices = float(self.view.number[self.kind] + np.delete(self.view.number, self.kind) @ self.other)
        away, left = self.away, self.nets.capacity * self.across
        gain = float(self.mass @ away) - self.paid
        more = float((self.mass * sums.reach + sums.excess) @ away)
        best, chosen = 0.0, 0.0
        for scale in (1.0 / np.linspace(most, LEAST * most, SCALES)).tolist():
            full = scale * sums.full
            rest = float(left @ np.maximum(1.0 - full, 0.0))
            lost = self._crowded(full) + max(gain + scale * more - rest, 0.0)
            value = (work + 2.0 * scale * sums.filled - lost) / (devices + 2.0 * scale * sums.rate)
            if value > best:
                best, chosen = value, scale
        return best, chosen * (1.0 - 1e-9)

    def _crowded(self, full: FloatArray) -> float:
        """What flows take of tensors beyond what they can carry, at all borders that each of them may cross."""
        return float(self._crossed @ np.maximum(full - 1.0, 0.0))

    def proved(self) -> tuple[float, float]:
        """What is proved with the present weights; and the mean time that other devices would need for the best X."""
        view, nets, kind, sums, scale, other = (
            self.view, self.nets, self.kind, self.sums, self.scale, self.other,
        )  # fmt: skip
        elsewhere = np.delete(view.cost, kind, axis=1)
        number = np.delete(view.number, kind)
        classes = len(self.mass)
        gain = np.where(self.here, self.mass + scale * (self.mass * sums.reach + sums.excess), 0.0)
        possible = np.isfinite(elsewhere)
        paid = np.where(possible, np.where(possible, elsewhere, 0.0) * other, math.inf)
        pay = paid.min(axis=1, initial=math.inf)
        left = np.maximum(nets.capacity * (1.0 - scale * sums.full), 0.0)
        every = np.arange(classes)
        # The source's side is X: who is there pays, who is not loses what it would gain.
        around, nodes = nets.borders(left, classes)
        parts = [
            (np.full(classes, -1), every, np.where(self.here, gain, math.inf)),
            (every, np.full(classes, -2), pay),
            *around,
        ]
        tail, head, capacity = (np.concatenate([part[i] for part in parts]) for i in range(3))
        keep = capacity > 0
        cut = minimum_cut(
            Arcs(nodes, tail[keep].astype(np.int64), head[keep].astype(np.int64), capacity[keep])
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
        inside = np.add.reduceat(away[nets.member].astype(np.int64), nets.first[:-1])
        across = (inside > 0) & (inside < np.diff(nets.first))
        self.answers += 1
        part = max(RESPONSE, 1.0 / self.answers)
        self.away += part * (away - self.away)
        self.across += part * (across - self.across)
        self.paid += part * (float(pay[away].sum()) - self.paid)
        return (total - 1e-11 * size) / rates, busy
