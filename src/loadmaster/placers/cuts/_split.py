"""What a split costs: like devices too small to hold everything, so that something must be carried between them.

A linear relaxation cannot see this: with half of every class on each of two like devices, both memories are kept
and nothing is carried. Here the question is asked about sets. If the classes on K devices of one kind, of capacity C
each, take M > C bytes, then some of these devices together hold *S* and the others *T* with at least ``least`` bytes
on either side (:func:`least_side`). Everything else is *elsewhere*. The cheapest such labelling, a cut with two limits
on memory, is a lower bound, whatever happens inside S, T and elsewhere.

It is found by branch and bound. In a node some classes are fixed; the limits have prices (Lagrange), and for given
prices the cheapest labelling is a minimum cut (:class:`_Labelling`). The first class that is fixed is in S for no
loss, since S and T may be exchanged.
"""

from __future__ import annotations

import heapq
import itertools
import math
from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from loadmaster.arrays import BoolArray, FloatArray
from loadmaster.placers.cuts._cut_graph import Arcs, minimum_cut
from loadmaster.problem import Problem
from loadmaster.problem.bounds import View, class_tensors, view_of

__all__ = ["least_side", "split_bounds"]

S, ELSEWHERE, T, FREE = 0, 1, 2, -1
Labels = npt.NDArray[np.int8]
Index = npt.NDArray[np.int64]

PRICES = 8
"""Cuts for the prices of a node, at most."""


def least_side(total: float, capacity: float, devices: int) -> float:
    """Bytes that both sides have, for some division of the devices in two.

    The devices hold ``total`` bytes. If the fullest has a third of them, it is one side, and at least ``total -
    capacity`` is on the other. If not, devices are put together until they have a third, and have less than two
    thirds then. With two devices, either has what does not fit on the other.

    >>> least_side(1.2, 1.0, 2), least_side(1.9, 1.0, 2), least_side(1.8, 1.0, 4)
    (0.19999999999999996, 0.8999999999999999, 0.6)
    """
    over = max(0.0, total - capacity)
    return over if devices == 2 else min(over, total / 3.0)


def split_bounds(
    problem: Problem, target: Callable[[], float], over: Callable[[], bool], cuts: int
) -> Iterator[float]:
    """Rising lower bounds on the cost of any placement under ``serial``, until ``target`` is met.

    Complexity: one minimum cut of two nodes per class and per tensor a step, at most ``cuts`` of them.

    target : what is worth proving, asked again and again; it may fall.
    over : whether to stop.
    """
    view = view_of(problem)
    if view is None:
        return
    memory: FloatArray = np.bincount(view.of, problem.memory, len(view.cost)).astype(np.float64)
    for kind, devices in enumerate(view.kinds):
        capacity = float(problem.capacity[devices].max()) * (1.0 + 1e-9)
        if len(devices) > 1 and memory.sum() > capacity:
            labelling = _Labelling(problem, view, kind, memory, capacity)
            yield from _Tree(labelling, target, over, cuts).bounds()


class _Tensors(NamedTuple):
    """Tensors that leave their class, and the pairs (tensor, class that reads it).

    producer : (m,); inside, out, back : (m,) seconds between devices of the kind, from there to elsewhere, and back.
    tensor, reader : the pairs; ``tensor`` is a row of the others.
    """

    producer: Index
    inside: FloatArray
    out: FloatArray
    back: FloatArray
    tensor: Index
    reader: Index


class _Labelling:
    """The cheapest labels S, T or elsewhere of all classes for given prices, a minimum cut.

    A class c has two nodes, A and B. It is in S if A is on the side of the sink, in T if B is on the source's,
    elsewhere if neither. Whether a tensor crosses the border of S is seen on the nodes A alone, and on the nodes B
    for the border of T. A tensor between S and T crosses both, one between S and elsewhere only the first; so each
    tensor is watched at one border, which counts no transfer twice and every one between S and T. Which border is a
    matter of tightness only: ``watch`` says it, and the bound holds for all values of it.
    """

    def __init__(self, problem: Problem, view: View, kind: int, memory: FloatArray, capacity: float) -> None:
        self.memory = memory
        self.classes = len(view.cost)
        self.inside = view.cost[:, kind]
        others = np.delete(view.cost, kind, axis=1)
        self.outside = others.min(axis=1) if others.shape[1] else np.full(self.classes, math.inf)
        devices = len(view.kinds[kind])
        self.least = least_side(float(memory.sum()), capacity, devices) * (1.0 - 1e-12)
        self.room = float(problem.capacity[view.kinds[kind]].sum()) * (1.0 + 1e-9)
        self._tensors(problem, view, kind)
        self.made = 0

    def _tensors(self, problem: Problem, view: View, kind: int) -> None:
        tensor, own, reader = class_tensors(problem, view)
        used, row = np.unique(tensor, return_inverse=True)
        producer = np.zeros(len(used), np.int64)
        producer[row] = own
        apart = [k for k in range(len(view.kinds)) if k != kind]

        def seconds(a: list[int], b: list[int]) -> FloatArray:
            if not a or not b:  # there is no such place
                return np.full(len(used), math.inf)
            latency, rate = view.latency[np.ix_(a, b)].min(), view.rate[np.ix_(a, b)].min()
            return np.asarray(latency + problem.size[used] * rate)

        self.tensors = _Tensors(
            producer,
            seconds([kind], [kind]),
            seconds([kind], apart),
            seconds(apart, [kind]),
            row.astype(np.int64),
            reader.astype(np.int64),
        )
        self.never = np.isinf(self.inside)  # these are elsewhere
        t = self.tensors
        weight = np.bincount(t.producer, t.inside, self.classes)
        weight += np.bincount(t.reader, t.inside[t.tensor], self.classes)
        self.weight = np.where(self.never, 0.0, weight)
        if apart:
            self._neutralize()
        # What a class that is elsewhere needs is carried there, whoever else reads it.
        t = self.tensors
        self.sent = np.zeros(len(used), np.bool_)
        self.sent[t.tensor[self.never[t.reader]]] = True
        self.forced = np.bincount(producer[self.sent], t.out[self.sent], self.classes)

    def _neutralize(self) -> None:
        """Pay with transfers for what a class would gain elsewhere, as far as they suffice.

        Take S and T as one place, inside. A maximum flow of that problem (source: inside) says how: flow F from
        producer p by its tensor to reader r is a part of what the tensor costs if p is inside and r is not. Whatever
        the labels, [p inside, r elsewhere] >= [r elsewhere] - [p elsewhere], so F may be taken from the transfer and
        added to what r costs elsewhere, less at p; likewise flow from a reader to the producer is taken from the way
        back. Transfers between S and T are left as they are.
        """
        t, n, m = self.tensors, self.classes, len(self.tensors.producer)
        every, row, pairs = np.arange(n), np.arange(m), len(t.tensor)
        away, back, endless = n + row, n + m + row, np.full(pairs, math.inf)
        parts = [
            (np.full(n, -1), every, self.outside),
            (every, np.full(n, -2), self.inside),
            (t.producer, away, t.out),
            (back, t.producer, t.back),
            (away[t.tensor], t.reader, endless),
            (t.reader, back[t.tensor], endless),
        ]
        tail, head, capacity = (np.concatenate([part[i] for part in parts]) for i in range(3))
        cut = minimum_cut(Arcs(n + 2 * m, tail.astype(np.int64), head.astype(np.int64), capacity), flows=True)
        if math.isinf(cut.value):
            return
        assert cut.flow is not None
        into, outof, out, back_flow, *_ = np.split(cut.flow, np.cumsum([n, n, m, m, pairs]))
        gain = outof - into  # what came by transfers, less what left by them
        self.outside = np.where(np.isfinite(self.outside), self.outside + gain, self.outside)
        self.tensors = t._replace(out=np.maximum(t.out - out, 0.0), back=np.maximum(t.back - back_flow, 0.0))

    def best(
        self, fixed: Labels, price: tuple[float, float, float], watch: BoolArray
    ) -> tuple[float, Labels]:
        """The least cost of all labellings that keep to ``fixed``, less what the prices can add to it; and labels.

        price : seconds per byte that S, and T, lack of ``least``, and that both together have too much.
        watch : (m,) True where a tensor is watched at the border of S.
        """
        self.made += 1
        short_s, short_t, full = price
        m = self.memory
        cost = np.stack(
            [
                self.inside + self.forced + (full - short_s) * m,
                self.outside - (short_s + short_t) * m,
                self.inside + self.forced + (full - short_t) * m,
            ],
            axis=1,
        )
        for label in (S, ELSEWHERE, T):
            cost[(fixed != FREE) & (fixed != label), label] = math.inf
        shift = cost.min(axis=1)
        if np.isinf(shift).any():
            return math.inf, fixed
        cost -= shift[:, None]
        cut = minimum_cut(self._network(cost, watch))
        b = cut.source_side[self.classes : 2 * self.classes]
        a = cut.source_side[: self.classes]
        labels = np.where(b, T, np.where(a, ELSEWHERE, S)).astype(np.int8)
        value = cut.value + float(shift.sum()) + (short_s + short_t) * self.least - full * self.room
        size = float(np.abs(shift).sum()) + (short_s + short_t) * self.least + full * self.room + cut.value
        return value - 1e-12 * size, labels

    def _network(self, cost: FloatArray, watch: BoolArray) -> Arcs:
        n, t = self.classes, self.tensors
        every = np.arange(n)
        parts = [
            (np.full(n, -1), every, cost[:, S]),
            (every, n + every, cost[:, ELSEWHERE]),
            (n + every, np.full(n, -2), cost[:, T]),
            (n + every, every, np.full(n, math.inf)),
        ]
        nodes = 2 * n
        into_s, into_t, out_of_s, out_of_t = self._charges(watch)
        for weight, first, leaving in (
            (into_s, 0, False),  # A of the producer at the source, A of some reader at the sink
            (into_t, n, True),  # B of some reader at the source, B of the producer at the sink
            (out_of_s, 0, True),  # A of some reader at the source, A of the producer at the sink
            (out_of_t, n, False),
        ):
            rows = np.flatnonzero(weight > 0)
            if not len(rows):
                continue
            aux = np.full(len(t.producer), -1, np.int64)
            aux[rows] = nodes + np.arange(len(rows))
            nodes += len(rows)
            pair = np.flatnonzero(aux[t.tensor] >= 0)
            one, other = first + t.producer[rows], aux[rows]
            link, reader = aux[t.tensor[pair]], first + t.reader[pair]
            endless = np.full(len(pair), math.inf)
            if leaving:
                parts += [(other, one, weight[rows]), (reader, link, endless)]
            else:
                parts += [(one, other, weight[rows]), (link, reader, endless)]
        tail, head, capacity = (np.concatenate([part[i] for part in parts]) for i in range(3))
        keep = capacity > 0
        return Arcs(nodes, tail[keep].astype(np.int64), head[keep].astype(np.int64), capacity[keep])

    def _charges(self, watch: BoolArray) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray]:
        """(m,) what a tensor pays for crossing into S, into T, out of S, out of T.

        Into T and out of S together at most what S to T costs, and so on; out of either at most what it costs to go
        elsewhere, into either what it costs from there. Where the way elsewhere is the cheaper one, the other border
        is charged the rest.
        """
        t = self.tensors
        out, into = np.minimum(t.inside, t.out), np.minimum(t.inside, t.back)
        rest_out, rest_into = np.minimum(t.inside - into, t.out), np.minimum(t.inside - out, t.back)
        charges = [
            np.where(watch, into, rest_into),
            np.where(watch, rest_into, into),
            np.where(watch, out, rest_out),
            np.where(watch, rest_out, out),
        ]
        away = self.never[t.producer]
        for i in (0, 1):
            charges[i] = np.where(away, t.back, np.where(self.sent, into, charges[i]))
            charges[i + 2] = np.where(away | self.sent, 0.0, charges[i + 2])
        return charges[0], charges[1], charges[2], charges[3]


class _Solved(NamedTuple):
    """A node whose prices have been looked for: its bound, what is fixed, which borders are watched, and the labels
    just below and above the best price."""

    bound: float
    fixed: Labels
    watch: BoolArray
    low: Labels
    high: Labels


class _Tree:
    """Branch and bound over the classes that are fixed, the least bound first."""

    def __init__(
        self, labelling: _Labelling, target: Callable[[], float], over: Callable[[], bool], cuts: int
    ) -> None:
        self.labelling, self.target, self._over, self._cuts = labelling, target, over, cuts
        self._full = 0.0

    def over(self) -> bool:
        return self._over() or self.labelling.made >= self._cuts

    def bounds(self) -> Iterator[float]:
        """The bound after each step that raised it."""
        free = np.full(self.labelling.classes, FREE, np.int8)
        watch = np.ones(len(self.labelling.tensors.producer), np.bool_)
        root = self._overfull(free, watch)
        number = itertools.count()
        heap = [(root.bound, next(number), root)]
        best = root.bound
        yield best
        while heap[0][0] < self.target() and not self.over():
            _, _, node = heapq.heappop(heap)
            c = self._branch(node)
            if c < 0:
                return
            # S and T may be exchanged as long as nothing tells them apart.
            labels = (S, ELSEWHERE) if (node.fixed == FREE).all() else (S, T, ELSEWHERE)
            for label in labels:
                if self.over():
                    return
                fixed = node.fixed.copy()
                fixed[c] = label
                child = self._short(fixed, node.watch, node.bound)
                heapq.heappush(heap, (child.bound, next(number), child))
            if heap[0][0] > best:
                best = heap[0][0]
                yield best

    def _branch(self, node: _Solved) -> int:
        """The class to fix next, -1 if all are.

        Among those that the two labellings of the node disagree about: one that can neither be cut off nor go
        elsewhere cheaply.
        """
        labelling = self.labelling
        free = node.fixed == FREE
        unsure = free & (node.low != node.high)
        if not unsure.any():
            unsure = free
        if not unsure.any():
            return -1
        loss = np.where(
            labelling.never, 0.0, labelling.outside - np.where(labelling.never, 0.0, labelling.inside)
        )
        return int(np.where(unsure, np.minimum(labelling.weight, np.maximum(loss, 0.0)), -1.0).argmax())

    # -- prices ----------------------------------------------------------------------------------------------

    def _overfull(self, fixed: Labels, watch: BoolArray) -> _Solved:
        """The root, with a price for what the devices of the kind cannot hold together; it is kept for all nodes."""
        memory, room = self.labelling.memory, self.labelling.room

        def slope(labels: Labels) -> float:
            return float(memory[labels != ELSEWHERE].sum()) - room

        root = self._ascend(fixed, watch, -math.inf, lambda price: (0.0, 0.0, price), slope)
        self._full = self._best_price
        return root

    def _short(self, fixed: Labels, watch: BoolArray, known: float) -> _Solved:
        """A node, with a price for what the emptier side lacks."""
        labelling = self.labelling
        _, labels = start = labelling.best(fixed, (0.0, 0.0, self._full), watch)
        side = S if self._lack(labels, S) > self._lack(labels, T) else T

        def price(p: float) -> tuple[float, float, float]:
            return (p, 0.0, self._full) if side == S else (0.0, p, self._full)

        return self._ascend(fixed, watch, known, price, lambda found: self._lack(found, side), start)

    def _lack(self, labels: Labels, side: int) -> float:
        """Bytes."""
        memory = self.labelling.memory
        return self.labelling.least - float(memory[(labels == side) | (labels == ELSEWHERE)].sum())

    def _ascend(
        self,
        fixed: Labels,
        watch: BoolArray,
        known: float,
        prices: Callable[[float], tuple[float, float, float]],
        slope: Callable[[Labels], float],
        start: tuple[float, Labels] | None = None,
    ) -> _Solved:
        """The best of some values of one price: a concave function of it, by its tangents (Kelley 1960).

        The watch follows the labels, so that the function changes a little in between; each value stands by itself.
        """
        labelling, target = self.labelling, self.target()
        value, labels = start if start is not None else labelling.best(fixed, prices(0.0), watch)
        self._best_price = 0.0
        if math.isinf(value):
            return _Solved(math.inf, fixed, watch, labels, labels)
        bound, seen, low, high = value, watch, labels, labels
        left = (0.0, value, slope(labels))
        right: tuple[float, float, float] | None = None
        price = 0.0
        for _ in range(PRICES):
            if bound >= target or left[2] <= 0 or self.over():
                break
            if right is None:
                wanted = min(max(target - bound, 1e-3 * abs(bound)), 0.05 * abs(bound))
                price = max(2.0 * price, 0.4 * wanted / left[2])
            else:
                price = (right[1] - left[1] + left[2] * left[0] - right[2] * right[0]) / (left[2] - right[2])
                if left[1] + left[2] * (price - left[0]) <= bound + 1e-5 * abs(bound):
                    break
            watch = self._watched(labels, watch)
            value, labels = labelling.best(fixed, prices(price), watch)
            if value > bound:
                bound, seen, self._best_price = value, watch, price
            tangent = (price, value, slope(labels))
            if tangent[2] > 0:
                left, low = tangent, labels
            else:
                right, high = tangent, labels
        return _Solved(max(bound, known), fixed, seen, low, high)

    def _watched(self, labels: Labels, watch: BoolArray) -> BoolArray:
        """Watch the border of the side on which the producer is."""
        at = labels[self.labelling.tensors.producer]
        return np.where(at == S, True, np.where(at == T, False, watch))
