"""Baechi's m-SCT: earliest task first, with devices kept for favourite children."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from scipy.optimize import linprog
from scipy.sparse import coo_array

from loadmaster.arrays import FloatArray, IntArray
from loadmaster.placers.frame.constructed import Construction, scheduled
from loadmaster.placers.rules._earliest_start import earliest_start_schedule
from loadmaster.problem import Placement, Problem

__all__ = ["MSct"]


@dataclass(frozen=True)
class MSct(Construction):
    """Earliest task first, where every op keeps its device for the child that it should share it with.

    The favourite children come from a linear relaxation (of the problem with unlimited devices) in which an
    op spares at most one child the transfer, and a child is spared at most one: x[i, j] is 0 where j is the
    favourite child of i. Times and transfers are means over the devices. After op i its device waits for the
    favourite child as long as the child could not start elsewhere either. Above ``largest`` arcs the
    relaxation is not solved; the favourite child is then the one on the longest mean path.

    Complexity: a linear program with ops + arcs variables, then as ``m-etf``.

    References
    ----------
    C. Hanen, A. Munier, "An approximation algorithm for scheduling dependent tasks on m processors with small
    communication delays", ETFA 1995 (SCT). B. Jeon et al., "Baechi: fast device placement of machine learning
    graphs", SoCC 2020, section 3.1.3 (with memory, and the threshold).
    """

    threshold: float = 0.1
    """A child is a favourite if its relaxed variable is below this (at most 0.5, so that it is the only one)."""
    largest: int = 10_000
    """Maximum number of arcs for which the linear program is solved."""

    name: ClassVar[str] = "m-sct"
    summary: ClassVar[str] = "Baechi's m-SCT: earliest start with devices kept for favourite children"

    def supports(self, problem: Problem) -> str | None:
        """Everything; the schedule counts transfers as ``concurrent`` does, whatever the model."""
        return None

    def candidates(self, problem: Problem) -> Iterator[Placement]:
        """One linear program and one pass; two evaluations."""
        return _candidates(problem, self)


def _candidates(problem: Problem, settings: MSct) -> Iterator[Placement]:
    if problem.n:
        link = arc_links(problem)
        if len(link) <= settings.largest:
            favourite = relaxed_favourites(problem, link, min(settings.threshold, 0.5))
        else:
            favourite = _longest_favourites(problem, link)
        yield from scheduled(problem, *earliest_start_schedule(problem, favourite))


def arc_links(problem: Problem) -> FloatArray:
    """(arcs,) mean seconds of the slowest transfer of each arc of the graph."""
    graph = problem.graph
    tail, head = (a.astype(np.int64) for a in graph.arcs)
    key = graph.tensor_producer[graph.edge_tensor].astype(np.int64) * problem.n + graph.consumer_op
    link = np.zeros(len(tail))
    np.maximum.at(link, np.searchsorted(tail * problem.n + head, key), problem.mean_link[graph.edge_tensor])
    return link


def relaxed_favourites(problem: Problem, link: FloatArray, threshold: float) -> IntArray:
    """(n,) favourite child of each op by the linear relaxation, or -1.

    Minimise the makespan w over starts s and 0 <= x <= 1: s_i + p_i + c_ij x_ij <= s_j for every arc, s_i +
    p_i <= w, and of all arcs out of an op, and of all into one, the x add up to at least their number less 1.
    """
    n, (tail, head) = problem.n, problem.graph.arcs
    arcs, favourite = len(tail), np.full(problem.n, -1, np.int32)
    scale = float(problem.mean_time.max() + link.max(initial=0.0))
    if arcs == 0 or not scale > 0:
        return favourite
    time, link = problem.mean_time / scale, link / scale
    every = np.arange(arcs)
    op = np.arange(n)
    # Columns: n starts, arcs x, w. Rows: arcs, ends, out-sums, in-sums.
    row = np.concatenate([every, every, every, arcs + op, arcs + op, arcs + n + tail, arcs + 2 * n + head])
    column = np.concatenate([tail, head, n + every, op, np.full(n, n + arcs), n + every, n + every])
    ones, each = np.ones(arcs), np.ones(n)
    value = np.concatenate([ones, -ones, link, each, -each, -ones, -ones])
    out_degree, in_degree = np.bincount(tail, minlength=n), np.bincount(head, minlength=n)
    limit = np.concatenate(
        [-time[tail], -time, 1.0 - np.maximum(out_degree, 1), 1.0 - np.maximum(in_degree, 1)]
    )
    upper = np.concatenate([np.full(n, np.inf), ones, [np.inf]])
    objective = np.zeros(n + arcs + 1)
    objective[-1] = 1.0
    found: Any = linprog(
        objective,
        A_ub=coo_array((value, (row, column)), shape=(arcs + 3 * n, n + arcs + 1)).tocsr(),
        b_ub=limit,
        bounds=np.stack([np.zeros(len(upper)), upper], axis=1),
        method="highs",
    )  # type: ignore[call-overload]
    if found.x is None:
        return _longest_favourites(problem, link)
    chosen = found.x[n : n + arcs] < threshold
    favourite[tail[chosen]] = head[chosen]
    return favourite


def _longest_favourites(problem: Problem, link: FloatArray) -> IntArray:
    """(n,) the child on the longest mean path of each op, if that op is also the child's last parent; or -1."""
    tail, head = problem.graph.arcs
    favourite, parent = np.full(problem.n, -1, np.int32), np.full(problem.n, -1, np.int32)
    by_child = np.argsort(link + problem.upward_rank[head], kind="stable")
    favourite[tail[by_child]] = head[by_child]
    by_parent = np.argsort(link - problem.upward_rank[tail], kind="stable")
    parent[head[by_parent]] = tail[by_parent]
    mutual = (favourite >= 0) & (parent[np.maximum(favourite, 0)] == np.arange(problem.n))
    return np.where(mutual, favourite, -1).astype(np.int32)
