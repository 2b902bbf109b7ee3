"""The event-driven schedule of the ``concurrent`` model in pure Python: what the kernels are compared with.

Written for speed, as one would without a compiler: flat lists, local variables, one heap of events and one
heap of ready ops per device, and no objects but the events themselves.
"""

from __future__ import annotations

from collections.abc import Callable
from heapq import heapify, heappop, heappush

from loadmaster.problem import Problem

__all__ = ["heapq_simulator"]


def heapq_simulator(problem: Problem) -> Callable[[list[int]], float]:
    """A function from the devices of all ops to the makespan; what does not depend on them is prepared here.

    Ops are numbered by priority. An event is (moment, number): numbers below n are ops that end, n + t * D +
    e is tensor t reaching device e.
    """
    graph, n, D = problem.graph, problem.n, problem.devices
    order = problem.priority_order.tolist()
    rank = {v: r for r, v in enumerate(order)}
    time = problem.time[order].tolist()
    size, latency, rate = (
        problem.size.tolist(),
        problem.latency.ravel().tolist(),
        problem.rate.ravel().tolist(),
    )
    readers = [[rank[u] for u in graph.consumers(t).tolist()] for t in range(graph.tensors)]
    ptr, tensor = (array.tolist() for array in graph.outputs)
    outputs = [[t for t in tensor[ptr[v] : ptr[v + 1]] if readers[t]] for v in order]
    waits = [0] * n
    for those in readers:
        for u in those:
            waits[u] += 1
    sources = [r for r in range(n) if not waits[r]]

    def makespan(device: list[int]) -> float:
        at = [device[v] for v in order]
        missing = waits[:]
        ready: list[list[int]] = [[] for _ in range(D)]
        for r in sources:
            ready[at[r]].append(r)
        for queue in ready:
            heapify(queue)
        free = [0.0] * (D * D)
        idle = [True] * D
        events: list[tuple[float, int]] = []
        now, looking = 0.0, list(range(D))
        while True:
            # Every device that may have something to do starts its best ready op, if it is idle.
            for d in looking:
                if idle[d] and ready[d]:
                    r = heappop(ready[d])
                    idle[d] = False
                    heappush(events, (now + time[r][d], r))
            if not events:
                return now
            # Then the next instant: all that is complete by then, zero-length transfers included.
            now = events[0][0]
            looking = []
            while events and events[0][0] <= now:
                number = heappop(events)[1]
                if number >= n:
                    t, e = divmod(number - n, D)
                    for u in readers[t]:
                        if at[u] == e:
                            missing[u] -= 1
                            if not missing[u]:
                                heappush(ready[e], u)
                    looking.append(e)
                    continue
                d = at[number]
                idle[d] = True
                looking.append(d)
                for t in outputs[number]:
                    sent = 0
                    for u in readers[t]:
                        e = at[u]
                        if e == d:
                            missing[u] -= 1
                            if not missing[u]:
                                heappush(ready[d], u)
                        elif not sent >> e & 1:
                            sent |= 1 << e
                            link = d * D + e
                            start = free[link]
                            if start < now:
                                start = now
                            end = free[link] = start + (latency[link] + size[t] * rate[link])
                            heappush(events, (end, n + t * D + e))

    return makespan
