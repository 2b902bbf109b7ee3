"""Lower bounds: what no feasible placement can beat, whatever its ``order`` or ``call``.

Every bound is a relaxation of the problem's own execution model (``docs/bounds.md`` explains them to users):

- ``serial``: every op on its fastest device; the same with transfers, a Lagrangian dual of the labelling
  problem.
- ``concurrent``, ``offload``: the longest path over pairs (op, device), on which ops that must share a device
  queue; the load dual; both together over windows of the schedule.
- ``pipeline``: the load dual, with transfers where they add to the load; the largest colocation class.

The parameters of a bound (device weights, messages, windows) are searched for as long as that is cheap. Any
value of theirs gives a valid bound: stopping early costs tightness, never validity. Contiguity,
``max_calls`` and memory are relaxed, except that a class never goes where it alone does not fit. Devices
that are alike in every respect are one *kind* with a count; k, j, a and b below are kinds. An op which no
device may run (the problem is then infeasible) counts as free everywhere.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from numba import njit

from loadmaster.problem._model import Concurrent, Offload, Pipeline, Serial
from loadmaster.problem._problem import Problem

__all__ = ["Bound", "all_bounds", "lower_bound"]

IntArray = npt.NDArray[np.int32]
FloatArray = npt.NDArray[np.float64]
BoolArray = npt.NDArray[np.bool_]
Devices = npt.NDArray[np.intp]

EPS = 2.0**-52

CONE = 8
"""How many ancestors of an op are looked at for queueing; more hardly help."""


@dataclass(frozen=True)
class Bound:
    """No feasible placement costs less than ``value`` seconds; ``name`` says by which argument."""

    value: float
    name: str


def lower_bound(problem: Problem) -> Bound:
    """The best of :func:`all_bounds`; computed once per problem.

    >>> from loadmaster.graph import layered
    >>> from loadmaster.hardware import accelerators, roofline
    >>> graph, cluster = layered(20), accelerators(1, cpus=0)
    >>> problem = Problem.make(graph, cluster, Serial(), time=roofline(graph, cluster))
    >>> bool(np.isclose(lower_bound(problem).value, problem.time.sum()))
    True
    """
    return max(all_bounds(problem), key=lambda bound: bound.value)


def all_bounds(problem: Problem) -> tuple[Bound, ...]:
    """Every bound that applies to the problem's execution model and settings, simple ones first.

    Values are rounded towards zero by more than floating point can have added to them. Complexity: near
    linear in ops and edges; times are in ``docs/bounds.md``.
    """
    found: tuple[Bound, ...] | None = problem.__dict__.get("_bounds")
    if found is None:
        found = tuple(_rounded_down(problem, bound) for bound in _bounds(problem))
        problem.__dict__["_bounds"] = found
    return found


def _rounded_down(problem: Problem, bound: Bound) -> Bound:
    """Sums of non-negative numbers have a relative error below eps times the number of their terms."""
    slack = 2 * EPS * (2 * problem.n + problem.graph.edges + 2 * problem.devices + 32)
    return Bound(max(0.0, bound.value * (1.0 - slack)), bound.name)


def _bounds(problem: Problem) -> list[Bound]:
    view = _view(problem)
    if view is None:
        return [Bound(0.0, "nothing to run")]
    match problem.model:
        case Serial():
            return _serial_bounds(problem, view)
        case Pipeline():
            return _pipeline_bounds(problem, view)
        case Concurrent() | Offload():
            return _schedule_bounds(problem, view)
    raise TypeError(f"{problem.model!r} is not an execution model")


# -- the problem as bounds see it ---------------------------------------------------------------------------


class _View(NamedTuple):
    """A problem with like devices taken together: n ops, C colocation classes, K kinds of devices.

    of : (n,) class of each op; every class has a member.
    time : (n, K) seconds, infinite where the op's class may not go.
    cost : (C, K) seconds of a whole class.
    number : (K,) devices of each kind.
    kinds : the devices of each kind.
    latency, rate : (K, K) the least of any link from one kind to another; on the diagonal between two devices
        of the kind (latency infinite where there is only one).
    """

    of: IntArray
    time: FloatArray
    cost: FloatArray
    number: FloatArray
    kinds: list[Devices]
    latency: FloatArray
    rate: FloatArray


def _view(problem: Problem) -> _View | None:
    """None where there is no op, or none that any device may run."""
    allowed = (problem.class_allowed & _fits(problem))[problem.class_of]
    devices = np.flatnonzero(allowed.any(axis=0))
    if not len(devices):
        return None
    time = np.where(allowed, problem.time, math.inf)
    time[~allowed.any(axis=1)] = 0.0
    latency, rate = _links(problem)
    kinds = _kinds(problem, time, latency, rate, devices)
    time = np.ascontiguousarray(time[:, [kind[0] for kind in kinds]])
    of = np.unique(problem.class_of, return_inverse=True)[1].astype(np.int32)
    return _View(
        of=of,
        time=time,
        cost=_class_sums(of, time),
        number=np.array([float(len(kind)) for kind in kinds]),
        kinds=kinds,
        latency=_between(latency, kinds, math.inf),
        rate=_between(rate, kinds, 0.0),
    )


def _fits(problem: Problem) -> BoolArray:
    """(classes, D) False where the class alone takes more memory than there is."""
    peak = isinstance(problem.model, Concurrent) and problem.model.memory == "peak"
    least = problem.resident if peak else problem.memory
    weight = np.bincount(problem.class_of, least, problem.classes)
    return np.asarray(weight[:, None] <= problem.capacity * (1.0 + 1e-9))


def _class_sums(of: IntArray, time: FloatArray) -> FloatArray:
    """(C, K) the (n, K) times added up by class."""
    return np.stack([np.bincount(of, column) for column in time.T], axis=1)


def _links(problem: Problem) -> tuple[FloatArray, FloatArray]:
    """(D, D) latency and rate of a transfer from d to e, through the host where the model says so."""
    if isinstance(problem.model, (Serial, Concurrent)):
        return problem.latency, problem.rate
    pays = ~problem.pool if isinstance(problem.model, Offload) else np.ones(problem.devices, np.bool_)
    latency = (pays * problem.send_latency)[:, None] + (pays * problem.recv_latency)[None, :]
    return latency, (pays * problem.send_rate)[:, None] + (pays * problem.recv_rate)[None, :]


def _kinds(
    problem: Problem, time: FloatArray, latency: FloatArray, rate: FloatArray, devices: Devices
) -> list[Devices]:
    """Devices with equal times, and equal links unless there are too many devices to tell links apart."""
    groups: dict[tuple[bytes, bool], list[int]] = {}
    for d in devices.tolist():
        groups.setdefault((time[:, d].tobytes(), bool(problem.pool[d])), []).append(d)
    kinds = [np.array(group, np.intp) for group in groups.values()]
    alike = all(
        np.array_equal(_between(table, kinds, 0.0), -_between(-table, kinds, 0.0))
        for table in (latency, rate)
    )
    return kinds if alike or len(devices) > 16 else [np.array([d], np.intp) for d in devices.tolist()]


def _between(table: FloatArray, kinds: list[Devices], alone: float) -> FloatArray:
    """(K, K) the least entry of a (D, D) table between two devices of these kinds, else ``alone``."""
    order = np.concatenate(kinds)
    first = np.cumsum([0, *(len(kind) for kind in kinds[:-1])])
    apart = np.where(np.eye(len(table), dtype=bool), math.inf, table)[np.ix_(order, order)]
    least = np.minimum.reduceat(np.minimum.reduceat(apart, first, axis=0), first, axis=1)
    return np.where(np.isinf(least), alone, least)


class _Arcs(NamedTuple):
    """Pairs of nodes with tensors between them; bringing these over takes number * latency + size * rate."""

    tail: IntArray
    head: IntArray
    number: FloatArray
    size: FloatArray

    @staticmethod
    def merge(nodes: int, tail: IntArray, head: IntArray, number: FloatArray, size: FloatArray) -> _Arcs:
        """One arc for each pair, which carries all that is between the two."""
        key, row = np.unique(tail.astype(np.int64) * nodes + head, return_inverse=True)
        return _Arcs(
            (key // nodes).astype(np.int32),
            (key % nodes).astype(np.int32),
            np.bincount(row, number, len(key)).astype(np.float64),
            np.bincount(row, number * size, len(key)).astype(np.float64),
        )

    def reversed(self) -> _Arcs:
        return _Arcs(self.head, self.tail, self.number, self.size)

    def into(self, nodes: int) -> tuple[IntArray, IntArray, FloatArray, FloatArray]:
        """CSR node -> arcs that end there: (ptr, tail, number, size)."""
        order = np.argsort(self.head, kind="stable")
        return _ptr(self.head, nodes), self.tail[order], self.number[order], self.size[order]


def _ptr(row: IntArray, rows: int) -> IntArray:
    """Row starts of a CSR whose entries have these rows."""
    ptr = np.zeros(rows + 1, np.int32)
    np.cumsum(np.bincount(row, minlength=rows), out=ptr[1:])
    return ptr


def _class_tensors(problem: Problem, view: _View) -> tuple[IntArray, IntArray, IntArray]:
    """The distinct pairs of a tensor and another class that reads it: (tensor, its own class, that class)."""
    graph, of, classes = problem.graph, view.of, len(view.cost)
    tensor, reader = graph.edge_tensor, of[graph.consumer_op]
    if classes < problem.n:
        key = np.unique(tensor.astype(np.int64) * classes + reader)
        tensor, reader = (key // classes).astype(np.int32), (key % classes).astype(np.int32)
    own = of[graph.tensor_producer[tensor]]
    away = own != reader
    return tensor[away], own[away], reader[away]


# -- serial -------------------------------------------------------------------------------------------------


def _serial_bounds(problem: Problem, view: _View) -> list[Bound]:
    """Every class on its fastest device; the same with the transfers that this causes, or avoids."""
    fastest = float(view.cost.min(axis=1).sum())
    dual = _transfer_dual(problem, view, view.cost, _Links.of(view.latency, view.rate))
    return [Bound(fastest, "fastest devices"), Bound(max(dual, fastest), "fastest devices and transfers")]


class _Links(NamedTuple):
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
    def of(latency: FloatArray, rate: FloatArray) -> _Links:
        apart = ~np.eye(len(rate), dtype=bool)
        links = np.where(apart, latency, 0.0), np.where(apart, rate, 0.0)
        most = np.array([[table.max()] * len(rate) for table in links])
        additive = all(bool((table[apart] == table.max()).all()) for table in links)
        return _Links(*links, most, np.zeros_like(most), additive)

    @staticmethod
    def sums(source: FloatArray, target: FloatArray) -> _Links:
        """From (2, K) latencies and rates of the two ends."""
        latency, rate = (a[:, None] + b[None, :] for a, b in zip(source, target, strict=True))
        return _Links.of(latency, rate)._replace(source=source, target=target, additive=True)


def _transfer_dual(problem: Problem, view: _View, unary: FloatArray, links: _Links) -> float:
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
    tensor, own, reader = _class_tensors(problem, view)
    classes, kinds = unary.shape
    if not len(tensor) or kinds == 1:
        return float(unary.min(axis=1).sum())
    share = 1.0 / np.bincount(tensor)[tensor]
    arcs = _Arcs.merge(classes, own, reader, share, problem.size[tensor])
    sweeps = min(40, int(3e7 / (len(arcs.tail) * (4 * kinds if links.additive else kinds**2))))
    if sweeps == 0:
        return float(unary.min(axis=1).sum())
    place = np.full(classes, problem.n, np.int32)
    np.minimum.at(place, view.of, problem.graph.position)
    order = np.argsort(place, kind="stable").astype(np.int32)
    place[order] = np.arange(classes, dtype=np.int32)
    ends = np.concatenate([arcs.tail, arcs.head])
    incident = (np.argsort(ends, kind="stable") % len(arcs.tail)).astype(np.int32)
    return float(_sweep(unary, arcs, links, order, place, _ptr(ends, classes), incident, sweeps))


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


# -- the load dual ------------------------------------------------------------------------------------------


def _load_dual(
    cost: FloatArray, number: FloatArray, start: FloatArray | None = None
) -> tuple[float, FloatArray]:
    """max over weights w >= 0, Σ_k number_k w_k = 1, of Σ_c min_k w_k cost[c, k]; and the (K,) weights found.

    The largest load is at least any weighted mean of all loads, to which class c adds at least its smallest
    term. The maximum is the LP relaxation of unrelated machines (Lenstra, Shmoys, Tardos 1990).
    Multiplicative weights come close, cutting planes finish where that is cheap; all weights are valid.
    """
    classes, kinds = cost.shape
    rounds = min(100, 20 + int(1e7 / max(cost.size, 1)))
    if start is not None:
        rounds //= 4
    else:
        known = np.isfinite(cost)
        mean = np.where(known, cost, 0.0).sum(axis=0) / np.maximum(known.sum(axis=0), 1)
        speed = 1.0 / np.maximum(mean, mean.max() * 1e-9) if mean.max() > 0 else np.ones(kinds)
        start = speed / (speed * number).sum()
    if classes == 0 or kinds == 1:
        return float(np.where(np.isfinite(cost), cost, 0.0).sum() / number.sum()), start
    share, weight = np.ascontiguousarray(cost / number), start * number
    if kinds > 4:
        value, weight = _multiplicative(share, weight, rounds)
    if kinds <= 4 or cost.size <= 2000:
        value, weight = _kelley(share, weight, min(20 * kinds, 200))
    return float(value), weight / number


@njit(cache=True, nogil=True)
def _cheapest(cost, weight, load):  # type: ignore[no-untyped-def]
    """Σ_c min_k weight_k cost[c, k]; ``load`` becomes the (K,) sums of cost of the classes that choose k."""
    load[:] = 0.0
    value = 0.0
    for c in range(cost.shape[0]):
        best, where = math.inf, -1
        for k in range(cost.shape[1]):
            if cost[c, k] < math.inf and weight[k] * cost[c, k] < best:
                best, where = weight[k] * cost[c, k], k
        if where >= 0:
            value += best
            load[where] += cost[c, where]
    return value


@njit(cache=True, nogil=True)
def _multiplicative(cost, weight, rounds):  # type: ignore[no-untyped-def]
    """Ascend :func:`_cheapest` over the simplex: kinds above the mean load gain weight; (value, weight)."""
    load = np.empty(len(weight))
    weight = weight / weight.sum()
    best, found = -1.0, weight.copy()
    for i in range(rounds):
        value = _cheapest(cost, weight, load)
        if value > best:
            best = value
            found[:] = weight
        if not value > 0.0:
            break
        for k in range(len(weight)):
            weight[k] *= math.exp(0.3 / math.sqrt(1.0 + i) * min(load[k] / value - 1.0, 3.0))
        weight /= weight.sum()
    return best, found


@njit(cache=True, nogil=True)
def _kelley(cost, weight, rounds):  # type: ignore[no-untyped-def]
    """Maximise the concave, piecewise linear :func:`_cheapest` over the simplex; (value, weight).

    Each evaluation gives a plane, value <= load · weight. The best weights under the planes so far solve a
    matrix game, kept as the LP max Σ y, Σ_i y_i load_i <= 1, y >= 0 in revised simplex form: the ``inverse``
    of the basis, the ``level`` and ``worth`` of its variables and the ``price`` of its rows. A new plane is
    a new column. Every second query lies halfway to the best weights known, which calms the method. (J. E.
    Kelley, J. SIAM 1960.)
    """
    kinds = cost.shape[1]
    load = np.empty(kinds)
    best = _cheapest(cost, weight, load)
    found = weight.copy()
    scale = load.max()
    if not scale > 0.0:
        return best, found
    plane = np.empty((rounds, kinds))
    inverse = np.eye(kinds)
    level = np.ones(kinds)
    worth = np.zeros(kinds)
    price = np.zeros(kinds)
    step = np.empty(kinds)
    for i in range(rounds):
        # One is added to every entry: that shifts the value of the game, and bounds the LP.
        plane[i] = load / scale + 1.0
        for _ in range(20 * kinds):
            enter, gain = -1, 1e-11
            for j in range(i + 1 + kinds):
                reduced = 1.0 - np.dot(price, plane[j]) if j <= i else -price[j - i - 1]
                if reduced > gain:
                    enter, gain = j, reduced
            if enter < 0:
                break
            for k in range(kinds):
                step[k] = np.dot(inverse[k], plane[enter]) if enter <= i else inverse[k, enter - i - 1]
            leave, ratio = -1, math.inf
            for k in range(kinds):
                if step[k] > 1e-12 and level[k] / step[k] < ratio:
                    leave, ratio = k, level[k] / step[k]
            if leave < 0:
                break
            inverse[leave] /= step[leave]
            level[leave] = ratio
            worth[leave] = 1.0 if enter <= i else 0.0
            price[:] = 0.0
            for k in range(kinds):
                if k != leave:
                    inverse[k] -= step[k] * inverse[leave]
                    level[k] = max(0.0, level[k] - step[k] * ratio)
                price += worth[k] * inverse[k]
        weight = np.maximum(price, 0.0)
        total = weight.sum()
        if not total > 0.0 or (1.0 / total - 1.0) * scale <= best * (1.0 + 1e-8):
            break
        weight /= total
        if i % 2 == 1:
            weight = 0.5 * (weight + found)
        value = _cheapest(cost, weight, load)
        if value > best:
            best = value
            found[:] = weight
    return best, found


def _tightened(through: FloatArray, bound: Callable[[BoolArray], float], known: float) -> float:
    """The least T (within one part in 10³) that the following does not refute.

    A placement of cost T uses no pair (class, kind) that alone costs more than T, so it obeys any bound that
    holds without these pairs: a destructive bound (R. Klein, A. Scholl, EJOR 1999). What is left only
    changes where T passes an entry of ``through``; these are searched.

    Parameters
    ----------
    through : (C, K) a lower bound on the cost of every placement that puts class c on kind k.
    bound : a lower bound on the cost of every placement that uses only the given (C, K) pairs.
    known : a lower bound on the cost of every placement.
    """
    start = max(float(through.min(axis=1).max()), known)
    later = np.unique(through[np.isfinite(through) & (through > start)])
    edges = np.concatenate([[start], later, [math.inf]])
    # For T from edges[i] up to edges[i + 1] the same pairs are left. Below ``low`` all such intervals are
    # refuted; ``high`` is not, or is the last.
    low, high, reach, proven = 0, len(later), 1e-3, 0.0
    while low < high and edges[high] > edges[low] * (1.0 + 1e-3):
        probe = (low + high) // 2
        if high == len(later):
            probe = min(probe, max(low, int(np.searchsorted(edges, edges[low] * (1.0 + reach))) - 1))
            reach *= 4.0
        value = bound(through <= edges[probe])
        if value >= edges[probe + 1]:
            low = probe + 1
        else:
            high, proven = probe, value
    return max(float(edges[low]), proven if low == high else 0.0)


# -- pipeline -----------------------------------------------------------------------------------------------


def _pipeline_bounds(problem: Problem, view: _View) -> list[Bound]:
    """Loads: what no division of the work gets below, and what a single class brings wherever it goes.

    Compute is part of every load, so the dual of compute alone always holds, as do single classes with the
    transfers that they cannot avoid. ``"fw+bw"``, max_d FW_d + max_d BW_d, is at least max_d (FW_d + BW_d).
    """
    model = problem.model
    assert isinstance(model, Pipeline)
    forced = _forced_transfers(problem, view)
    through = view.cost + forced if model.comm == "sum" else np.maximum(view.cost, forced)
    flush = _Flush(problem, view) if model.objective == "fw+bw" else None
    weight: FloatArray | None = None

    def compute(left: BoolArray) -> float:
        nonlocal weight
        value, weight = _load_dual(np.where(left, view.cost, math.inf), view.number, weight)
        return value if flush is None else max(value, flush.bound(left))

    def loads(left: BoolArray) -> float:
        value = compute(left)
        if model.comm == "overlap":
            return value
        assert weight is not None
        unary = np.where(left, np.where(left, view.cost, 0.0) * weight, math.inf)
        return max(value, _transfer_dual(problem, view, unary, _weighted_links(problem, view, weight)))

    everything = np.isfinite(through)
    bounds = [
        Bound(float(through.min(axis=1).max()), "largest op"),
        Bound(_load_dual(view.cost, view.number)[0], "load dual"),
    ]
    if flush is not None:
        bounds.append(Bound(compute(everything), "forward and backward"))
    if model.comm == "sum":
        bounds.append(Bound(loads(everything), "load dual and transfers"))
    best = max(bound.value for bound in bounds)
    return [*bounds, Bound(_tightened(through, loads, best), "pruned load dual")]


def _forced_transfers(problem: Problem, view: _View) -> FloatArray:
    """(C, K) seconds that class c on kind k sends to and receives from classes that may not be on k."""
    tensor, own, reader = _class_tensors(problem, view)
    forced = np.zeros_like(view.cost)
    for k, kind in enumerate(view.kinds):
        apart = np.isinf(view.cost[:, k])
        taken = apart[own]
        receive = (
            problem.recv_latency[kind].min() + problem.size[tensor[taken]] * problem.recv_rate[kind].min()
        )
        forced[:, k] += np.bincount(reader[taken], receive, len(forced))
        given = np.unique(tensor[apart[reader]])
        send = problem.send_latency[kind].min() + problem.size[given] * problem.send_rate[kind].min()
        forced[:, k] += np.bincount(view.of[problem.graph.tensor_producer[given]], send, len(forced))
    return forced


def _weighted_links(problem: Problem, view: _View, weight: FloatArray) -> _Links:
    """What a transfer adds to the weighted sum of all loads."""

    def least(*tables: FloatArray) -> FloatArray:
        return weight * np.array([[table[kind].min() for kind in view.kinds] for table in tables])

    return _Links.sums(
        least(problem.send_latency, problem.send_rate), least(problem.recv_latency, problem.recv_rate)
    )


class _Flush:
    """max_d FW_d + max_d BW_d: forward and backward apart, with weights of their own."""

    def __init__(self, problem: Problem, view: _View) -> None:
        self.number = view.number
        self.cost = []
        for side in (~problem.graph.backward, problem.graph.backward):
            time = np.where(side[:, None] | np.isinf(view.time), view.time, 0.0)
            self.cost.append(_class_sums(view.of, time))
        self.weight: list[FloatArray | None] = [None, None]

    def bound(self, left: BoolArray) -> float:
        """The sum of a bound on each side, or both duals under one minimum per class: more than their sum.

        Σ_c min_k (w_k FW_ck + u_k BW_ck) holds for any two sets of weights w and u, as each mean is at most
        its max.
        """
        apart, joint = 0.0, np.zeros_like(left, np.float64)
        for i in range(2):
            cost = np.where(left, self.cost[i], math.inf)
            value, weight = _load_dual(cost, self.number, self.weight[i])
            self.weight[i] = weight
            apart += max(value, float(cost.min(axis=1).max()))
            joint += np.where(left, weight * np.where(left, cost, 0.0), math.inf)
        return max(apart, float(joint.min(axis=1).sum()))


# -- concurrent and offload ---------------------------------------------------------------------------------


def _schedule_bounds(problem: Problem, view: _View) -> list[Bound]:
    """Paths and loads, apart and together.

    All of it rests on three facts: an op takes its time, it starts after its inputs have been computed and
    brought over, and a device runs one op at a time. They hold for ``offload`` too, except that the pool runs
    any number of ops: picture a call as fetching for and running its ops one by one in topological order,
    then sending. That takes as long as the call does, and nothing outside can tell the difference.
    """
    pool = np.array(
        [isinstance(problem.model, Offload) and bool(problem.pool[kind[0]]) for kind in view.kinds]
    )
    busy = ~pool
    arcs = _op_arcs(problem)
    order = problem.graph.topological_order.copy()
    head = _placed_path(view, order, arcs, view.latency, view.rate, busy)
    tail = _placed_path(view, order[::-1].copy(), arcs.reversed(), view.latency.T, view.rate.T, busy)
    through = _class_extremes(view, head + view.time + tail, np.maximum, 0.0)
    bounds = [
        Bound(_critical_path(view, order, arcs), "critical path"),
        Bound(float(through.min(axis=1).max()), "placed critical path"),
    ]
    if len(view.cost) < problem.n:
        # One device runs the class, op after op: after the earliest of their heads, before the shortest tail.
        before = _class_extremes(view, head, np.minimum, math.inf)
        behind = _class_extremes(view, tail, np.minimum, math.inf)
        through = np.maximum(through, np.where(pool, 0.0, before + view.cost + behind))
        bounds.append(Bound(float(through.min(axis=1).max()), "largest class"))
    if not busy.any():
        return bounds
    number = view.number[busy]
    weights: list[FloatArray | None] = [None, None]

    def loads(left: BoolArray) -> float:
        """The load dual of what the pool does not take."""
        rows = ~np.logical_or.reduce(left[:, pool], axis=1)
        cost = np.where(left, view.cost, math.inf)[rows][:, busy]
        value, weights[0] = _load_dual(cost, number, weights[0])
        return value

    def windows(left: BoolArray) -> float:
        value = loads(left)
        assert weights[0] is not None
        rows = ~np.logical_or.reduce(left[:, pool], axis=1)[view.of]
        left = left[view.of[rows]]
        window, weights[1] = _windows(
            np.where(left, view.time[rows], math.inf)[:, busy],
            np.where(left, head[rows], math.inf).min(axis=1),
            np.where(left, tail[rows], math.inf).min(axis=1),
            number,
            weights[0] if weights[1] is None else weights[1],
        )
        return max(value, window)

    everything = np.isfinite(through)
    bounds.append(Bound(loads(everything), "load dual"))
    bounds.append(Bound(windows(everything), "windows"))
    best = max(bound.value for bound in bounds)
    return [*bounds, Bound(_tightened(through, windows, best), "pruned windows")]


def _class_extremes(view: _View, values: FloatArray, extreme: np.ufunc, start: float) -> FloatArray:
    """(C, K) the least or largest of the (n, K) values of each class."""
    if len(view.cost) == len(values):
        out = np.empty_like(values)
        out[view.of] = values
        return out
    out = np.full_like(view.cost, start)
    extreme.at(out, view.of, values)
    return out


def _op_arcs(problem: Problem) -> _Arcs:
    """Tensors of one op for another leave together and queue on the same way: their times add up."""
    graph = problem.graph
    tensor = graph.edge_tensor
    tail, ones = graph.tensor_producer[tensor], np.ones(len(tensor))
    return _Arcs.merge(problem.n, tail, graph.consumer_op, ones, problem.size[tensor])


def _critical_path(view: _View, order: IntArray, arcs: _Arcs) -> float:
    """The longest path with every op at its smallest time and no transfers."""
    time = view.time.min(axis=1, keepdims=True)
    none = np.zeros((1, 1))
    head = _starts(order, arcs.into(len(time)), time, (none, none, True), np.ones(1, np.bool_), view.of, 0)
    return float((head + time).max())


def _placed_path(
    view: _View, order: IntArray, arcs: _Arcs, latency: FloatArray, rate: FloatArray, busy: BoolArray
) -> FloatArray:
    """(n, K) seconds before which op v cannot start on kind k; of the reversed graph: that remain after it.

    Effort depends on size: queueing is looked at where it is cheap, and beyond 10⁸ combinations of arcs and
    kinds every transfer counts as the fastest one.
    """
    n, kinds = view.time.shape
    between = np.isfinite(latency)
    flat = not between.any() or bool(np.ptp(latency[between]) == 0 and np.ptp(rate[between]) == 0)
    if not flat and len(arcs.tail) * kinds**2 > 1e8:
        flat = True
        latency = np.where(between, latency[between].min(), math.inf)
        rate = np.where(between, rate[between].min(), 0.0)
    degree = len(arcs.tail) / n + 1.0
    work = degree * kinds * (kinds + 1.0) ** (1 if flat else 2)
    cone = min(CONE, int(min(2e3, 3e7 / n) / work))
    links = (np.ascontiguousarray(latency), np.ascontiguousarray(rate), flat)
    start: FloatArray = _starts(order, arcs.into(n), view.time, links, busy, view.of, cone)
    return start


@njit(cache=True, nogil=True)
def _starts(order, arcs, time, links, busy, class_of, cone):  # type: ignore[no-untyped-def]
    """(n, K) lower bounds on the start of every op on every kind: a longest path over pairs (op, kind).

    Op v on kind k waits for each of its predecessors u, wherever u is placed best for that: on the same
    device, or elsewhere and then for the transfer. Choosing a place of u for each reader anew is the
    relaxation. With ``cone`` > 0, :func:`_queue` then uses that ancestors which would come too late from
    elsewhere share the device of v.

    ``arcs`` = (ptr, op, number, size): the arcs into v are ptr[v]:ptr[v + 1] and come from op; ``links`` =
    (latency, rate, flat), where flat says that all links are alike; ``busy`` : (K,) runs one op at a time.
    """
    ptr, op, number, size = arcs
    latency, rate, flat = links
    n, kinds = time.shape
    start = np.full((n, kinds), math.inf)
    end = np.full((n, kinds), math.inf)
    first = np.empty(n)
    slot = np.full(n, -1, np.int64)
    seen = np.full(n, -1, np.int64)
    front = np.empty(n, np.int64)
    member = np.empty(cone + 1, np.int64)
    after = np.empty((cone + 2, kinds + 1))
    scratch = np.empty((2, cone + 1)), np.empty((2, cone + 1), np.int64)
    for v in order:
        for k in range(kinds):
            if time[v, k] == math.inf:
                continue
            begin = 0.0
            for i in range(ptr[v], ptr[v + 1]):
                u = op[i]
                best = end[u, k]
                if class_of[u] != class_of[v]:
                    if not flat:
                        for j in range(kinds):
                            if j != k:
                                link = number[i] * latency[j, k] + size[i] * rate[j, k]
                                best = min(best, end[u, j] + link)
                    elif kinds > 1:
                        best = min(best, first[u] + number[i] * latency[0, 1] + size[i] * rate[0, 1])
                begin = max(begin, best)
            start[v, k] = begin
        if cone > 0 and ptr[v + 1] > ptr[v]:
            made = _latest_ancestors(v, ptr, op, first, cone, member, slot, seen, front)
            for k in range(kinds):
                if busy[k] and time[v, k] < math.inf:
                    _delays(k, made, member, slot, arcs, time, links, class_of, after)
                    start[v, k] = _queue(
                        k, made, member, start, end, time, class_of, latency[k, k], after, scratch
                    )
            for i in range(made):
                slot[member[i]] = -1
        first[v] = math.inf
        for k in range(kinds):
            end[v, k] = start[v, k] + time[v, k]
            first[v] = min(first[v], end[v, k])
    return start


@njit(cache=True, nogil=True)
def _latest_ancestors(v, ptr, op, first, cone, member, slot, seen, front):  # type: ignore[no-untyped-def]
    """Fill ``member`` with v and up to ``cone`` ancestors, those that can end late first; how many there are.

    ``slot`` becomes the inverse of ``member``; ``first[u]`` is the earliest end of u; the rest is scratch.
    """
    member[0] = v
    slot[v] = 0
    made, waiting, c = 1, 0, v
    while True:
        for i in range(ptr[c], ptr[c + 1]):
            if seen[op[i]] != v:
                seen[op[i]] = v
                front[waiting] = op[i]
                waiting += 1
        if waiting == 0 or made > cone:
            return made
        pick = 0
        for i in range(1, waiting):
            if first[front[i]] > first[front[pick]]:
                pick = i
        c = front[pick]
        waiting -= 1
        front[pick] = front[waiting]
        member[made] = c
        slot[c] = made
        made += 1


@njit(cache=True, nogil=True)
def _delays(k, made, member, slot, arcs, time, links, class_of, after):  # type: ignore[no-untyped-def]
    """``after[x, a]``: the least time from the end of ancestor x at place a to the start of v on kind k.

    Place K is the very device of v, place a < K a device of kind a other than that. This is the longest path
    of :func:`_starts` again, backwards from v over the arcs between members. The last row is scratch.
    """
    ptr, op, number, size = arcs
    latency, rate, flat = links
    kinds = time.shape[1]
    other = min(kinds - 1, 1)
    onward = after[len(after) - 1]
    after[:made] = 0.0
    for c in range(made):
        w = member[c]
        least = math.inf
        for b in range(kinds + 1):
            onward[b] = time[w, b if b < kinds else k] + after[c, b] if c > 0 else math.inf
            if b == k and latency[k, k] == math.inf:
                onward[b] = math.inf
            elif b == kinds and c == 0:
                onward[b] = 0.0
            least = min(least, onward[b])
        for i in range(ptr[w], ptr[w + 1]):
            x = slot[op[i]]
            if x <= c:
                continue
            apart = class_of[op[i]] != class_of[w]
            away = least + number[i] * latency[0, other] + size[i] * rate[0, other]
            for a in range(kinds + 1):
                best = onward[a]
                if flat and apart:
                    best = min(best, away)
                elif apart:
                    source = a if a < kinds else k
                    for b in range(kinds + 1):
                        if b != a and onward[b] < best:
                            target = b if b < kinds else k
                            link = number[i] * latency[source, target] + size[i] * rate[source, target]
                            best = min(best, onward[b] + link)
                after[x, a] = max(after[x, a], best)


@njit(cache=True, nogil=True)
def _queue(k, made, member, start, end, time, class_of, inside, after, scratch):  # type: ignore[no-untyped-def]
    """The least start of v = ``member[0]`` on kind k before which the ancestors that share its device fit.

    If v starts at X, every ancestor whose results would come later than X from elsewhere (``away``) is on
    the device of v, where they run one after another: X is at least the earliest start of any of them plus
    their total time. The smaller X, the more of them. This is the argument of C. Papadimitriou and M.
    Yannakakis, "Towards an architecture-independent analysis of parallel algorithms", SIAM J. Comput. 1990,
    for unlike devices and links. ``inside`` is infinite where the kind has no second device.
    """
    here, away = scratch[0]
    rank, line = scratch[1]
    v, kinds = member[0], time.shape[1]
    least = start[v, k]
    for x in range(1, made):
        u = member[x]
        here[x] = end[u, k] + after[x, kinds]
        away[x] = math.inf
        if class_of[u] != class_of[v]:
            for a in range(kinds):
                if a != k or inside < math.inf:
                    away[x] = min(away[x], end[u, a] + after[x, a])
        least = max(least, min(here[x], away[x]))
    late = 0
    for x in range(1, made):
        if away[x] > least:
            y = late
            while y > 0 and away[rank[y - 1]] < away[x]:
                rank[y] = rank[y - 1]
                y -= 1
            rank[y] = x
            late += 1
    if late == 0:
        return least
    best, begin = away[rank[0]], least
    for i in range(late):
        # The first i + 1 by falling ``away`` are on the device of v; ``line`` has them by earliest start.
        u = member[rank[i]]
        begin = max(begin, here[rank[i]])
        y = i
        while y > 0 and start[line[y - 1], k] > start[u, k]:
            line[y] = line[y - 1]
            y -= 1
        line[y] = u
        total = 0.0
        for y in range(i, -1, -1):
            total += time[line[y], k]
            begin = max(begin, start[line[y], k] + total)
        following = away[rank[i + 1]] if i + 1 < late else least
        best = min(best, max(begin, following))
        if begin >= following:
            break
    return max(least, best)


# -- windows ------------------------------------------------------------------------------------------------


def _windows(
    time: FloatArray, head: FloatArray, tail: FloatArray, number: FloatArray, weight: FloatArray
) -> tuple[float, FloatArray]:
    """max over a, b of a + b + the load dual of the ops with head >= a and tail >= b; and the weights for it.

    These ops start after a and leave b to be done after each of them, and some device is busy with them for
    at least their load dual in between. For given weights the best window is found exactly; then the best
    weights for that window, and so on.
    """
    best, found = 0.0, weight
    for _ in range(3 if len(time) else 0):
        finite = np.isfinite(time)
        amount = np.where(finite, np.where(finite, time, 0.0) * weight, math.inf).min(axis=1)
        value, a, b = _best_window(head, tail, amount, np.argsort(-head), np.argsort(tail))
        inside = (head >= a) & (tail >= b)
        dual, weight = _load_dual(time[inside], number, weight)
        value = max(value, a + b + dual)
        if value <= best * (1.0 + 1e-4):
            break
        best, found = value, weight
    return best, found


@njit(cache=True, nogil=True)
def _best_window(head, tail, amount, by_head, by_tail):  # type: ignore[no-untyped-def]
    """max over a, b of a + b + Σ amount of the ops with head >= a and tail >= b: (value, a, b).

    Ops enter a tree over the tails as a falls. A node has the sum of its leaves and the best b + Σ from b on
    of its leaves, so that an entry takes O(log n).
    """
    n = len(head)
    width = 1
    while width < n:
        width *= 2
    total = np.zeros(2 * width)
    best = np.full(2 * width, -math.inf)
    leaf = np.empty(n, np.int64)
    for i in range(n):
        leaf[by_tail[i]] = width + i
    value, a = -math.inf, 0.0
    for v in by_head:
        i = leaf[v]
        total[i] = amount[v]
        best[i] = tail[v] + amount[v]
        while i > 1:
            i //= 2
            total[i] = total[2 * i] + total[2 * i + 1]
            best[i] = max(best[2 * i + 1], best[2 * i] + total[2 * i + 1])
        if head[v] + best[1] > value:
            value, a = head[v] + best[1], head[v]
    most, b, behind = -math.inf, 0.0, 0.0
    for i in range(n - 1, -1, -1):
        v = by_tail[i]
        if head[v] >= a:
            behind += amount[v]
            if tail[v] + behind > most:
                most, b = tail[v] + behind, tail[v]
    return value, a, b
