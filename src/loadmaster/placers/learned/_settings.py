"""Hyper-parameters that several of the learned baselines share; they import no PyTorch."""

from __future__ import annotations

from dataclasses import dataclass

from loadmaster.placers.learned._learner import Learner

__all__ = ["Reinforced", "SequenceToSequence"]


@dataclass(frozen=True)
class Reinforced(Learner):
    """What training by REINFORCE needs."""

    samples: int = 32
    """Placements sampled and evaluated per update."""
    learning_rate: float = 3e-3
    """Learning rate of Adam."""
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
    """File to save the training to, and to resume from if it exists; empty for none."""
    checkpoint_seconds: float = 10.0
    """Seconds between two saves."""
    log_dir: str = ""
    """Folder for TensorBoard event files; empty for none."""
    threads: int = 1
    """Number of PyTorch threads; the simulator has its own."""


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
