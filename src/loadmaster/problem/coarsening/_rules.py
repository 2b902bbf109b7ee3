"""The rules by which ops are put into groups.

A rule takes a problem and gives a representative per op; ops with the same one are a group. All of them leave
the graph of the groups acyclic, never mix forward and backward ops, and never make a group that no device may
take. The rules that nobody asked for op by op (all but ``colour`` and ``fused``) are more careful still. They
take no device away from an op that needs time, make no colocation class larger than half of a device's
memory, and do not tie two large classes together because two of their ops are neighbours: the layers of an
unrolled network would otherwise become one, by the last op of the one and the first of the next.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import numpy.typing as npt

from loadmaster.arrays import FloatArray, IntArray
from loadmaster.errors import InputError
from loadmaster.graph import constant_valued
from loadmaster.graph.order import distinct_pairs
from loadmaster.problem._model import Pipeline, Serial
from loadmaster.problem._problem import Problem
from loadmaster.problem.coarsening._acyclic import (
    earliest_starts,
    merge_into_readers,
    merge_labels,
    merge_pairs,
    quotient_arcs,
)
from loadmaster.problem.coarsening._guard import Guard

__all__ = ["chain", "colour", "constants", "fused", "matching", "matching_rounds", "scope", "zero"]


ROOM = 0.5
"""Share of a device's memory that a colocation class made by merging may take up: the rest must still be
packed."""
TIED = 0.25
"""Share of the mean load of a device up to which two classes may be tied together by a pair of their
groups."""
HEAVY = 4.0
"""A group made by matching is at most so many times as heavy as the mean of the target."""
NEXT = 3
"""Groups of one label that are left apart are tried with so many of those that follow."""
VISITS = 1000
"""Matching gives up a merge when the search for a path has visited so many groups: there are other pairs."""


def colour(problem: Problem) -> IntArray:
    """One forward and one backward group per colocation class; the two remain tied by colocation.

    This is the preprocessing of J. Tarnawski et al., "Efficient algorithms for device placement of DNN graph
    operators", NeurIPS 2020. Members between which a path leads outside of the class stay apart.
    """
    size = np.bincount(problem.class_of, minlength=problem.classes)
    label = np.where(size[problem.class_of] > 1, problem.class_of, -1)
    return _by_label(problem, label, _guard(problem, asked=True))


def fused(problem: Problem, groups: Iterable[Sequence[str]]) -> IntArray:
    """Groups given from outside by the names of their ops, such as the kernels that a runtime fuses.

    Raises
    ------
    InputError : an op is unknown, or is in two groups.
    """
    label = np.full(problem.n, -1, np.int64)
    for g, names in enumerate(groups):
        for name in names:
            v = problem.graph.index.get(name)
            if v is None:
                raise InputError(
                    f"group {g} names op {name!r}, which is not in {problem.graph.name or 'the graph'}"
                )
            if label[v] not in (-1, g):
                raise InputError(f"op {name!r} is in group {label[v]} and in group {g}")
            label[v] = g
    return _by_label(problem, label, _guard(problem, asked=True))


def scope(problem: Problem, depth: int) -> IntArray:
    """Ops whose names share the first ``depth`` scopes: ``encoder/layer1/matmul`` is in ``encoder/layer1`` at
    depth 2.

    Scopes are separated by slashes, or by dots in a graph whose names have no slash. Ops outside any scope
    stay alone.
    """
    mark = "/" if any("/" in name for name in problem.graph.names) else "."
    number: dict[tuple[str, ...], int] = {}
    label = np.full(problem.n, -1, np.int64)
    for v, name in enumerate(problem.graph.names):
        scopes = tuple(name.strip(mark).split(mark)[:-1][:depth])
        if scopes:
            label[v] = number.setdefault(scopes, len(number))
    return _by_label(problem, label, _guard(problem))


def chain(problem: Problem) -> IntArray:
    """Ops with one child whose only parent they are come together with it, so that chains become one group.

    The co-location rule of HSDAG (S. Duan et al., "A structure-aware framework for learning device placements
    on computation graphs", NeurIPS 2024, appendix G), which follows Mirhoseini et al., ICML 2017.
    """
    tail, head = problem.graph.arcs
    children = np.bincount(tail, minlength=problem.n)
    parents = np.bincount(head, minlength=problem.n)
    link = np.flatnonzero((children[tail] == 1) & (parents[head] == 1))
    link = link[np.argsort(problem.graph.position[tail[link]], kind="stable")]
    return merge_pairs(problem.n, (tail, head), (tail[link], head[link]), _guard(problem))


def constants(problem: Problem) -> IntArray:
    """Constants, and ops that read constants only, come together with the first op that reads them."""
    graph = problem.graph
    return merge_into_readers(graph.arcs, graph.topological_order, constant_valued(graph), _guard(problem))


def zero(problem: Problem) -> IntArray:
    """Ops that take no time on any device and have a single neighbour come together with it, again and again.

    After the clean-up step of Tarnawski et al. (see :func:`colour`), for ops of either direction.
    """
    n = problem.n
    tail, head = problem.graph.arcs
    # Leaves are peeled off; the exclusive-or of an op's neighbours is the last of them when one is left.
    both = distinct_pairs(np.minimum(tail, head), np.maximum(tail, head))
    degree = np.bincount(both.ravel(), minlength=n)
    rest = np.zeros(n, np.int64)
    np.bitwise_xor.at(rest, both[0], both[1])
    np.bitwise_xor.at(rest, both[1], both[0])
    idle = (problem.time == 0).all(axis=1)
    leaves = np.flatnonzero(idle & (degree == 1)).tolist()
    first, second = [], []
    while leaves:
        v = leaves.pop()
        if degree[v] != 1:
            continue
        w = int(rest[v])
        first.append(v)
        second.append(w)
        degree[v] = 0
        degree[w] -= 1
        rest[w] ^= v
        if idle[w] and degree[w] == 1:
            leaves.append(w)
    pairs = np.array(first, np.int32), np.array(second, np.int32)
    return merge_pairs(n, (tail, head), pairs, _guard(problem))


def matching(problem: Problem, target: int) -> IntArray:
    """Heavy-edge matching in rounds, until ``target`` groups are left or nothing more can be merged.

    A round visits the arcs by falling rating and merges their ends, where at least one of the two has not been
    merged in this round. The rating is what the merge saves, the time of the tensors between the two (a tensor
    with k readers counts 1/k for each), and where time is a schedule (``concurrent``, ``offload``) less what it
    delays: the other readers of the first must wait until the second has its inputs and is done. Groups heavier
    than a few times the mean of the target are not made, as long as others can be.

    Complexity: O(arcs log arcs) per round and some log(n / target) rounds.

    References
    ----------
    G. Karypis, V. Kumar, "A fast and high quality multilevel scheme for partitioning irregular graphs", SIAM
    J. Sci. Comput. 1998. J. Herrmann et al., "Multilevel algorithms for acyclic partitioning of directed
    acyclic graphs", SIAM J. Sci. Comput. 2019.
    """
    group = np.arange(problem.n, dtype=np.int32)
    for made, _ in matching_rounds(problem, target):
        group = made
    return group


def matching_rounds(
    problem: Problem,
    target: int,
    *,
    rng: np.random.Generator | None = None,
    noise: float = 0.0,
    device: IntArray | None = None,
) -> Iterator[tuple[IntArray, IntArray]]:
    """After every round of :func:`matching`: (n,) a group per op, and (n,) the colocation class that it is in by then.

    Parameters
    ----------
    rng, noise : the times of tensors are multiplied by random factors of this spread (a power of e).
    device : (n,) only ops on the same one come together, so that this placement can still be expressed.
    """
    graph = problem.graph
    guard = _guard(problem)
    mass = _share(problem.mean_time) + _share(problem.memory)
    total = float(mass.sum())
    most = HEAVY * total / max(target, 1)
    scheduled = not isinstance(problem.model, Serial | Pipeline)
    readers = np.diff(graph.consumer_ptr)[graph.edge_tensor]
    time = problem.mean_link
    if rng is not None and noise > 0:
        time = time * np.exp(noise * rng.standard_normal(len(time)))
    edge_weight = time[graph.edge_tensor] / readers
    edge_tail, edge_head = graph.tensor_producer[graph.edge_tensor], graph.consumer_op
    group = np.arange(problem.n, dtype=np.int32)
    groups = problem.n
    while groups > target:
        tail, head, weight = _weighted_arcs(group, groups, edge_tail, edge_head, edge_weight)
        if scheduled:
            weight -= _delay(tail, head, _added(problem.mean_time, group, groups))
        visit = np.lexsort((head, tail, -weight))
        member = _first_member(group, groups)
        if device is not None:
            at = device[member]
            visit = visit[at[tail[visit]] == at[head[visit]]]
        merged = merge_pairs(
            groups,
            (tail, head),
            (tail[visit], head[visit]),
            guard._replace(side=guard.side[member], class_of=guard.class_of[member]),
            mass=_added(mass, group, groups),
            most=most,
            once=True,
            goal=target,
            limit=VISITS,
        )
        group, left = _renumbered(merged[group])
        if left > 0.95 * groups:
            if left == groups and most >= total:
                break
            most *= 2.0
        groups = left
        yield group, _roots(guard.parent)[problem.class_of]


def _roots(parent: IntArray) -> IntArray:
    """The representatives of a union-find."""
    root = parent.copy()
    while not np.array_equal(root, root[root]):
        root = root[root]
    return root


def _guard(problem: Problem, *, asked: bool = False) -> Guard:
    """What must not be merged; ``asked``: the user named the groups, so only what cannot work is refused."""
    model = problem.model
    peak = getattr(model, "memory", "sum") == "peak"
    memory = _added(problem.resident if peak else problem.memory, problem.class_of, problem.classes)
    forward = np.zeros(problem.classes, np.bool_)
    graph = problem.graph
    forward[problem.class_of[~graph.backward & ~graph.boundary]] = True
    # Contiguity does not look at boundary ops: beside others they would bring arcs that do not count.
    apart = isinstance(model, Pipeline) and model.contiguity != "none"
    return Guard(
        side=(graph.backward + 2 * (graph.boundary & apart)).astype(np.uint8),
        class_of=problem.class_of,
        parent=np.arange(problem.classes, dtype=np.int32),
        allowed=problem.class_allowed.copy(),
        memory=memory,
        load=_share(_added(problem.mean_time, problem.class_of, problem.classes)),
        groups=np.bincount(problem.class_of, minlength=problem.classes).astype(np.int32),
        forward=forward,
        room=problem.capacity * (1.0 if asked else ROOM),
        capacity=problem.capacity,
        most=np.inf if asked else TIED / problem.devices,
        keep=not asked,
        # Orphan classes are constrained by mirrored arcs, which would vanish beside forward ops.
        strict=isinstance(model, Pipeline) and model.contiguity == "chain",
    )


def _by_label(problem: Problem, label: npt.NDArray[np.integer], guard: Guard) -> IntArray:
    """Groups of one label and side: all that can be merged at once, then what is left of a label pair by
    pair."""
    graph, n = problem.graph, problem.n
    label = np.where(label >= 0, 4 * label + guard.side, -1)
    group, groups = _renumbered(
        merge_labels(n, graph.arcs, graph.topological_order, label.astype(np.int32), guard)
    )
    member = _first_member(group, groups)
    first, second = [], []
    by_label: dict[int, list[int]] = {}
    for g in np.argsort(graph.position[member], kind="stable").tolist():
        if label[member[g]] >= 0:
            by_label.setdefault(int(label[member[g]]), []).append(g)
    for mates in by_label.values():
        for gap in range(1, NEXT + 1):
            for g, h in zip(mates, mates[gap:], strict=False):
                first.append(g)
                second.append(h)
    merged = merge_pairs(
        groups,
        quotient_arcs(group, groups, *graph.arcs),
        (np.array(first, np.int32), np.array(second, np.int32)),
        guard._replace(side=guard.side[member], class_of=guard.class_of[member]),
    )
    return merged[group]


def _renumbered(representative: IntArray) -> tuple[IntArray, int]:
    """Groups numbered from 0 by their representatives, and how many there are."""
    found, group = np.unique(representative, return_inverse=True)
    return group.astype(np.int32).reshape(-1), len(found)


def _first_member(group: IntArray, groups: int) -> IntArray:
    """(groups,) the member with the smallest index."""
    member = np.empty(groups, np.int32)
    member[group[::-1]] = np.arange(len(group), dtype=np.int32)[::-1]
    return member


def _weighted_arcs(
    group: IntArray, groups: int, tail: IntArray, head: IntArray, weight: FloatArray
) -> tuple[IntArray, IntArray, FloatArray]:
    """The distinct arcs between groups, with the weights of their edges added up."""
    a, b = group[tail].astype(np.int64), group[head].astype(np.int64)
    apart = a != b
    key, where = np.unique((a * groups + b)[apart], return_inverse=True)
    total = _added(weight[apart], where.reshape(-1), len(key))
    return (key // groups).astype(np.int32), (key % groups).astype(np.int32), total


def _delay(tail: IntArray, head: IntArray, time: FloatArray) -> FloatArray:
    """(arcs,) seconds by which merging the ends of an arc puts off what else reads the first, at most."""
    start = earliest_starts(tail, head, time)
    wait = start[head] - start[tail] - time[tail]
    others = np.bincount(tail, minlength=len(time))[tail] > 1
    return np.where(others, wait + time[head], 0.0)


def _added(amount: FloatArray, group: npt.NDArray[np.integer], groups: int) -> FloatArray:
    """(groups,) the amounts of the members added up."""
    return np.bincount(group, amount, groups).astype(np.float64)


def _share(amount: FloatArray) -> FloatArray:
    """Each op's share of the sum."""
    total = float(amount.sum())
    return amount / total if total > 0 else np.zeros_like(amount)
