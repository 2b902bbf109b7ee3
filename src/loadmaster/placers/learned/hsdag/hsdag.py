"""``hsdag``: one policy that parses the graph into groups and gives every group a device."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import inf
from typing import TYPE_CHECKING, ClassVar, Literal

from loadmaster.errors import InputError
from loadmaster.placers.frame.search import Budget, Search
from loadmaster.placers.learned._features import FEATURES, check_features
from loadmaster.placers.learned._learner import Learner
from loadmaster.placers.learned.units import Units
from loadmaster.placers.search._incumbents import borrow
from loadmaster.placers.search.local_search import LocalSearch

if TYPE_CHECKING:
    from loadmaster.placers.learned.hsdag._weights import Weights

__all__ = ["Hsdag", "HsdagPolish"]


@dataclass(frozen=True)
class Hsdag(Learner):
    """HSDAG as good as we can make it: groups and devices drawn from one policy, trained by PPO.

    Takes any execution model and trains on the problem. Nothing but the policy's own draws is tried, so the answer is
    what was learnt. See :mod:`loadmaster.placers.learned.hsdag._policy` for the algorithm and ``docs/hsdag.md`` for
    how it differs from the paper, and why. An update costs O(batch · edges · log) for drawing and
    O((units + edges) · hidden²) for the network.

    References
    ----------
    S. Duan et al., "A structure-aware framework for learning device placements on computation graphs",
    NeurIPS 2024.
    """

    weights: str = "none"
    """File of weights (``loadmaster pretrain --method hsdag``), ``shipped`` for those of the package, ``none`` to begin
    without any. With weights, learning begins from what was learnt on other problems: ``features``, ``hidden`` and
    ``layers`` are those of the weights, and a placement that is given as the start is an input of the network."""
    colocate: str = ""
    """Coarsening rules by which ops become the units that are decided about (``chain`` is the paper's); empty
    for every op, or colocation class, by itself."""
    features: tuple[str, ...] = FEATURES
    """Parts of the features that are used."""
    hidden: int = 64
    """Width of all layers."""
    layers: int = 2
    """Rounds of messages."""
    groups: Literal["learned", "random", "fixed", "none"] = "learned"
    """Dominant edges by learned scores, drawn uniformly, drawn uniformly once and kept, or every unit alone."""
    levels: int = 1
    """How often the graph is parsed: in every further pass groups may join neighbouring groups."""
    singletons: bool = True
    """A unit may stay alone; off, each with a neighbour joins one (as published)."""
    alone: float = 0.0
    """How much more likely a unit is, before learning, to stay alone than to join some neighbour, as a logarithm."""
    own: float = 10.0
    """How fast a unit's own logits are learnt beside those that the network gives it; 0 for none of its own."""
    batch: int = 64
    """Placements sampled and evaluated per update; fewer under a small budget of evaluations, for 64 updates."""
    elites: int = 8
    """Best placements so far that are learnt from again in every update, beside the batch; where the graph is
    parsed in one pass only."""
    learning_rate: float = 3e-3
    """Learning rate of Adam."""
    ppo: bool = True
    """Several clipped steps for each batch; off, one plain REINFORCE step with the same advantages."""
    epochs: int = 2
    """Steps for each batch."""
    clip: float = 0.2
    """How far a decision's probability may move in one update, as a ratio."""
    lean: float = 3.0
    """Standard deviation of what all units of a placement have in common, at the beginning: whole placements lean
    towards a device, so that being on one device is tried early. It falls to nothing in 64 updates, or over the run
    where there are fewer."""
    entropy: float = 0.5
    """Weight of the entropy of a decision at the beginning, in standard deviations of the reward."""
    entropy_end: float = 0.001
    """The same at the end of the budget; in between it falls geometrically."""
    edge_entropy: float = 0.3
    """Weight of the entropy of choosing a dominant edge, relative to that of choosing a device."""
    state_update: bool = False
    """Let the policy see where the best placement so far has each unit."""
    learn: bool = True
    """Off, the untrained policy is sampled: what learning is worth."""
    runs: int = 1
    """Training runs, one after another, each with its share of the budget; the best placement of all is the answer."""
    updates: int = 0
    """Stop after this many updates; 0: when the budget is used up."""
    checkpoint: str = ""
    """File to save the training to, and to resume from if it exists; empty for none."""
    checkpoint_seconds: float = 10.0
    """Seconds between two saves."""
    log_dir: str = ""
    """Folder for TensorBoard event files; empty for none."""
    threads: int = 1
    """Number of PyTorch threads; the simulator has its own."""

    name: ClassVar[str] = "hsdag"
    summary: ClassVar[str] = "a policy learns groups of ops and their devices together (HSDAG, improved)"

    def __post_init__(self) -> None:
        check_features(self.features)
        if self.runs < 1:
            raise InputError(f"runs must be >= 1, not {self.runs}")
        if self.elites < 0 or not 0 <= self.lean < inf:
            raise InputError(f"elites and lean must be >= 0 and finite, not {self.elites} and {self.lean:g}")
        if self.levels < 1:
            raise InputError(f"levels must be >= 1, not {self.levels}: hsdag-paper has the fixed point")

        if self.weights != "none" and (self.levels > 1 or self.state_update):
            raise InputError(
                "pre-trained weights know one pass and no state: set weights=none for levels or state_update"
            )

    def read(self) -> Weights | None:
        """The weights, or None."""
        from loadmaster.placers.learned.hsdag._weights import SHIPPED, load_weights

        if self.weights == "none":
            return None
        return load_weights(SHIPPED if self.weights == "shipped" else self.weights)

    def train(self, search: Search, units: Units, seed: int) -> None:
        """Train until the budget is used up."""
        from loadmaster.placers.learned.hsdag._training import train

        train(search, units, self, seed)
        search.check()


@dataclass(frozen=True)
class HsdagPolish(Hsdag):
    """:class:`Hsdag`, and local search from the best placement that the policy drew."""

    polish: float = 0.3
    """Share of the budget that is left to local search."""

    name: ClassVar[str] = "hsdag+polish"
    summary: ClassVar[str] = "hsdag, then local search from the best placement it drew"

    def train(self, search: Search, units: Units, seed: int) -> None:
        """Train for the policy's share of the budget, then search."""
        from loadmaster.placers.learned.hsdag._training import train

        train(search, units, self, seed, 1.0 - self.polish)
        borrow(search, replace(LocalSearch(), constructed=False), Budget(), seed)
