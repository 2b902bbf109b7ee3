"""Compiled evaluation of the ``offload`` execution model."""

from __future__ import annotations

import math

import numpy as np
from numba import njit

from loadmaster.arrays import BoolArray, FloatArray, IntArray
from loadmaster.graph.order import sum_by
from loadmaster.problem._evaluation import Call, Evaluation, Violation
from loadmaster.problem._model import Offload
from loadmaster.problem._placement import Placement, plain_devices
from loadmaster.problem._problem import Problem

__all__ = ["OffloadSimulator"]


class OffloadSimulator:
    """Finish of the last call or CPU op, where accelerators are called with whole convex subgraphs.

    Complexity: O(ops * devices + edges * devices) per placement, for cutting the calls; O(ops + edges) after
    that.

    References
    ----------
    J. Tarnawski et al., "Efficient algorithms for device placement of DNN graph operators", NeurIPS 2020
    (latency).
    """

    def __init__(self, problem: Problem) -> None:
        assert isinstance(problem.model, Offload)
        self.problem = problem
        self.max_calls = problem.model.max_calls
        graph = problem.graph
        scan = np.lexsort((graph.position, graph.levels)).astype(np.int32)
        pred_ptr, pred = graph.predecessors
        out_ptr, out_tensor = graph.outputs
        self._arrays = (
            scan,
            pred_ptr,
            pred,
            out_ptr,
            out_tensor,
            graph.consumer_ptr,
            graph.consumer_op,
            problem.pool,
            problem.time,
            problem.size,
            problem.send_latency,
            problem.send_rate,
            problem.recv_latency,
            problem.recv_rate,
        )

    def costs(self, device: IntArray) -> tuple[FloatArray, BoolArray]:
        """(k,) costs of the (k, n) placements, and whether no accelerator needs more than ``max_calls``
        calls."""
        cost, calls = np.empty(len(device)), np.empty(len(device), np.int32)
        n = self.problem.n
        work = np.zeros(n, np.int32), np.empty(n), np.empty(n), np.zeros(self.problem.devices)
        _offload(*self._arrays, plain_devices(device), False, *work, cost, calls)
        return cost, calls <= self.max_calls

    def cost(self, placement: Placement) -> tuple[float, bool]:
        """Cost of one placement, its ``call`` honoured, and whether the calls are as the model allows."""
        if placement.call is None:
            cost, ok = self.costs(placement.device[None])
            return float(cost[0]), bool(ok[0])
        evaluation = self.evaluate(placement)
        return evaluation.cost, not evaluation.violations

    def best_calls(self, device: IntArray) -> tuple[FloatArray, IntArray]:
        """(k,) least costs of (k, n) placements over all their calls, and (k, n) those calls, by trying every one.

        ``max_calls`` to the power of the ops on accelerators are tried: for small problems. Infinite where none is
        possible.
        """
        graph, n = self.problem.graph, self.problem.n
        best, calls = np.full(len(device), np.inf), np.zeros((len(device), n), np.int32)
        work = np.zeros(n, np.int32), np.empty(n), np.empty(n), np.zeros(self.problem.devices)
        _best_calls(
            *self._arrays,
            graph.topological_order,
            *graph.successors,
            plain_devices(device),
            self.max_calls,
            *work,
            best,
            calls,
        )
        return best, calls

    def evaluate(self, placement: Placement) -> Evaluation:
        """The calls with their start and end."""
        problem, device = self.problem, placement.device
        graph, names = problem.graph, problem.cluster.names
        given = placement.call is not None
        call = np.array(placement.call if given else np.zeros(problem.n), np.int32)
        if given:
            call = _renumber(call, device, problem.devices)
        start, end, comm = np.empty(problem.n), np.empty(problem.n), np.zeros(problem.devices)
        cost, most = np.empty(1), np.empty(1, np.int32)
        _offload(*self._arrays, plain_devices(device[None]), given, call, start, end, comm, cost, most)
        defined = math.isfinite(cost[0])
        violations, calls = [], []
        scan = self._arrays[0]
        for d in np.flatnonzero(~problem.pool).tolist():
            mine = scan[device[scan] == d]
            numbers = np.unique(call[mine])
            if len(numbers) > self.max_calls:
                text = f"device {names[d]!r} needs {len(numbers)} calls, but max_calls is {self.max_calls}"
                violations.append(Violation("calls", text, device=d))
            for number in numbers.tolist():
                ops = mine[call[mine] == number]
                when = (float(start[ops[0]]), float(end[ops[0]]))
                calls.append(Call(d, tuple(ops.tolist()), *when))
                if given and not _is_convex(graph.topological_order, *graph.successors, ops):
                    text = f"a call of device {names[d]!r} is not convex"
                    violations.append(Violation("calls", text, tuple(ops.tolist()), d))
        rows = np.arange(problem.n)
        stuck = np.flatnonzero(np.isnan(end))
        if len(stuck):
            violations.append(Violation("deadlock", "calls wait for each other", tuple(stuck[:1].tolist())))
        busy = sum_by(device, problem.time[rows, device], problem.devices)
        return Evaluation(
            cost=float(cost[0]),
            violations=tuple(violations),
            busy=busy,
            comm=comm,
            load=busy + comm,
            memory=problem.memory_of(device),
            start=start if defined else None,
            end=end if defined else None,
            calls=tuple(calls),
        )


def _renumber(call: IntArray, device: IntArray, devices: int) -> IntArray:
    """Call numbers of each device as 0, 1, 2, … in the same order."""
    fresh = np.zeros_like(call)
    for d in range(devices):
        mine = device == d
        fresh[mine] = np.unique(call[mine], return_inverse=True)[1]
    return fresh


@njit(cache=True, nogil=True)
def _is_convex(order, ptr, successor, ops):  # type: ignore[no-untyped-def]
    """No path leaves ``ops`` and comes back."""
    inside = np.zeros(len(order), np.bool_)
    inside[ops] = True
    left = np.zeros(len(order), np.bool_)
    for v in order:
        if inside[v] and left[v]:
            return False
        if inside[v] or left[v]:
            for i in range(ptr[v], ptr[v + 1]):
                if left[v] or not inside[successor[i]]:
                    left[successor[i]] = True
    return True


@njit(cache=True, nogil=True)
def _cut_calls(scan, pred_ptr, pred, pool, device, last, made, call):  # type: ignore[no-untyped-def]
    """Number the calls of every accelerator; ``made[d]`` is how many device d needs.

    ``last[v, d]`` is the newest call of device d that has a path to v or holds v, plus one (0 = none). An op
    must open a new call if a predecessor outside the current call is reached from it.
    """
    devices = len(pool)
    made[:] = 0
    for v in scan:
        home = device[v]
        for d in range(devices):
            newest = 0
            for i in range(pred_ptr[v], pred_ptr[v + 1]):
                newest = max(newest, last[pred[i], d])
            last[v, d] = newest
        if pool[home]:
            call[v] = 0
            continue
        if made[home] == 0:
            made[home] = 1
        else:
            for i in range(pred_ptr[v], pred_ptr[v + 1]):
                u = pred[i]
                if last[u, home] == made[home] and (device[u] != home or call[u] != made[home] - 1):
                    made[home] += 1
                    break
        call[v] = made[home] - 1
        last[v, home] = made[home]


@njit(cache=True, nogil=True)
def _offload(  # type: ignore[no-untyped-def]
    scan, pred_ptr, pred, out_ptr, out_tensor, consumer_ptr, consumer_op, pool, time, size,
    send_latency, send_rate, recv_latency, recv_rate, device, given, call, start, end, comm, cost, calls,
):  # fmt: skip
    """Costs of a batch; ``call``, ``start``, ``end`` and ``comm`` are left as the last placement has them.

    A unit is a call or one CPU op. ``unit[v]`` numbers them: the calls of a device are consecutive. Units are
    finished one by one as what they wait for is finished; what can never be finished waits for itself.
    """
    n, devices = time.shape
    unit = np.empty(n, np.int32)
    first = np.empty(devices + 1, np.int32)
    made = np.zeros(devices, np.int32)
    last = np.zeros((0 if given else n, devices), np.int32)
    head = np.empty(n, np.int32)
    following = np.empty(n, np.int32)
    waiting = np.empty(n, np.int32)
    begin = np.empty(n)
    length = np.empty(n)
    stamp = np.empty(n, np.int32)
    stack = np.empty(n, np.int32)
    for row in range(device.shape[0]):
        where = device[row]
        if given:
            made[:] = 0
            for v in range(n):
                if not pool[where[v]]:
                    made[where[v]] = max(made[where[v]], call[v] + 1)
        else:
            _cut_calls(scan, pred_ptr, pred, pool, where, last, made, call)
        most = 0
        first[0] = 0
        for d in range(devices):
            most = max(most, made[d])
            first[d + 1] = first[d] + made[d]
        calls[row] = most
        units = first[devices]
        for v in range(n):
            if pool[where[v]]:
                unit[v] = units
                units += 1
            else:
                unit[v] = first[where[v]] + call[v]
        for s in range(units):
            head[s] = -1
            waiting[s] = 0
            begin[s] = 0.0
            length[s] = 0.0
            stamp[s] = -1
        comm[:] = 0.0
        # Ops of a unit as a linked list, so that finishing a unit finds its tensors.
        for v in range(n):
            following[v] = head[unit[v]]
            head[unit[v]] = v
            length[unit[v]] += time[v, where[v]]
        calls_end = first[devices]
        for v in range(n):
            a = unit[v]
            for i in range(out_ptr[v], out_ptr[v + 1]):
                t = out_tensor[i]
                sent = False
                for j in range(consumer_ptr[t], consumer_ptr[t + 1]):
                    b = unit[consumer_op[j]]
                    if b != a:
                        sent = True
                        waiting[b] += 1
                        if stamp[b] != t and b < calls_end:
                            stamp[b] = t
                            e = where[consumer_op[j]]
                            seconds = recv_latency[e] + size[t] * recv_rate[e]
                            length[b] += seconds
                            comm[e] += seconds
                if sent and a < calls_end:
                    d = where[v]
                    seconds = send_latency[d] + size[t] * send_rate[d]
                    length[a] += seconds
                    comm[d] += seconds
        for d in range(devices):
            for s in range(first[d] + 1, first[d + 1]):
                waiting[s] += 1
        top = 0
        for s in range(units):
            if waiting[s] == 0:
                stack[top] = s
                top += 1
        done, finish = 0, 0.0
        end[:] = np.nan
        while top:
            top -= 1
            s = stack[top]
            done += 1
            stop = begin[s] + length[s]
            finish = max(finish, stop)
            v = head[s]
            while v >= 0:
                start[v] = begin[s]
                end[v] = stop
                for i in range(out_ptr[v], out_ptr[v + 1]):
                    t = out_tensor[i]
                    for j in range(consumer_ptr[t], consumer_ptr[t + 1]):
                        b = unit[consumer_op[j]]
                        if b != s:
                            begin[b] = max(begin[b], stop)
                            waiting[b] -= 1
                            if waiting[b] == 0:
                                stack[top] = b
                                top += 1
                v = following[v]
            if s < calls_end:
                d = where[head[s]]
                if s + 1 < first[d + 1]:
                    begin[s + 1] = max(begin[s + 1], stop)
                    waiting[s + 1] -= 1
                    if waiting[s + 1] == 0:
                        stack[top] = s + 1
                        top += 1
        cost[row] = finish if done == units else np.inf


@njit(cache=True, nogil=True)
def _best_calls(  # type: ignore[no-untyped-def]
    scan, pred_ptr, pred, out_ptr, out_tensor, consumer_ptr, consumer_op, pool, time, size,
    send_latency, send_rate, recv_latency, recv_rate, order, next_ptr, next_op, device, most,
    call, start, end, comm, best, calls,
):  # fmt: skip
    """Count through all numberings of calls; those that leave out a number, or hold a call with a hole, are skipped."""
    n, devices = time.shape
    cost, made = np.empty(1), np.empty(1, np.int32)
    used, ops = np.zeros((devices, most), np.int32), np.empty(n, np.int32)
    for row in range(len(device)):
        where = device[row]
        call[:] = 0
        while True:
            used[:] = 0
            for v in range(n):
                used[where[v], call[v]] += 1
            fits = True
            for d in range(devices):
                for c in range(1, most):
                    fits &= used[d, c] == 0 or used[d, c - 1] > 0
            if fits and most > 1:
                for d in range(devices):
                    for c in range(most):
                        if fits and not pool[d] and used[d, c] > 1:
                            size_of = 0
                            for v in range(n):
                                if where[v] == d and call[v] == c:
                                    ops[size_of] = v
                                    size_of += 1
                            fits = _is_convex(order, next_ptr, next_op, ops[:size_of])
            if fits:
                _offload(
                    scan, pred_ptr, pred, out_ptr, out_tensor, consumer_ptr, consumer_op, pool, time, size,
                    send_latency, send_rate, recv_latency, recv_rate, device[row : row + 1], True, call, start, end,
                    comm, cost, made,
                )  # fmt: skip
                if cost[0] < best[row]:
                    best[row] = cost[0]
                    calls[row] = call
            v = 0
            while v < n and (pool[where[v]] or call[v] == most - 1):
                call[v] = 0
                v += 1
            if v == n:
                break
            call[v] += 1
