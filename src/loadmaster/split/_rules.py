"""What people do without a search: equal layers, equal parameters, and torchtitan's rule.

A model is a chain of units, whole layers in an order in which data never flows back. A rule says how many units each
stage gets. Layers that are repeated (``layers.3``, ``layer2.0``) are blocks: those are what people count.
"""

from __future__ import annotations

import heapq
import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from loadmaster.arrays import BoolArray
from loadmaster.errors import LoadmasterError
from loadmaster.problem import Placement, Problem

__all__ = ["RULES", "RuleError", "Unit", "block_parts", "chain_of_units", "place_by_rule"]

BLOCK = re.compile(r"(?:(.*)\.)?(\d+)(@\d+)?")


class RuleError(LoadmasterError):
    """A rule that has no answer for so few layers."""


@dataclass(frozen=True)
class Unit:
    """A layer, or layers that cannot be separated: its name, its ops, and whether it is one of several alike."""

    name: str
    ops: tuple[int, ...]
    block: bool
    parameters: float
    """Bytes."""


def chain_of_units(problem: Problem, layers: Sequence[str]) -> list[Unit]:
    """The colocation classes of a problem in an order in which data only flows forward.

    ``layers`` has the name of the layer of each op. Classes in a circle are one unit. Complexity: O(ops log ops).
    """
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    graph = problem.graph
    tail, head = graph.arcs
    forward = ~graph.backward[tail] & ~graph.backward[head]
    a, b = problem.class_of[tail[forward]], problem.class_of[head[forward]]
    arcs = coo_array((np.ones(len(a)), (a, b)), shape=(problem.classes, problem.classes))
    count, unit_of_class = connected_components(arcs, directed=True, connection="strong")
    unit_of = unit_of_class[problem.class_of]
    ops: list[list[int]] = [[] for _ in range(count)]
    for v in range(graph.n):
        ops[unit_of[v]].append(v)
    after: list[set[int]] = [set() for _ in range(count)]
    for x, y in zip(unit_of_class[a].tolist(), unit_of_class[b].tolist(), strict=True):
        if x != y:
            after[x].add(y)
    waiting = [0] * count
    for targets in after:
        for y in targets:
            waiting[y] += 1
    first = [min((v for v in members if not graph.backward[v]), default=members[0]) for members in ops]
    ready = [(first[u], u) for u in range(count) if not waiting[u]]
    heapq.heapify(ready)
    order: list[int] = []
    while ready:
        _, u = heapq.heappop(ready)
        order.append(u)
        for y in after[u]:
            waiting[y] -= 1
            if not waiting[y]:
                heapq.heappush(ready, (first[y], y))
    # Inputs and results of the model are no layers: they are where the first and the last stage are.
    order = [u for u in order if not graph.boundary[ops[u]].all()]
    names = [_name(ops[u], layers) for u in order]
    families = Counter(_family(name) for name in set(names))
    return [
        Unit(
            name,
            tuple(ops[u]),
            bool(_family(name)) and families[_family(name)] > 1,
            float(graph.param_bytes[ops[u]].sum()),
        )
        for u, name in zip(order, names, strict=True)
    ]


def _name(ops: Sequence[int], layers: Sequence[str]) -> str:
    return (
        Counter(layers[v] for v in ops if layers[v]).most_common(1)[0][0]
        if any(layers[v] for v in ops)
        else ""
    )


def _family(name: str) -> str:
    """The list that a layer is a member of; empty for others."""
    match = BLOCK.fullmatch(name)
    return f"{match[1]}." if match else ""


def block_parts(blocks: int, stages: int, first: int = 0, last: int = 0) -> list[int]:
    """How many blocks each stage gets, where what comes before them counts as ``first`` blocks, and what comes
    behind as ``last``. With 1 and 1 it is torchtitan's rule, with 0 and 0 equal layers.

    >>> block_parts(12, 3), block_parts(12, 3, 1, 1)
    ([4, 4, 4], [4, 5, 3])

    Raises
    ------
    RuleError : a stage would have less than what is given to it.
    """
    least, more = divmod(blocks + first + last, stages)
    if stages > 1 and (least < max(first, last) or not least):
        raise RuleError(f"there are too few blocks ({blocks}) for {stages} stages")
    sizes = [least + (s < more) for s in range(stages)]
    sizes[0] -= first
    sizes[-1] -= last
    return sizes


def place_by_rule(problem: Problem, units: Sequence[Unit], rule: str) -> Placement:
    """The stages of a rule, on the devices in their order.

    Raises
    ------
    RuleError : the rule has no answer.
    """
    stage = RULES[rule](units, problem.devices)
    device = np.where(problem.graph.boundary & ~_is_read(problem), max(stage, default=0), 0).astype(np.int32)
    for unit, s in zip(units, stage, strict=True):
        device[list(unit.ops)] = s
    return Placement(device)


def _is_read(problem: Problem) -> BoolArray:
    """(ops,) whether anybody reads what an op makes."""
    found = np.zeros(problem.n, bool)
    found[problem.graph.arcs[0]] = True
    return found


def equal_layers(units: Sequence[Unit], stages: int) -> list[int]:
    """As many blocks for every stage; what is before the first goes with it, and so on."""
    return _by_blocks(units, block_parts(_count(units, stages), stages))


def torchtitan(units: Sequence[Unit], stages: int) -> list[int]:
    """Equal blocks, where what comes before them counts as one, and what comes behind too."""
    return _by_blocks(units, block_parts(_count(units, stages), stages, 1, 1))


def _count(units: Sequence[Unit], stages: int) -> int:
    blocks = sum(unit.block for unit in units)
    return blocks if blocks >= stages else len(units)


def _by_blocks(units: Sequence[Unit], sizes: Sequence[int]) -> list[int]:
    counted = [unit.block for unit in units]
    if sum(counted) < sum(sizes):
        counted = [True] * len(units)
    left, stage, found = list(sizes), 0, []
    for is_block in counted:
        if is_block:
            while not left[stage]:
                stage += 1
            left[stage] -= 1
        found.append(stage)
    last = max((i for i, is_block in enumerate(counted) if is_block), default=-1)
    return [len(sizes) - 1 if i > last else s for i, s in enumerate(found)]


def equal_parameters(units: Sequence[Unit], stages: int) -> list[int]:
    """The largest number of parameters of a stage as small as possible, every stage with one unit at least.

    A dynamic program over the ends of stages. Complexity: O(stages · units²).
    """
    n = len(units)
    if n < stages:
        raise RuleError(f"there are too few layers ({n}) for {stages} stages")
    total = np.concatenate([[0.0], np.cumsum([unit.parameters for unit in units])])
    best = np.where(np.arange(n + 1) > 0, total, np.inf)
    ends: list[np.ndarray] = []
    for _ in range(1, stages):
        worst = np.maximum(best[:, None], total[None, :] - total[:, None])
        worst[np.tril_indices(n + 1)] = np.inf
        ends.append(worst.argmin(axis=0))
        best = worst.min(axis=0)
    found, end = [0] * n, n
    for s in range(stages - 1, 0, -1):
        begin = int(ends[s - 1][end])
        found[begin:end] = [s] * (end - begin)
        end = begin
    return found


RULES: dict[str, Callable[[Sequence[Unit], int], list[int]]] = {
    "equal layers": equal_layers,
    "equal parameters": equal_parameters,
    "torchtitan": torchtitan,
}
"""Name -> stage of every unit, for a number of stages."""
