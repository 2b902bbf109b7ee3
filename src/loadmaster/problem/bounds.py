"""Lower bounds: what no feasible placement can beat, whatever its ``order`` or ``call``, under the problem's own model.

Every bound is a relaxation (``docs/bounds.md`` has the proofs for users):

- *serial*: every op on its fastest device; the same with transfers, by a Lagrangian dual of the labelling problem.
- *concurrent*, *offload*: the longest path through pairs (op, device) in which ops that must share a device queue up;
  the load dual; both together over windows of the schedule.
- *pipeline*: the load dual, with transfers where they add to the load; the largest colocation class.

The parameters of a bound (device weights, messages, windows) are only searched for as long as it is cheap: any value
of them gives a valid bound, so that stopping early costs tightness and never validity. Memory capacities, contiguity and
``max_calls`` are relaxed. Devices that are alike in every respect are one *kind* with a count; k below is a kind.
An op which no device may run (the problem is then infeasible) counts as free everywhere.
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

EPS = float(np.finfo(np.float64).eps)


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
    """Every bound that applies to the problem's execution model and settings.

    Values are rounded towards zero by more than floating point can have added to them. Complexity: near linear in
    ops and edges; about 5 ms for 1,000 ops and 0.5 s for 50,000.
    """
    found: tuple[Bound, ...] | None = problem.__dict__.get("_bounds")
    if found is None:
        found = tuple(_rounded_down(problem, bound) for bound in _bounds(problem))
        problem.__dict__["_bounds"] = found
    return found


def _rounded_down(problem: Problem, bound: Bound) -> Bound:
    """All sums are of non-negative numbers, so the relative error is below eps times the number of their terms."""
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


# -- the problem as bounds see it -------------------------------------------------------------------------------------


class _View(NamedTuple):
    """A problem with like devices taken together: n ops, C colocation classes, K kinds of devices.

    of : (n,) class of each op.
    time : (n, K) seconds, infinite where the op's class may not go.
    cost : (C, K) seconds of a whole class.
    count : (K,) devices of each kind.
    member : one array of device indices per kind.
    latency, rate : (K, K) the least of any link from one kind to another; on the diagonal between two devices of the
        kind (latency infinite where there is only one).
    """

    of: IntArray
    time: FloatArray
    cost: FloatArray
    count: FloatArray
    member: list[npt.NDArray[np.intp]]
    latency: FloatArray
    rate: FloatArray


def _view(problem: Problem) -> _View | None:
    """None where there is no op, or none that any device may run."""
    allowed = problem.class_allowed[problem.class_of]
    devices = np.flatnonzero(allowed.any(axis=0))
    if not len(devices):
        return None
    time = np.where(allowed, problem.time, math.inf)
    time[~allowed.any(axis=1)] = 0.0
    latency, rate = _links(problem)
    member = _kinds(problem, time, latency, rate, devices)
    time = np.ascontiguousarray(time[:, [kind[0] for kind in member]])
    # Classes without a member are left out.
    of = np.unique(problem.class_of, return_inverse=True)[1].astype(np.int32)
    return _View(
        of=of,
        time=time,
        cost=_class_sums(of, time),
        count=np.array([float(len(kind)) for kind in member]),
        member=member,
        latency=_between(latency, member, math.inf),
        rate=_between(rate, member, 0.0),
    )


def _class_sums(of: IntArray, time: FloatArray) -> FloatArray:
    """(C, K) the (n, K) times added up by class."""
    return np.stack([np.bincount(of, column) for column in time.T], axis=1)


def _links(problem: Problem) -> tuple[FloatArray, FloatArray]:
    """(D, D) latency and rate of what a transfer from d to e adds to a path (``pipeline``: to the loads)."""
    if isinstance(problem.model, (Serial, Concurrent)):
        return problem.latency, problem.rate
    pays = ~problem.pool if isinstance(problem.model, Offload) else np.ones(problem.devices, np.bool_)
    latency = (pays * problem.send_latency)[:, None] + (pays * problem.recv_latency)[None, :]
    return latency, (pays * problem.send_rate)[:, None] + (pays * problem.recv_rate)[None, :]


def _kinds(
    problem: Problem, time: FloatArray, latency: FloatArray, rate: FloatArray, devices: npt.NDArray[np.intp]
) -> list[npt.NDArray[np.intp]]:
    """Devices with equal times, and equal links unless there are too many devices to tell their links apart."""
    groups: dict[tuple[bytes, bool], list[int]] = {}
    for d in devices.tolist():
        groups.setdefault((time[:, d].tobytes(), bool(problem.pool[d])), []).append(d)
    kinds = [np.array(group, np.intp) for group in groups.values()]
    alike = all(
        np.array_equal(_between(table, kinds, 0.0), _between(table, kinds, 0.0, np.max))
        for table in (latency, rate)
    )
    return kinds if alike or len(devices) > 16 else [np.array([d], np.intp) for d in devices.tolist()]


def _between(
    table: FloatArray, kinds: list[npt.NDArray[np.intp]], alone: float, least: Callable[..., float] = np.min
) -> FloatArray:
    """(K, K) the least entry of a device table between two kinds, ``alone`` for a kind of one device and itself."""
    out = np.full((len(kinds), len(kinds)), alone)
    for k, source in enumerate(kinds):
        for j, target in enumerate(kinds):
            block = table[np.ix_(source, target)]
            if k != j:
                out[k, j] = least(block)
            elif len(source) > 1:
                out[k, k] = least(block[~np.eye(len(source), dtype=bool)])
    return out


class _Arcs(NamedTuple):
    """Pairs of nodes that tensors connect, one row per pair: bringing them over takes number * latency + size * rate."""

    tail: IntArray
    head: IntArray
    number: FloatArray
    size: FloatArray

    @staticmethod
    def merge(n: int, tail: IntArray, head: IntArray, number: FloatArray, size: FloatArray) -> _Arcs:
        """Parallel arcs become one that carries all that they do; sorted by tail."""
        key, row = np.unique(tail.astype(np.int64) * n + head, return_inverse=True)
        return _Arcs(
            (key // max(n, 1)).astype(np.int32),
            (key % max(n, 1)).astype(np.int32),
            np.bincount(row, number, len(key)),
            np.bincount(row, number * size, len(key)),
        )

    def reversed(self) -> _Arcs:
        return _Arcs(self.head, self.tail, self.number, self.size)

    def into(self, n: int) -> tuple[IntArray, IntArray, FloatArray, FloatArray]:
        """CSR node -> arcs that end there: (ptr, other end, number, size)."""
        order = np.argsort(self.head, kind="stable")
        ptr = np.zeros(n + 1, np.int32)
        np.cumsum(np.bincount(self.head, minlength=n), out=ptr[1:])
        return ptr, self.tail[order], self.number[order], self.size[order]


def _class_tensors(problem: Problem, view: _View) -> tuple[IntArray, IntArray, IntArray]:
    """The distinct (tensor, class that reads it) other than the tensor's own: (tensor, own class, reading class)."""
    graph, of, classes = problem.graph, view.of, len(view.cost)
    tensor, reader = graph.edge_tensor, of[graph.consumer_op]
    if classes < problem.n:
        key = np.unique(tensor.astype(np.int64) * classes + reader)
        tensor, reader = (key // classes).astype(np.int32), (key % classes).astype(np.int32)
    own = of[graph.tensor_producer[tensor]]
    away = own != reader
    return tensor[away], own[away], reader[away]


# -- serial -----------------------------------------------------------------------------------------------------------


def _serial_bounds(problem: Problem, view: _View) -> list[Bound]:
    """Every class on its fastest device; the same with the transfers that this causes or avoids."""
    fastest = float(view.cost.min(axis=1).sum())
    cut = _transfer_dual(problem, view, view.cost, view.latency, view.rate)
    return [Bound(fastest, "fastest devices"), Bound(max(cut, fastest), "fastest devices and transfers")]


def _transfer_dual(
    problem: Problem, view: _View, unary: FloatArray, latency: FloatArray, rate: FloatArray
) -> float:
    """A lower bound on min over x of Σ_c unary[c, x_c] + Σ_t (transfers of t), by tree-reweighted message passing.

    A tensor read by r other classes costs at least 1/r of the sum of what it would cost for each of them, so that the
    sum over pairs of classes with these shares is a relaxation; exact where all readers are in one place. Moving
    amounts between the costs of nodes and pairs (the messages) leaves the total of every x as it is, so for any
    messages the sum of all minima is a bound: the dual of the local-polytope LP, which the sweeps improve.

    References
    ----------
    V. Kolmogorov, "Convergent tree-reweighted message passing for energy minimization", PAMI 2006.
    """
    tensor, own, reader = _class_tensors(problem, view)
    classes, kinds = view.cost.shape
    if not len(tensor) or kinds == 1:
        return float(unary.min(axis=1).sum())
    share = 1.0 / np.bincount(tensor, minlength=problem.graph.tensors)[tensor]
    arcs = _Arcs.merge(classes, own, reader, share, problem.size[tensor])
    sweeps = int(1e8 / (len(arcs.tail) * kinds * kinds))
    if sweeps == 0:
        return float(unary.min(axis=1).sum())
    rank = np.full(classes, problem.n, np.int32)
    np.minimum.at(rank, view.of, problem.graph.position)
    order = np.argsort(rank, kind="stable").astype(np.int32)
    rank[order] = np.arange(len(order), dtype=np.int32)
    at = np.concatenate([arcs.tail, arcs.head])
    ptr = np.zeros(classes + 1, np.int32)
    np.cumsum(np.bincount(at, minlength=classes), out=ptr[1:])
    incident = (np.argsort(at, kind="stable") % len(arcs.tail)).astype(np.int32)
    free = latency.copy(), rate.copy()
    for table in free:
        np.fill_diagonal(table, 0.0)
    return float(_sweep(unary, *arcs, *free, order, rank, ptr, incident, min(sweeps, 60)))


@njit(cache=True, nogil=True)
def _sweep(unary, tail, head, number, size, latency, rate, order, rank, ptr, incident, sweeps):  # type: ignore[no-untyped-def]
    """TRW-S. ``into[0, e]`` and ``into[1, e]`` are the messages of arc e to its tail and to its head.

    The bound is evaluated after every fourth sweep, and no longer once it gains less than one part in 10⁵.
    """
    nodes, kinds = unary.shape
    arcs = len(tail)
    into = np.zeros((2, arcs, kinds))
    total = np.empty(kinds)
    message = np.empty(kinds)
    best = -math.inf
    for sweep in range(2 * sweeps):
        forward = sweep % 2 == 0
        for i in range(nodes):
            v = order[i] if forward else order[nodes - 1 - i]
            ahead = 0
            for a in range(kinds):
                total[a] = unary[v, a]
            for j in range(ptr[v], ptr[v + 1]):
                e = incident[j]
                side = 0 if tail[e] == v else 1
                other = head[e] if side == 0 else tail[e]
                if (rank[other] > rank[v]) == forward:
                    ahead += 1
                for a in range(kinds):
                    total[a] += into[side, e, a]
            if ahead == 0:
                continue
            part = 1.0 / max(ahead, ptr[v + 1] - ptr[v] - ahead)
            for j in range(ptr[v], ptr[v + 1]):
                e = incident[j]
                side = 0 if tail[e] == v else 1
                other = head[e] if side == 0 else tail[e]
                if (rank[other] > rank[v]) != forward:
                    continue
                least = math.inf
                for b in range(kinds):
                    message[b] = math.inf
                    for a in range(kinds):
                        if side == 0:
                            link = number[e] * latency[a, b] + size[e] * rate[a, b]
                        else:
                            link = number[e] * latency[b, a] + size[e] * rate[b, a]
                        message[b] = min(message[b], part * total[a] - into[side, e, a] + link)
                    least = min(least, message[b])
                for b in range(kinds):
                    into[1 - side, e, b] = message[b] - least
        if sweep % 8 == 7 or sweep == 2 * sweeps - 1:
            value = _sum_of_minima(unary, tail, head, number, size, latency, rate, ptr, incident, into)
            if value <= best * (1.0 + 1e-5):
                return max(best, value)
            best = value
    return best


@njit(cache=True, nogil=True)
def _sum_of_minima(unary, tail, head, number, size, latency, rate, ptr, incident, into):  # type: ignore[no-untyped-def]
    """The bound that the messages prove, less what rounding can have added (here numbers of either sign are added)."""
    nodes, kinds = unary.shape
    bound = 0.0
    magnitude = 0.0
    for v in range(nodes):
        least = math.inf
        for a in range(kinds):
            total = unary[v, a]
            if math.isinf(total):
                continue
            moved = total
            for j in range(ptr[v], ptr[v + 1]):
                e = incident[j]
                message = into[0 if tail[e] == v else 1, e, a]
                total += message
                moved += message
            magnitude = max(magnitude, moved)
            least = min(least, total)
        bound += least
    for e in range(len(tail)):
        least = math.inf
        for a in range(kinds):
            if math.isinf(unary[tail[e], a]):
                continue
            for b in range(kinds):
                if math.isinf(unary[head[e], b]):
                    continue
                link = 0.0 if a == b else number[e] * latency[a, b] + size[e] * rate[a, b]
                magnitude = max(magnitude, link + into[0, e, a] + into[1, e, b])
                least = min(least, link - into[0, e, a] - into[1, e, b])
        bound += least
    return bound - 8.0 * 2.2e-16 * (nodes + len(tail)) * magnitude


# -- the load dual ----------------------------------------------------------------------------------------------------


def _load_dual(
    cost: FloatArray, count: FloatArray, start: FloatArray | None = None
) -> tuple[float, FloatArray]:
    """max over weights w >= 0 with Σ_k count_k w_k = 1 of Σ_c min_k w_k cost[c, k]; and the (K,) weights found.

    The largest load is at least the weighted mean of all loads, and in that mean class c adds at least its smallest
    term. The maximum equals the LP relaxation of R||Cmax (Lenstra, Shmoys, Tardos 1990); found by Kelley's cutting
    planes, and any weights are valid.
    """
    if not len(cost):
        return 0.0, 1.0 / (len(count) * count)
    if start is None:
        finite = np.isfinite(cost)
        mean = np.where(finite, cost, 0.0).sum(axis=0) / np.maximum(finite.sum(axis=0), 1)
        speed = count / np.maximum(mean, mean.max() * 1e-9) if mean.max() > 0 else count
        start = speed / speed.sum() / count
    value, weight = _kelley(cost / count, start * count, 30 + 4 * len(count))
    return float(value), weight / count


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
def _kelley(cost, weight, rounds):  # type: ignore[no-untyped-def]
    """Maximise the concave, piecewise linear :func:`_cheapest` over the simplex; (value, weight).

    Each evaluation gives a plane ``value <= load · weight``. The best weights under all planes so far solve a matrix
    game, kept as the LP max Σ y, Σ_i y_i load_i <= 1, y >= 0 in revised simplex form: ``inverse`` of the basis,
    ``level`` of its variables, ``price`` of its rows. A new plane is a new column, so the basis stays primal feasible.
    Every second query lies halfway to the best weights known, which calms the method where there are many kinds.
    """
    kinds = cost.shape[1]
    load = np.empty(kinds)
    best = _cheapest(cost, weight, load)
    found = weight.copy()
    scale = load.max()
    if kinds == 1 or not scale > 0.0:
        return best, found
    plane = np.empty((rounds, kinds))
    inverse = np.eye(kinds)
    level = np.ones(kinds)
    worth = np.zeros(kinds)
    price = np.zeros(kinds)
    step = np.empty(kinds)
    for i in range(rounds):
        # One is added to every entry: it shifts the game's value, and bounds the LP.
        for k in range(kinds):
            plane[i, k] = load[k] / scale + 1.0
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
            for k in range(kinds):
                if k != leave:
                    inverse[k] -= step[k] * inverse[leave]
                    level[k] = max(0.0, level[k] - step[k] * ratio)
            worth[leave] = 1.0 if enter <= i else 0.0
            price[:] = 0.0
            for k in range(kinds):
                if worth[k] > 0.0:
                    price += inverse[k]
        total = 0.0
        for k in range(kinds):
            weight[k] = max(price[k], 0.0)
            total += weight[k]
        if not total > 0.0 or (1.0 / total - 1.0) * scale <= best * (1.0 + 1e-9):
            break
        weight /= total
        if i % 2 == 1:
            weight = 0.5 * (weight + found)
        # Weights that sum to a hair more than one would prove a hair too much.
        weight /= weight.sum() * (1.0 + 1e-15)
        value = _cheapest(cost, weight, load)
        if value > best:
            best = value
            found[:] = weight
    return best, found


def _tightened(through: FloatArray, bound: Callable[[BoolArray], float]) -> float:
    """The least T that is not refuted: some pair (class, kind) with ``through`` <= T is left for every class, and
    ``bound`` of the pairs left is at most T.

    A placement of cost T uses no pair whose own cost ``through[c, k]`` exceeds T, so it obeys any bound that holds
    without these pairs (a destructive bound: Klein and Scholl, EJOR 1999; for loads alone, the pruned LP of Lenstra,
    Shmoys and Tardos). The bound only changes where T passes an entry of ``through``: bisection over those.

    Parameters
    ----------
    through : (C, K) the least cost of any placement that puts class c on kind k.
    bound : a lower bound for the placements that use only the given (C, K) pairs.
    """
    start = max(float(through.min(axis=1).max()), bound(np.isfinite(through)))
    later = np.unique(through[np.isfinite(through) & (through > start)])
    edges = np.concatenate([[start], later, [math.inf]])
    # For T in [edges[i], edges[i + 1]) the same pairs are left. Find the first such interval that is not refuted as a
    # whole; mostly it is the first one, so that is tried before bisecting.
    low, high, probe, proven = 0, len(later), 0, 0.0
    while True:
        value = bound(through <= edges[probe])
        if value >= edges[probe + 1]:
            low = probe + 1
        else:
            high, proven = probe, value
        if low >= high:
            return max(float(edges[low]), proven)
        probe = (low + high) // 2


# -- pipeline ---------------------------------------------------------------------------------------------------------


def _pipeline_bounds(problem: Problem, view: _View) -> list[Bound]:
    """Loads: what no division of the work gets below, and what a single class brings wherever it goes.

    Compute alone is part of every kind of load. With ``comm="sum"`` the transfers join the weighted mean of the loads;
    there, and for single classes, objective ``"fw+bw"`` is at least max_d (FW_d + BW_d), the objective ``"sum"``.
    """
    model = problem.model
    assert isinstance(model, Pipeline)
    forced = _forced_transfers(problem, view)
    through = view.cost + forced if model.comm == "sum" else np.maximum(view.cost, forced)
    load, weight = _load_dual(view.cost, view.count)
    bounds = [Bound(float(through.min(axis=1).max()), "largest op"), Bound(load, "load dual")]

    def pruned(left: BoolArray) -> float:
        nonlocal weight
        value, weight = _load_dual(np.where(left, view.cost, math.inf), view.count, weight)
        return value

    best = _tightened(through, pruned)
    if model.comm == "sum":
        # One more step of the same argument, with transfers: for T below the next entry no more pairs are left.
        left = through <= best
        latency, rate = _send_and_receive(problem, view, weight)
        unary = np.where(left, np.where(left, view.cost, 0.0) * weight, math.inf)
        cut = _transfer_dual(problem, view, unary, latency, rate)
        following = through[np.isfinite(through) & ~left]
        best = max(best, min(cut, float(following.min()) if len(following) else math.inf))
    bounds.append(Bound(best, "pruned load dual"))
    if model.objective == "fw+bw":
        bounds += _flush_bounds(problem, view, weight)
    return bounds


def _forced_transfers(problem: Problem, view: _View) -> FloatArray:
    """(C, K) seconds that class c on kind k sends to and receives from classes that may not be on k."""
    tensor, own, reader = _class_tensors(problem, view)
    forced = np.zeros_like(view.cost)
    size = problem.size
    for k, devices in enumerate(view.member):
        apart = np.isinf(view.cost[:, k])
        taken = apart[own]
        receive = problem.recv_latency[devices].min() + size[tensor[taken]] * problem.recv_rate[devices].min()
        forced[:, k] += np.bincount(reader[taken], receive, len(forced))
        given = np.unique(tensor[apart[reader]])
        home = view.of[problem.graph.tensor_producer[given]]
        sending = problem.send_latency[devices].min() + size[given] * problem.send_rate[devices].min()
        forced[:, k] += np.bincount(home, sending, len(forced))
    return forced


def _send_and_receive(problem: Problem, view: _View, weight: FloatArray) -> tuple[FloatArray, FloatArray]:
    """(K, K) latency and rate of what a transfer from kind k to kind j adds to the weighted sum of all loads."""

    def least(table: FloatArray) -> FloatArray:
        return weight * np.array([table[devices].min() for devices in view.member])

    latency = least(problem.send_latency)[:, None] + least(problem.recv_latency)[None, :]
    return latency, least(problem.send_rate)[:, None] + least(problem.recv_rate)[None, :]


def _flush_bounds(problem: Problem, view: _View, weight: FloatArray) -> list[Bound]:
    """max_d FW_d + max_d BW_d is at least the sum of a bound on each.

    Two sets of weights, one for each side, may also be put into one minimum per class: it is at least the sum of the
    two duals, as the min of a sum is at least the sum of the min.
    """
    backward = problem.graph.backward
    sides = []
    for side in (~backward, backward):
        time = np.where(np.isinf(view.time), math.inf, view.time * side[:, None])
        cost = _class_sums(view.of, time)
        value, weights = _load_dual(cost, view.count, weight)
        sides.append((cost, weights, max(value, float(cost.min(axis=1).max()))))
    (forward, first, low), (back, second, high) = sides
    with np.errstate(invalid="ignore"):
        joint = np.fmin.reduce(first * forward + second * back, axis=1).sum()
    return [Bound(low + high, "forward and backward"), Bound(float(joint), "joint load dual")]


# -- concurrent and offload -------------------------------------------------------------------------------------------


def _schedule_bounds(problem: Problem, view: _View) -> list[Bound]:
    """Paths and loads, apart and together.

    What holds for ``concurrent`` (an op starts when its inputs are there; one op at a time per device) holds for
    ``offload`` too: read "v starts" as the moment at which its call has spent what the ancestors of v in that call
    and their inputs take, and v then its own time. Two things differ: the devices of the pool run any number
    of ops at once, and what a transfer costs is ``send`` of a call and ``recv`` of another.
    """
    of, kinds = view.of, view.member
    pooled = np.array([isinstance(problem.model, Offload) and bool(problem.pool[kind[0]]) for kind in kinds])
    busy = ~pooled
    arcs = _op_arcs(problem)
    head = _heads(problem, view, arcs, busy)
    tail = _tails(problem, view, arcs, busy)
    through = np.zeros_like(view.cost)
    np.maximum.at(through, of, head + view.time + tail)
    bounds = [
        Bound(_critical_path(problem, view, arcs), "critical path"),
        Bound(float(through.min(axis=1).max()), "placed critical path"),
    ]
    if len(through) < problem.n:
        # A class is run by one device, one op after another: after its earliest head, before its shortest tail.
        before, behind = np.full_like(view.cost, math.inf), np.full_like(view.cost, math.inf)
        np.minimum.at(before, of, head)
        np.minimum.at(behind, of, tail)
        through = np.maximum(through, np.where(pooled, 0.0, before + view.cost + behind))
        bounds.append(Bound(float(through.min(axis=1).max()), "largest class"))
    if not busy.any():
        return bounds
    count, weight, inside = view.count[busy], None, None

    def loads(left: BoolArray) -> float:
        """The load dual of what the pool cannot run."""
        nonlocal weight
        bound = ~left[:, pooled].any(axis=1)
        cost = np.where(left[bound][:, busy], view.cost[bound][:, busy], math.inf)
        value, weight = _load_dual(cost, count, weight)
        return value

    def windows(left: BoolArray) -> float:
        nonlocal inside
        value = loads(left)
        left = left[of]
        bound = ~left[:, pooled].any(axis=1)
        left = left[bound]
        window, inside = _windows(
            np.where(left[:, busy], view.time[bound][:, busy], math.inf),
            np.where(left, head[bound], math.inf).min(axis=1),
            np.where(left, tail[bound], math.inf).min(axis=1),
            count,
            weight if inside is None else inside,
        )
        return max(value, window)

    everything = np.isfinite(through)
    bounds.append(Bound(loads(everything), "load dual"))
    bounds.append(Bound(windows(everything), "windows"))
    bounds.append(Bound(_tightened(through, windows), "pruned windows"))
    return bounds


def _op_arcs(problem: Problem) -> _Arcs:
    """Tensors of one op for another leave together and take the same way, one after the other: their times add up."""
    graph = problem.graph
    tensor = graph.edge_tensor
    ones = np.ones(len(tensor))
    return _Arcs.merge(
        problem.n, graph.tensor_producer[tensor], graph.consumer_op, ones, problem.size[tensor]
    )


def _critical_path(problem: Problem, view: _View, arcs: _Arcs) -> float:
    """The longest path with every op at its smallest time and no transfers."""
    time = view.time.min(axis=1, keepdims=True)
    none, busy = np.zeros((1, 1)), np.ones(1, np.bool_)
    order = problem.graph.topological_order.copy()
    head = _longest(order, *arcs.into(problem.n), time, none, none, busy, view.of, True, 0)
    return float((head + time).max())


CONE = 8
"""How many ancestors of an op are looked at for queueing; more hardly help."""


def _heads(problem: Problem, view: _View, arcs: _Arcs, busy: BoolArray) -> FloatArray:
    """(n, K) seconds before which op v cannot start on a device of kind k; see :func:`_longest`."""
    order = problem.graph.topological_order.copy()
    return _placed_path(order, arcs, view, view.latency, view.rate, busy)


def _tails(problem: Problem, view: _View, arcs: _Arcs, busy: BoolArray) -> FloatArray:
    """(n, K) seconds that pass after op v ends on a device of kind k: the heads of the graph run backwards."""
    order = problem.graph.topological_order[::-1].copy()
    return _placed_path(order, arcs.reversed(), view, view.latency.T.copy(), view.rate.T.copy(), busy)


def _placed_path(
    order: IntArray, arcs: _Arcs, view: _View, latency: FloatArray, rate: FloatArray, busy: BoolArray
) -> FloatArray:
    n, kinds = view.time.shape
    between = ~np.eye(kinds, dtype=bool)
    cone = CONE if len(arcs.tail) * kinds * (kinds + 1) ** 2 <= 3e6 else 0
    flat = bool(np.ptp(latency[between]) == 0 and np.ptp(rate[between]) == 0) if kinds > 1 else True
    if not flat and len(arcs.tail) * kinds**2 > 1e8:
        # Too many pairs of kinds: every transfer is as fast as the fastest.
        flat = True
        latency = np.where(between, latency[between].min(), latency)
        rate = np.where(between, rate[between].min(), rate)
    found: FloatArray = _longest(order, *arcs.into(n), view.time, latency, rate, busy, view.of, flat, cone)
    return found


@njit(cache=True, nogil=True)
def _longest(order, ptr, op, number, size, time, latency, rate, busy, class_of, flat, cone):  # type: ignore[no-untyped-def]
    """(n, K) lower bounds on the start of every op on every kind: a longest path over pairs (op, kind).

    Op v on kind k waits for each of its predecessors u, wherever u is best placed for that: on the same device, or
    elsewhere and then for the transfer. Choosing the place of u anew for every reader is the relaxation. Where
    ``cone`` > 0, :func:`_queue` then uses that the ancestors which are too late elsewhere share the device of v.

    Runs over the ops in ``order``; the arcs into v are ``ptr[v]:ptr[v + 1]`` and come from ``op``. ``flat``: all
    links between kinds are alike.
    """
    n, kinds = time.shape
    start = np.full((n, kinds), math.inf)
    end = np.full((n, kinds), math.inf)
    first = np.empty(n)
    member = np.empty(cone + 1, np.int64)
    slot = np.full(n, -1, np.int64)
    seen = np.full(n, -1, np.int64)
    front = np.empty(n, np.int64)
    after = np.empty((cone + 1, kinds + 1))
    for v in order:
        for k in range(kinds):
            if time[v, k] == math.inf:
                continue
            begin = 0.0
            for i in range(ptr[v], ptr[v + 1]):
                u = op[i]
                best = end[u, k]
                if class_of[u] == class_of[v]:
                    pass
                elif flat:
                    if kinds > 1:
                        best = min(best, first[u] + number[i] * latency[0, 1] + size[i] * rate[0, 1])
                else:
                    for j in range(kinds):
                        if j != k:
                            best = min(best, end[u, j] + number[i] * latency[j, k] + size[i] * rate[j, k])
                begin = max(begin, best)
            start[v, k] = begin
        if cone > 0 and ptr[v + 1] > ptr[v]:
            made = _latest_ancestors(v, ptr, op, first, cone, member, slot, seen, front)
            for k in range(kinds):
                if busy[k] and time[v, k] < math.inf:
                    _delays(
                        k, made, member, slot, ptr, op, number, size, time, latency, rate, class_of, after
                    )
                    start[v, k] = _queue(v, k, made, member, start, end, time, class_of, latency[k, k], after)
            for i in range(made):
                slot[member[i]] = -1
        first[v] = math.inf
        for k in range(kinds):
            end[v, k] = start[v, k] + time[v, k]
            first[v] = min(first[v], end[v, k])
    return start


@njit(cache=True, nogil=True)
def _latest_ancestors(v, ptr, op, first, cone, member, slot, seen, front):  # type: ignore[no-untyped-def]
    """Fill ``member`` with v and up to ``cone`` ancestors, those that can end late first; their number.

    ``slot`` is the inverse of ``member``; ``first[u]`` is when u can end at best, ``seen`` and ``front`` are scratch.
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
def _delays(k, made, member, slot, ptr, op, number, size, time, latency, rate, class_of, after):  # type: ignore[no-untyped-def]
    """``after[x, a]``: least time from the end of ancestor x at place a to the start of v, on a device of kind k.

    Place a < K is a device of kind a other than the device of v, place K is that device itself. Only paths within
    the cone are looked at, and of these only arcs that lead to an earlier slot.
    """
    kinds = time.shape[1]
    onward = np.empty(kinds + 1)
    after[:made] = 0.0
    for c in range(made):
        w = member[c]
        for b in range(kinds + 1):
            onward[b] = math.inf if c == 0 else time[w, b if b < kinds else k] + after[c, b]
        if c == 0:
            onward[kinds] = 0.0
        elif latency[k, k] == math.inf:
            onward[k] = math.inf
        for i in range(ptr[w], ptr[w + 1]):
            x = slot[op[i]]
            if x <= c:
                continue
            for a in range(kinds + 1):
                best = onward[a]
                if class_of[op[i]] != class_of[w]:
                    source = a if a < kinds else k
                    for b in range(kinds + 1):
                        if b != a and onward[b] < best:
                            target = b if b < kinds else k
                            link = number[i] * latency[source, target] + size[i] * rate[source, target]
                            best = min(best, onward[b] + link)
                after[x, a] = max(after[x, a], best)


@njit(cache=True, nogil=True)
def _queue(v, k, made, member, start, end, time, class_of, inside, after):  # type: ignore[no-untyped-def]
    """The least start of v on a device of kind k for which the ancestors that must share the device fit before it.

    If v starts at X, every ancestor whose results would arrive later than X from elsewhere is on the device of v, and
    these run one after another: X is at least their earliest start plus their total time, for any subset of them.
    As X falls more of them must be there. The argument of Papadimitriou and Yannakakis, "Towards an
    architecture-independent analysis of parallel algorithms" (SIAM J. Comput. 1990), for unlike devices and links.
    """
    kinds = time.shape[1]
    here = np.empty(made)
    away = np.empty(made)
    rank = np.empty(made, np.int64)
    line = np.empty(made, np.int64)
    least, late = start[v, k], 0
    for x in range(1, made):
        u = member[x]
        here[x] = end[u, k] + after[x, kinds]
        away[x] = math.inf
        if class_of[u] != class_of[v]:
            for a in range(kinds):
                if a != k or inside < math.inf:
                    away[x] = min(away[x], end[u, a] + after[x, a])
        least = max(least, min(here[x], away[x]))
        y = late
        while y > 0 and away[rank[y - 1]] < away[x]:
            rank[y] = rank[y - 1]
            y -= 1
        rank[y] = x
        late += 1
    best = away[rank[0]]
    begin = least
    for i in range(late):
        u = member[rank[i]]
        begin = max(begin, here[rank[i]])
        if begin == math.inf:
            break
        y = i
        while y > 0 and start[line[y - 1], k] > start[u, k]:
            line[y] = line[y - 1]
            y -= 1
        line[y] = u
        total = 0.0
        for y in range(i, -1, -1):
            total += time[line[y], k]
            begin = max(begin, start[line[y], k] + total)
        following = away[rank[i + 1]] if i + 1 < late else 0.0
        best = min(best, max(begin, following))
        if begin >= following:
            break
    return max(least, best)


# -- windows ----------------------------------------------------------------------------------------------------------


def _windows(
    time: FloatArray, head: FloatArray, tail: FloatArray, count: FloatArray, weight: FloatArray
) -> tuple[float, FloatArray]:
    """max over a, b of a + b + the load dual of the ops with head >= a and tail >= b; and the weights that gave it.

    These ops are run after a and leave b to be done, so that some device spends at least their load dual between.
    For given weights the best window is found exactly, then the best weights for it, and once more.
    """
    best = 0.0
    if not len(time):
        return best, weight
    for _ in range(2):
        with np.errstate(invalid="ignore"):
            amount = np.fmin.reduce(weight * time, axis=1)
        value, a, b = _best_window(head, tail, amount, np.argsort(-head), np.argsort(tail))
        inside = (head >= a) & (tail >= b)
        dual, weight = _load_dual(time[inside], count, weight)
        value = max(value, a + b + dual)
        if value <= best:
            break
        best = value
    return best, weight


@njit(cache=True, nogil=True)
def _best_window(head, tail, amount, by_head, by_tail):  # type: ignore[no-untyped-def]
    """max over a, b of a + b + Σ amount of the ops with head >= a and tail >= b: (value, a, b).

    Ops enter a tree over the tails as a falls. A node keeps the sum of its leaves and the best b + Σ of the leaves
    from b on, so that a entry costs O(log n).
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
