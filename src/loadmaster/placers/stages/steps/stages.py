"""Stages for one step of microbatches."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from loadmaster.arrays import IntArray
from loadmaster.errors import UndecidedError
from loadmaster.placers.frame.contradictions import note_infeasible
from loadmaster.placers.frame.feasible import atoms_of, find_feasible, random_order
from loadmaster.placers.frame.search import Search
from loadmaster.placers.frame.searcher import Searcher
from loadmaster.placers.stages.steps._cuts import (
    Chains,
    all_ideals,
    any_order,
    chains_of,
    cuts_along,
    cuts_of,
)
from loadmaster.placers.stages.steps._moves import improve
from loadmaster.placers.stages.steps._tree import BETTER, Tree
from loadmaster.problem import Pipeline, Placement, Problem
from loadmaster.problem.bounds import Bound
from loadmaster.units import bytes_text

__all__ = ["Stages"]


@dataclass(frozen=True)
class Stages(Searcher):
    """Chains of stages for ``pipeline`` with microbatches: branch and bound over all cuts, with a proof.

    Where the atoms (colocation classes that a chain keeps together) have few ideals, as whole layers of a network have,
    stage after stage is chosen among all of them, and a dynamic program from the other end says what any rest takes at
    least; every complete chain is simulated. The answer is proved optimal, or the gap is the best bound of what is
    still open. Larger graphs are cut along topological orders in the same way, without a proof, and then improved by
    moving ops over boundaries.

    Complexity: the bounds take O(stages * pairs of ideals * states of the devices) for each number of stages; the tree
    is exponential at worst.
    """

    ideals: int = 3000
    """Most ideals that are searched completely."""
    orders: int = 12
    """Topological orders along which a larger graph is cut,"""
    positions: int = 250
    """at so many places of each,"""
    nodes: int = 100_000
    """with so many nodes of the tree for each."""

    keeps_start: ClassVar[bool] = True
    knows_steps: ClassVar[bool] = True
    name: ClassVar[str] = "stages"
    summary: ClassVar[str] = (
        "stages for one step of microbatches: branch and bound over cuts, exact if they are few"
    )

    def supports(self, problem: Problem) -> str | None:
        """Only ``pipeline`` with microbatches."""
        model = problem.model
        if isinstance(model, Pipeline) and model.microbatches:
            return None
        return "it is for one step of a pipeline: use --model pipeline with --microbatches"

    def explore(self, search: Search, start: Placement | None, seed: int) -> None:
        """Exact where the ideals are few, else along orders."""
        problem = search.problem
        if start is not None:
            search.try_placement(start)
            search.check()
        chains = chains_of(problem)
        if chains.atoms == 0:
            find_feasible(search, seed)
            return
        member = all_ideals(chains, self.ideals) if search.simulated else None
        if member is not None:
            self._prove(search, Tree(search, chains, cuts_of(problem, member)), chains)
            return
        self._along_orders(search, chains, seed)

    def _prove(self, search: Search, tree: Tree, chains: Chains) -> None:
        def tell() -> None:
            found = min(tree.bound, search.cost) * BETTER
            if chains.certain and found > search.bound.value and search.best is not None:
                search.bound = Bound(found, "branch and bound over cuts")

        tell()
        if not tree.run(on_slice=tell):
            return
        if search.best is None:
            if not chains.certain:
                raise UndecidedError(
                    "no chain of stages was found that fits with the model's inputs and outputs"
                )
            raise note_infeasible(search.problem, _why(search.problem, chains))
        tell()

    def _along_orders(self, search: Search, chains: Chains, seed: int) -> None:
        problem, rng = search.problem, np.random.default_rng(seed)
        # A warm-up on a problem like this one compiles what smaller ones need, too.
        cuts_of(problem, np.repeat([[False], [True]], chains.atoms, axis=1))
        for attempt in range(self.orders):
            order = any_order(chains) if attempt == 0 else _random_order(problem, chains, rng)
            Tree(search, chains, cuts_along(problem, order, self.positions)).run(nodes=self.nodes)
            if search.best is not None:
                improve(search, chains)


def _random_order(problem: Problem, chains: Chains, rng: np.random.Generator) -> IntArray:
    atoms = atoms_of(problem)
    number = np.full(atoms.count, -1, np.int32)
    number[atoms.of_op] = chains.atom
    order = number[random_order(atoms, rng)]
    return order[order >= 0]


def _why(problem: Problem, chains: Chains) -> str:
    """Why no chain fits, in words."""
    model = problem.model
    assert isinstance(model, Pipeline)
    held = float(chains.memory.sum())
    kept = float(chains.kept.sum())
    room = chains.capacity * [len(kind) for kind in chains.kinds]
    parts = [
        f"no chain of stages satisfies all constraints, as a search over all of them showed: the ops hold "
        f"{bytes_text(held)} and keep {bytes_text(kept)} per microbatch in flight, and all devices together have room "
        f"for {bytes_text(float(room.sum()))}"
    ]
    if model.schedule == "gpipe":
        parts.append(f"gpipe keeps all {model.microbatches} microbatches: try --schedule 1f1b")
    if model.checkpoint == "never" and kept > 0:
        parts.append("--checkpoint auto keeps less")
    return "; ".join(parts)
