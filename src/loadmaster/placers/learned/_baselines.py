"""The learned baselines as the table of names knows them: hyper-parameters, and PyTorch only when they run.

Each differs from its public code where that is wrong or cannot learn; the modules of the algorithms say where.
All of them mask pins, forbids and ops that a device does not support, cost a draw that overfills a memory as
the nearest one that does not, and give what is infeasible still the failing signal.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from loadmaster.placers.frame.search import Search
from loadmaster.placers.learned._running import Learner
from loadmaster.placers.learned._units import Units

__all__ = ["Hdp", "Placeto", "Reinforced", "Rnn", "SequenceToSequence"]


@dataclass(frozen=True)
class Reinforced(Learner):
    """What training by REINFORCE needs."""

    samples: int = 32
    """Placements drawn and costed for one update."""
    learning_rate: float = 3e-3
    """Of Adam."""
    decay: float = 0.9
    """Of the moving average of the reward that is the baseline."""
    gradient: float = 1.0
    """Norm at which a gradient is clipped."""
    entropy: float = 0.5
    """Weight of the entropy of a decision at the beginning, in mean distances of a reward from the baseline."""
    entropy_end: float = 0.001
    """The same at the end of the budget; in between it falls geometrically."""
    failing: float = 4.0
    """Cost of an infeasible placement, in terms of the cost of the first placement."""
    checkpoint: str = ""
    """File to save the training to and to go on from if it exists; empty for none."""
    checkpoint_seconds: float = 10.0
    """Time between two saves."""
    log_dir: str = ""
    """Folder for scalars (TensorBoard event files); empty for none."""
    threads: int = 1
    """Threads of PyTorch; the simulator has its own."""


@dataclass(frozen=True)
class SequenceToSequence(Reinforced):
    """What the network needs that reads groups and writes devices."""

    hidden: int = 64
    """Width of the encoder (half of it in each direction) and of the decoder."""
    attention: int = 32
    """Width of the attention."""
    embedding: int = 16
    """Width of the embedding of a device."""
    aligned: bool = True
    """The decoder also reads the encoder's state of the group that it is about to place; off, it has to find
    the group by attention."""
    logit_clip: float = 5.0
    """Logits are kept within plus and minus this by a tanh; 0 for no limit."""


@dataclass(frozen=True)
class Rnn(SequenceToSequence):
    """A sequence-to-sequence network reads groups of ops and writes their devices.

    See :mod:`loadmaster.placers.learned.rnn._training` for the algorithm and how it differs from public code.

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
        from loadmaster.placers.learned.rnn import _training as rnn

        rnn.train(search, units, self, seed)


@dataclass(frozen=True)
class Hdp(SequenceToSequence):
    """Hierarchical device placement: one network groups the ops, another places the groups.

    See :mod:`loadmaster.placers.learned.hdp._training` for the algorithm and how it differs from public code.

    References
    ----------
    A. Mirhoseini et al., "A hierarchical model for device placement", ICLR 2018.
    """

    colocate: str = ""
    """Coarsening rules by which ops become the units that are grouped; empty for every op by itself."""
    groups: int = 0
    """Groups; 0 for 20 for each device, at most 256."""
    grouper: int = 64
    """Width of the grouper's hidden layer."""
    grouper_scale: float = 10.0
    """How decided the grouper is before learning: a factor on the weights of its last layer."""
    grouper_entropy: float = 0.0
    """Weight of the entropy of choosing a group, relative to that of choosing a device."""

    name: ClassVar[str] = "hdp"
    summary: ClassVar[str] = "one network groups the ops, an LSTM places the groups (HDP, ICLR 2018)"

    def train(self, search: Search, units: Units, seed: int) -> None:
        """Train until the budget is used up."""
        from loadmaster.placers.learned.hdp import _training as hdp

        hdp.train(search, units, self, seed)


@dataclass(frozen=True)
class Placeto(Reinforced):
    """Visits the groups of ops one after another and gives each a device, seeing where the others are.

    See :mod:`loadmaster.placers.learned.placeto._training` for the algorithm and how it differs from public code.

    References
    ----------
    R. Addanki et al., "Placeto: learning generalizable device placement algorithms for distributed machine
    learning", NeurIPS 2019.
    """

    samples: int = 4
    """Episodes side by side for one round."""
    learning_rate: float = 1e-2
    """Of Adam, at the beginning."""
    learning_rate_end: float = 1e-3
    """The same at the end of the budget; in between it falls linearly."""
    gradient: float = 1.25
    """Norm at which a gradient is clipped."""
    colocate: str = "chain,matching:128"
    """Coarsening rules by which ops become the groups that are placed."""
    initial: Literal["best", "random", "first"] = "best"
    """What an episode begins at: the best placement so far, a random one, or the first one known."""
    hidden: int = 16
    """Width of a group's embedding in one direction."""
    rounds: int = 8
    """Rounds of messages in each direction."""
    discount: float = 0.9
    """Of later rewards; 1 as published."""
    entropy: float = 0.1
    """Weight of the entropy of a decision at the beginning, in standard deviations of the return."""
    patience: int = 20
    """Rounds in a row without a better placement, next to nothing being moved, after which training ends."""
    episodes: int = 10
    """The baseline of a step is the mean of its returns in so many rounds of episodes."""
    minibatches: int = 8
    """Steps of Adam for each round of episodes, each on a part of its steps."""

    name: ClassVar[str] = "placeto"
    summary: ClassVar[str] = (
        "visits groups one by one, moves each where the graph network says (NeurIPS 2019)"
    )

    def train(self, search: Search, units: Units, seed: int) -> None:
        """Train until the budget is used up."""
        from loadmaster.placers.learned.placeto import _training as placeto

        placeto.train(search, units, self, seed)
