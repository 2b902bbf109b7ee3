"""Placeto: an agent that visits the groups of ops one by one and moves each."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from loadmaster.placers.frame.search import Search
from loadmaster.placers.learned._settings import Reinforced
from loadmaster.placers.learned.units import Units

__all__ = ["Placeto"]


@dataclass(frozen=True)
class Placeto(Reinforced):
    """Visits the groups of ops one after another and gives each a device, seeing where the others are.

    Takes any execution model and trains on the problem. See :mod:`loadmaster.placers.learned.placeto._policy` for the
    algorithm and how it differs from public code. A step on g groups takes
    O(samples · rounds · (g² + g · hidden) · hidden) and one evaluation, or none if the group stays where it is.

    References
    ----------
    R. Addanki et al., "Placeto: learning generalizable device placement algorithms for distributed machine
    learning", NeurIPS 2019.
    """

    samples: int = 4
    """Episodes run in parallel in each round."""
    learning_rate: float = 1e-2
    """Learning rate of Adam at the start."""
    learning_rate_end: float = 1e-3
    """The same at the end of the budget; in between it falls linearly."""
    gradient: float = 1.25
    """Norm at which a gradient is clipped."""
    colocate: str = "chain,matching:128"
    """Coarsening rules by which ops become the groups that are placed."""
    initial: Literal["best", "random", "first"] = "best"
    """Where an episode starts: the best placement so far, a random one, or the first one known."""
    hidden: int = 16
    """Width of a group's embedding in one direction."""
    rounds: int = 8
    """Rounds of messages in each direction."""
    discount: float = 0.9
    """Discount of later rewards; 1 as published."""
    entropy: float = 0.1
    """Weight of the entropy of a decision at the beginning, in standard deviations of the return."""
    patience: int = 20
    """Rounds in a row without a better placement, next to nothing being moved, after which training ends."""
    episodes: int = 10
    """The baseline of a step is the mean of its returns in this many rounds of episodes."""
    minibatches: int = 8
    """Steps of Adam for each round of episodes, each on a part of its steps."""

    name: ClassVar[str] = "placeto"
    summary: ClassVar[str] = "a graph network moves groups of ops one by one (Placeto, NeurIPS 2019)"

    def train(self, search: Search, units: Units, seed: int) -> None:
        """Train until the budget is used up."""
        from loadmaster.placers.learned.placeto._training import train

        train(search, units, self, seed)
