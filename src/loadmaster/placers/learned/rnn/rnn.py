"""The RNN-based placer (ColocRL): a sequence-to-sequence LSTM over groups of ops."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from loadmaster.placers.frame.search import Search
from loadmaster.placers.learned._settings import SequenceToSequence
from loadmaster.placers.learned.units import Units

__all__ = ["Rnn"]


@dataclass(frozen=True)
class Rnn(SequenceToSequence):
    """A sequence-to-sequence network reads groups of ops and writes their devices; trained on the problem.

    Takes any execution model. See :mod:`loadmaster.placers.learned.rnn._policy` for the algorithm and how it differs
    from public code. An update on g groups costs O(samples · g² · attention).

    References
    ----------
    A. Mirhoseini et al., "Device placement optimization with reinforcement learning", ICML 2017.
    """

    colocate: str = "chain,matching:128"
    """Coarsening rules by which ops become the groups that are placed."""
    features: tuple[str, ...] = ("types", "shapes")
    """Parts of the features of a group besides its neighbours; see ``hsdag``."""

    name: ClassVar[str] = "rnn"
    summary: ClassVar[str] = "an LSTM reads groups of ops and writes their devices (ColocRL, ICML 2017)"

    def train(self, search: Search, units: Units, seed: int) -> None:
        """Train until the budget is used up."""
        from loadmaster.placers.learned._reinforce import reinforce
        from loadmaster.placers.learned.rnn._policy import RnnPolicy

        reinforce(search, units, RnnPolicy(units, self), self, seed)
