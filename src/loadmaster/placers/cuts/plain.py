"""``min-cut`` on one page: two devices, one network, one maximum flow. Nothing here is used to place anything.

A class lies on the source's side of the cut if it is on the first device, else on the sink's side. The arcs that a
cut severs, from the source's side to the sink's, are what the placement costs under ``serial``:

    source -> class       its time on the second device
    class  -> sink        its time on the first device
    producer -> away(t)   the link from the first device to the second, and away(t) -> reader infinite:
                          severed once if the producer is on the first device and any reader on the second
    back(t) -> producer   the link from the second device to the first, and reader -> back(t) infinite

Every placement is a cut and its cost the cut's value, so that a minimum cut is an optimal placement, if memory is
not limited. Stone's network has an edge per pair of modules; the nodes away(t) and back(t) charge a tensor once per
destination, however many readers it has there.

Maximum flow by shortest augmenting paths, O(nodes · arcs²); the fast version is push-relabel (``_cut_graph.py``).

References
----------
H. S. Stone, "Multiprocessor scheduling with the aid of network flow algorithms", IEEE TSE 3(1), 1977. J. Edmonds,
R. M. Karp, "Theoretical improvements in algorithmic efficiency for network flow problems", JACM 19(2), 1972.
"""

from __future__ import annotations

import math
from collections import defaultdict, deque
from collections.abc import Hashable

from loadmaster.problem import Problem, Serial
from loadmaster.problem.reference import link

__all__ = ["best_placement", "minimum_cut", "network_of"]

Network = dict[Hashable, dict[Hashable, float]]
"""Capacity of each arc in seconds, by tail and head; every arc has its reverse."""
SOURCE, SINK = "first device", "second device"


def best_placement(problem: Problem) -> tuple[float, list[int]]:
    """(cost, device of each op) of the best placement on two devices; the cost is infinite if there is none.

    Memory is not looked at.
    """
    assert isinstance(problem.model, Serial)
    assert problem.devices == 2
    value, first_side = minimum_cut(network_of(problem))
    return value, [0 if c in first_side else 1 for c in problem.class_of.tolist()]


def network_of(problem: Problem) -> Network:
    """The network whose cuts are the placements."""
    network: Network = defaultdict(lambda: defaultdict(float))

    def arc(tail: Hashable, head: Hashable, seconds: float) -> None:
        network[tail][head] += seconds
        network[head][tail] += 0.0

    of = problem.class_of.tolist()
    for v in range(problem.n):
        there, here = (float(problem.time[v, d]) if problem.allowed[v, d] else math.inf for d in (1, 0))
        arc(SOURCE, of[v], there)
        arc(of[v], SINK, here)
    for t in range(problem.graph.tensors):
        producer = of[problem.graph.tensor_producer[t]]
        arc(producer, ("away", t), link(problem, t, 0, 1))
        arc(("back", t), producer, link(problem, t, 1, 0))
        for reader in {of[u] for u in problem.graph.consumers(t).tolist()}:
            arc(("away", t), reader, math.inf)
            arc(reader, ("back", t), math.inf)
    return network


def minimum_cut(network: Network) -> tuple[float, set[Hashable]]:
    """(value, nodes on the source's side) of a minimum cut; the value is infinite if every cut is."""
    room = {tail: dict(heads) for tail, heads in network.items()}
    flow = 0.0
    while True:
        came_from: dict[Hashable, Hashable] = {SOURCE: SOURCE}
        waiting = deque(node for node in came_from if node in room)
        while waiting and SINK not in came_from:
            tail = waiting.popleft()
            for head, left in room[tail].items():
                if left > 0.0 and head not in came_from:
                    came_from[head] = tail
                    waiting.append(head)
        if SINK not in came_from:
            return flow, set(came_from)
        path: list[tuple[Hashable, Hashable]] = [(came_from[SINK], SINK)]
        while path[-1][0] != SOURCE:
            path.append((came_from[path[-1][0]], path[-1][0]))
        least = min(room[tail][head] for tail, head in path)
        if math.isinf(least):
            return math.inf, set()
        flow += least
        for tail, head in path:
            room[tail][head] -= least
            room[head][tail] += least
