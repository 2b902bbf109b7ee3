"""PipeDream's partitioning: the graph is made a chain of blocks, and the chain is cut optimally."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from loadmaster.arrays import IntArray, LongArray
from loadmaster.graph.order import topological_order
from loadmaster.placers.frame.search import Search
from loadmaster.placers.frame.searcher import Searcher
from loadmaster.placers.stages._contraction import Contracted, contract, no_chains
from loadmaster.placers.stages.linear_dp._search import LinearSearch
from loadmaster.problem import Placement, Problem

__all__ = ["PipeDream", "chain_of_blocks"]


@dataclass(frozen=True)
class PipeDream(Searcher):
    """Dynamic programming over a chain of layers, branches contracted.

    PipeDream places chains of layers. As the baseline of Tarnawski et al. a graph with branches becomes one
    like this: in each biconnected component of the undirected graph the tails of its arcs are united (so that
    a branching is one block), blocks that wait for each other too, and the blocks are put into a topological
    order. Where it is cut, and what kind of device takes each stage, is then optimal. Stages are not
    replicated. A baseline for ``pipeline``: exact for chains of layers, not for graphs with branches.

    Complexity: O(ops + arcs) for the blocks, O(blocks * longest stage * (degree + states)) for the cut.

    References
    ----------
    D. Narayanan et al., "PipeDream: generalized pipeline parallelism for DNN training", SOSP 2019, section
    3.1. J. Tarnawski et al., "Efficient algorithms for device placement of DNN graph operators", NeurIPS
    2020, section 6.
    """

    name: ClassVar[str] = "pipedream"
    summary: ClassVar[str] = "PipeDream: branches contracted into a chain of blocks, which is cut optimally"

    def supports(self, problem: Problem) -> str | None:
        """Only ``pipeline``, and not too many kinds of devices."""
        return no_chains(problem)

    def explore(self, search: Search, start: Placement | None, seed: int) -> None:
        """Contract and cut; if no cut satisfies the constraints, any feasible placement."""
        problem = search.problem
        contracted = contract(problem)
        LinearSearch(search, contracted, seed).cut_at(*chain_of_blocks(contracted))


def chain_of_blocks(contracted: Contracted) -> tuple[IntArray, LongArray]:
    """A topological order of the atoms and the places between blocks."""
    n = contracted.atoms
    tail = np.repeat(np.arange(n, dtype=np.int32), np.diff(contracted.successor_ptr))
    head = contracted.successor
    component = _biconnected(n, tail, head)
    # The tails of a component in a row: uniting neighbours unites them all.
    by_component = np.argsort(component, kind="stable")
    same = component[by_component][1:] == component[by_component][:-1]
    a, b = tail[by_component][:-1][same], tail[by_component][1:][same]
    united = connected_components(coo_array((np.ones(len(a)), (a, b)), shape=(n, n)), directed=False)[1]
    quotient = coo_array((np.ones(len(tail)), (united[tail], united[head])), shape=(n, n))
    strong = connected_components(quotient, connection="strong")[1]
    blocks, label = np.unique(strong[united], return_inverse=True)
    arcs = np.stack([label[tail], label[head]]).astype(np.int32)
    arcs = np.unique(arcs[:, arcs[0] != arcs[1]], axis=1)
    order = topological_order(len(blocks), arcs[0], arcs[1])
    place = np.empty(len(blocks), np.int64)
    place[order] = np.arange(len(blocks))
    atoms = np.argsort(place[label], kind="stable").astype(np.int32)
    return atoms, np.concatenate([[0], np.cumsum(np.bincount(place[label], minlength=len(blocks)))])


def _biconnected(n: int, tail: IntArray, head: IntArray) -> LongArray:
    """(arcs,) biconnected component of each arc, the graph taken as undirected.

    J. Hopcroft, R. Tarjan, "Algorithm 447: efficient algorithms for graph manipulation", CACM 1973. O(n +
    arcs).
    """
    incident: list[list[tuple[int, int]]] = [[] for _ in range(n)]
    for arc, (u, v) in enumerate(zip(tail.tolist(), head.tolist(), strict=True)):
        incident[u].append((v, arc))
        incident[v].append((u, arc))
    component = np.full(len(tail), -1, np.int64)
    number, low = [-1] * n, [0] * n
    seen = components = 0
    waiting: list[int] = []
    for root in range(n):
        if number[root] >= 0:
            continue
        number[root] = low[root] = seen
        seen += 1
        walk = [(root, -1, iter(incident[root]))]
        while walk:
            v, came_by, rest = walk[-1]
            for u, arc in rest:
                if arc == came_by:
                    continue
                if number[u] < 0:
                    waiting.append(arc)
                    number[u] = low[u] = seen
                    seen += 1
                    walk.append((u, arc, iter(incident[u])))
                    break
                if number[u] < number[v]:
                    waiting.append(arc)
                    low[v] = min(low[v], number[u])
            else:
                walk.pop()
                if not walk:
                    continue
                above = walk[-1][0]
                low[above] = min(low[above], low[v])
                if low[v] >= number[above]:
                    while True:
                        arc = waiting.pop()
                        component[arc] = components
                        if arc == came_by:
                            break
                    components += 1
    return component
