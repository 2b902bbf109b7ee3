"""Balanced blocks: a sequence of ops cut so that the work is even, whatever the transfers cost."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from loadmaster.placers.frame.search import Search
from loadmaster.placers.frame.searcher import Searcher
from loadmaster.placers.stages._contraction import Contracted, contract, no_chains
from loadmaster.placers.stages.linear_dp._search import LinearSearch
from loadmaster.problem import Placement, Problem

__all__ = ["Balanced"]


@dataclass(frozen=True)
class Balanced(Searcher):
    """One topological order cut into blocks whose largest compute time is least; transfers are ignored.

    What libraries for pipelined training offer to divide a sequence of layers by measured time. Memory, pins
    and unsupported ops are respected, and devices of several kinds get blocks that suit them. A baseline for
    ``pipeline``: optimal for that order if transfers are free, with no claim beyond that.

    Complexity: O(atoms * longest block * states).

    References
    ----------
    I. Bárány, V. Grinberg, "Block partitions of sequences", Israel Journal of Mathematics 206, 2015.
    C. Kim et al., "torchgpipe: on-the-fly pipeline parallelism for training giant models", 2020, section 3.
    """

    name: ClassVar[str] = "balanced"
    summary: ClassVar[str] = "a topological order cut into blocks of even work, transfers ignored"

    def supports(self, problem: Problem) -> str | None:
        """Only ``pipeline``, and not too many kinds of devices."""
        return no_chains(problem)

    def explore(self, search: Search, start: Placement | None, seed: int) -> None:
        """Cut; if no cut satisfies the constraints, any feasible placement."""
        problem = search.problem
        silent = _silent(contract(problem))
        LinearSearch(search, silent, seed).cut_at(np.arange(silent.atoms, dtype=np.int32))


def _silent(contracted: Contracted) -> Contracted:
    """The same problem without nets."""
    tables = contracted.tables
    nothing = np.zeros(0, np.int32)
    return replace(
        contracted, tables=tables._replace(net_ptr=np.zeros_like(tables.net_ptr), net=nothing, role=nothing)
    )
