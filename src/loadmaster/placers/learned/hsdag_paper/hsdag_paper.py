"""``hsdag-paper``: HSDAG as published."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from loadmaster.placers.frame.search import Search
from loadmaster.placers.learned._features import FEATURES, check_features
from loadmaster.placers.learned._learner import Learner, missing_torch
from loadmaster.placers.learned.units import Units
from loadmaster.problem import Concurrent, Problem, Serial

__all__ = ["HsdagPaper"]

PAPER_FEATURES = tuple(part for part in FEATURES if part != "costs")


@dataclass(frozen=True)
class HsdagPaper(Learner):
    """HSDAG as published: the hyper-parameters of its table 6, REINFORCE without a baseline.

    For the latency of one inference (``serial``, ``concurrent``), trained on the problem: 100 episodes of 20
    placements, each step one pass of the network over the graph. Where paper and released code differ, this is the
    paper; what it leaves open is said in ``docs/hsdag.md``.

    References
    ----------
    S. Duan et al., "A structure-aware framework for learning device placements on computation graphs",
    NeurIPS 2024.
    """

    colocate: str = "chain"
    """Coarsening rules by which ops become the nodes of the graph."""
    features: tuple[str, ...] = PAPER_FEATURES
    """Parts of the features that are used."""
    hidden: int = 128
    """Width of all layers (``hidden_channel``)."""
    layers: int = 2
    """Graph convolutions before the edges are scored (``layer_gnn``)."""
    dropout: float = 0.2
    """Dropout rate in the network (``dropout_network``)."""
    levels: int = 1
    """How often the graph is parsed; 0 for until nothing changes, which leaves one group per component."""
    learning_rate: float = 1e-4
    """Learning rate of Adam."""
    episodes: int = 100
    """Episodes (``max_episodes``)."""
    steps: int = 20
    """Placements of an episode (``update_timestep``)."""
    epochs: int = 4
    """Updates after each episode (``K_epochs``)."""
    discount: float = 0.95
    """γ of equation 14; the paper gives no value, this is the released code's."""
    state_update: bool = True
    """Add each group's embedding to the features of its nodes after every step."""
    learn: bool = True
    """Off, the untrained policy is sampled."""
    checkpoint: str = ""
    """File to save the training to, and to resume from if it exists; empty for none."""
    checkpoint_seconds: float = 10.0
    """Seconds between two saves."""
    log_dir: str = ""
    """Folder for TensorBoard event files; empty for none."""
    threads: int = 1
    """Number of PyTorch threads."""

    name: ClassVar[str] = "hsdag-paper"
    summary: ClassVar[str] = "HSDAG as published: graph parsing and REINFORCE, 100 episodes of 20 placements"

    def __post_init__(self) -> None:
        check_features(self.features)

    def supports(self, problem: Problem) -> str | None:
        """The latency of one inference, where PyTorch is installed: what the paper is about."""
        if not isinstance(problem.model, Serial | Concurrent):
            return (
                "as published it minimizes the latency of one inference: use serial or concurrent, or hsdag"
            )
        return missing_torch()

    def train(self, search: Search, units: Units, seed: int) -> None:
        """Train until the budget is used up."""
        from loadmaster.placers.learned.hsdag_paper._training import train

        train(search, units, self, seed)
