"""More heavy classes than devices, with the transfers of whoever shares: a bound on ``pipeline`` by minimum cuts.

The load of a device is the compute of what is placed there, and the transfers over its border; so the least load of a
device that runs given classes, whatever else is placed there or elsewhere, is a minimum cut. Suppose that a placement
costs less than v. Then no class is on a device where its own least load is v or more, and two classes whose least load
together is v or more do not share one. If more classes keep apart like that than there are devices for, there is no
such placement.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from loadmaster.arrays import FloatArray
from loadmaster.placers.cuts._cut_graph import Arcs, minimum_cut
from loadmaster.problem import Problem
from loadmaster.problem.bounds import View, class_tensors, each_has_its_own, view_of

__all__ = ["LeastLoads", "sharing_bound"]

Index = npt.NDArray[np.int64]
NONE: Index = np.zeros(0, np.int64)
MOST = 64
"""Classes that are looked at, those first that can load a device most."""
ROUNDS = 12
"""Values tried."""
CUTS = 2000
"""Minimum cuts, at most."""


def sharing_bound(
    problem: Problem, known: float, cost: float, over: Callable[[], bool] = lambda: False
) -> float:
    """The largest value that is ruled out between a bound ``known`` and the ``cost`` of a placement; else ``known``.

    For ``pipeline`` where transfers add to the load. Complexity: at most 2000 minimum cuts of a node per class and two
    per tensor, mostly a few or none: a cut is made only for classes whose own transfers could matter.
    """
    view = view_of(problem)
    if view is None or not math.isfinite(cost):
        return known
    loads = LeastLoads(problem, view)
    proved, refuted_not_below = known, cost
    value = cost
    for _ in range(ROUNDS):
        answer = _refuted(value, loads, view.number, lambda: over() or loads.made >= CUTS)
        if answer is None:
            break
        if answer:
            proved = value
        else:
            refuted_not_below = value
        if refuted_not_below - proved <= 1e-4 * cost:
            break
        value = 0.5 * (proved + refuted_not_below)
    return proved


def _refuted(value: float, loads: LeastLoads, number: FloatArray, over: Callable[[], bool]) -> bool | None:
    """Whether no placement costs less than ``value``; None if there was no time to tell."""
    kinds = range(len(number))
    heaviest = np.argsort(-np.where(np.isfinite(loads.alone), loads.alone, 0.0).max(axis=1), kind="stable")
    chosen: list[int] = []
    possible: list[list[bool]] = []
    for c in heaviest[:MOST].tolist():
        may = []
        for k in kinds:
            if over():
                return None
            may.append(loads.below(k, (c,), value))
        if not any(may):
            return True
        apart = True
        for other, its in zip(chosen, possible, strict=True):
            for k in kinds:
                if apart and may[k] and its[k]:
                    if over():
                        return None
                    apart = not loads.below(k, (other, c), value)
            if not apart:
                break
        if apart:
            chosen.append(c)
            possible.append(may)
            if len(chosen) > int(number.sum()) or not each_has_its_own(np.array(possible), number):
                return True
    return False


class LeastLoads:
    """The least load of a device of a kind that runs given classes.

    alone : (C, K) the load if nothing else is there; infinite where a class may not be.
    """

    def __init__(self, problem: Problem, view: View) -> None:
        self._cost = view.cost
        self.made = 0
        self._found: dict[tuple[int, tuple[int, ...]], float] = {}
        tensor, own, reader = class_tensors(problem, view)
        used, row = np.unique(tensor, return_inverse=True)
        self._row, self._reader = row.astype(np.int64), reader.astype(np.int64)
        self._producer = np.zeros(len(used), np.int64)
        self._producer[row] = own
        size = problem.size[used]
        self._send = [problem.send_latency[k].min() + size * problem.send_rate[k].min() for k in view.kinds]
        self._receive = [
            problem.recv_latency[k].min() + size * problem.recv_rate[k].min() for k in view.kinds
        ]
        self.alone = view.cost.copy()
        classes = len(view.cost)
        for k in range(len(view.kinds)):
            self.alone[:, k] += np.bincount(self._producer, self._send[k], classes)
            self.alone[:, k] += np.bincount(self._reader, self._receive[k][self._row], classes)

    def below(self, kind: int, classes: tuple[int, ...], value: float) -> bool:
        """Whether a device of the kind with these classes may have a load below ``value``; a cut only where needed."""
        some = list(classes)
        if float(self._cost[some, kind].sum()) >= value:
            return False
        if float(self.alone[some, kind].sum()) < value:
            return True
        return self.of(kind, classes) < value

    def of(self, kind: int, classes: tuple[int, ...]) -> float:
        """min over the sets that contain the classes of compute and transfers: a minimum cut, the source's side."""
        key = (kind, tuple(sorted(classes)))
        if key not in self._found:
            self.made += 1
            self._found[key] = minimum_cut(self.network(kind, np.array(classes, np.int64), NONE)).value
        return self._found[key]

    def network(self, kind: int, inside: Index, outside: Index, gain: FloatArray | None = None) -> Arcs:
        """The network whose cuts are sets with the classes ``inside`` and without those ``outside``; what a set costs
        is its load and the ``gain`` (C,) of all classes that are not in it."""
        n, m, pairs = len(self._cost), len(self._producer), len(self._row)
        every, row = np.arange(n), np.arange(m)
        sent, received, endless = n + row, n + m + row, np.full(pairs, math.inf)
        parts = [
            (every, np.full(n, -2), self._cost[:, kind]),
            (np.full(len(inside), -1), inside, np.full(len(inside), math.inf)),
            (outside, np.full(len(outside), -2), np.full(len(outside), math.inf)),
            (self._producer, sent, self._send[kind]),  # the producer is inside, some reader is not
            (sent[self._row], self._reader, endless),
            (received, self._producer, self._receive[kind]),  # some reader is inside, the producer is not
            (self._reader, received[self._row], endless),
        ]
        if gain is not None:
            parts.append((np.full(n, -1), every, gain))
        tail, head, capacity = (np.concatenate([part[i] for part in parts]) for i in range(3))
        keep = capacity > 0
        return Arcs(n + 2 * m, tail[keep].astype(np.int64), head[keep].astype(np.int64), capacity[keep])

    def prices(self, kind: int, weight: float, elsewhere: FloatArray) -> FloatArray:
        """(C,) prices with π(S) <= ``weight`` · load(S) for every set on the kind, and π_c <= ``elsewhere[c]``.

        Their sum is the largest possible. They are what a maximum flow takes from the source, to which a class is tied
        by ``elsewhere``: what enters a set S leaves it as compute, or over its border as transfers.
        """
        arcs = self.network(kind, NONE, NONE)
        n = len(self._cost)
        capacity = np.concatenate([elsewhere, weight * arcs.capacity])
        tail, head = (
            np.concatenate(ends) for ends in ((np.full(n, -1), arcs.tail), (np.arange(n), arcs.head))
        )
        cut = minimum_cut(Arcs(arcs.nodes, tail, head, capacity), flows=True)
        assert cut.flow is not None
        return cut.flow[:n]
