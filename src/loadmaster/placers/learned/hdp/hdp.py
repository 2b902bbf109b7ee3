"""HDP: one network groups the ops, another places the groups."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from loadmaster.placers.frame.search import Search
from loadmaster.placers.learned._settings import SequenceToSequence
from loadmaster.placers.learned.units import Units

__all__ = ["Hdp"]


@dataclass(frozen=True)
class Hdp(SequenceToSequence):
    """Hierarchical device placement: one network groups the ops, another places the groups; trained on the problem.

    Takes any execution model. See :mod:`loadmaster.placers.learned.hdp._policy` for the algorithm and how it differs
    from public code. An update on n ops and g groups costs O(samples · (n + edges + g² · attention)) and O(n · g).

    References
    ----------
    A. Mirhoseini et al., "A hierarchical model for device placement", ICLR 2018.
    """

    colocate: str = ""
    """Coarsening rules by which ops become the units that are grouped; empty for every op by itself."""
    groups: int = 0
    """Number of groups; 0 means 20 per device, at most 256."""
    grouper: int = 64
    """Width of the grouper's hidden layer."""
    grouper_scale: float = 10.0
    """How confident the grouper is before training: a factor on the weights of its last layer."""
    grouper_entropy: float = 0.0
    """Weight of the entropy of choosing a group, relative to that of choosing a device."""

    name: ClassVar[str] = "hdp"
    summary: ClassVar[str] = "one network groups the ops, an LSTM places the groups (HDP, ICLR 2018)"

    def train(self, search: Search, units: Units, seed: int) -> None:
        """Train until the budget is used up."""
        from loadmaster.placers.learned._reinforce import reinforce
        from loadmaster.placers.learned.hdp._policy import HdpPolicy

        reinforce(search, units, HdpPolicy(units, self), self, seed)
