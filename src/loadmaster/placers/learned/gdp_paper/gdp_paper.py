"""``gdp-paper``: GDP as published, trained on one graph or on several at once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal

from loadmaster.errors import InputError
from loadmaster.placers.frame.search import Budget, Search
from loadmaster.placers.learned._learner import Learner, missing_torch
from loadmaster.placers.learned.units import Units
from loadmaster.problem import Concurrent, Problem, Serial, Solution

if TYPE_CHECKING:
    from loadmaster.placers.learned.gdp_paper._state import State

__all__ = ["GdpPaper", "train_batch"]


@dataclass(frozen=True)
class GdpPaper(Learner):
    """GDP as published: GraphSAGE, segment-recurrent attention, superposition, PPO.

    For the time of one step (``serial``, ``concurrent``). By itself it trains on the one graph it is given (the
    paper's GDP-one). With ``weights`` it starts from what :func:`train_batch` learnt from other graphs: zero-shot with
    ``learn=False``, fine-tuned with ``updates=50``. :mod:`loadmaster.placers.learned.gdp_paper._training` has the
    algorithm, and says of every choice whether it is the paper's or ours. A pass costs
    O(nodes · (segment + memory) + arcs) for each layer.

    References
    ----------
    Y. Zhou et al., "GDP: Generalized device placement for dataflow graphs", arXiv 1910.01578, 2019.
    """

    colocate: str = ""
    """Coarsening rules by which ops become the nodes that are decided about; empty for every op, or colocation
    class, by itself."""
    costs: bool = True
    """Work, time and memory among the features; off, the policy sees types, shapes and structure only."""
    type_width: int = 32
    """Width of the embedding of op types."""
    neighbours: Literal["both", "in", "out"] = "both"
    """Whose messages a node takes: those of all its neighbours, of its producers, or of its consumers."""
    rounds: int = 4
    """Rounds of GraphSAGE."""
    width: int = 64
    """Width of all layers."""
    layers: int = 2
    """Attention layers."""
    heads: int = 4
    """Attention heads per layer."""
    segment: int = 128
    """Nodes that attend to each other."""
    memory: int = 128
    """Nodes before the segment that they attend to as well, without a gradient; at most ``segment``."""
    attention: bool = True
    """Off, the placer is a stack of dense layers for each node by itself (ablation)."""
    superposition: Literal["graph", "node", "none"] = "graph"
    """What gates the input of every dense layer of the placer: the context of the whole graph, of each node, or
    nothing (ablation)."""
    contrast: float = 3.0
    """How much the device logits differ before learning, as a factor."""
    batch: int = 16
    """Placements sampled and evaluated per update."""
    greedy: bool = True
    """Also evaluate the most likely placement at every update, without learning from it."""
    learning_rate: float = 3e-3
    """Learning rate of Adam."""
    epochs: int = 4
    """Clipped steps for each update."""
    clip: float = 0.2
    """How far a decision's probability may move in one update, as a ratio."""
    decay: float = 0.9
    """How much of the earlier trials the baseline forgets from update to update; at 0 it is the mean reward of
    all of them, at 1 that of the last update's."""
    entropy: float = 0.5
    """Weight of the mean entropy of a decision (1 is uniform) at the beginning."""
    entropy_end: float = 0.001
    """The same at the end of the budget; in between it falls geometrically."""
    repair: bool = False
    """Where memory is short, evaluate the nearest placement that fits instead of one that does not."""
    learn: bool = True
    """Off, the policy is sampled as it is."""
    updates: int = 0
    """Stop after this many updates; 0: when the budget is used up."""
    weights: str = ""
    """File with a state to start from; empty for random weights."""
    checkpoint: str = ""
    """File to save the training to, and to resume from if it exists; empty for none."""
    checkpoint_seconds: float = 10.0
    """Seconds between two saves."""
    log_dir: str = ""
    """Folder for TensorBoard event files; empty for none."""
    threads: int = 1
    """Number of PyTorch threads."""

    name: ClassVar[str] = "gdp-paper"
    summary: ClassVar[str] = (
        "GDP as published: GraphSAGE, segment attention and superposition, trained by PPO"
    )
    unlimited: ClassVar[Budget] = Budget(evaluations=16_000)

    def __post_init__(self) -> None:
        for field in ("type_width", "rounds", "width", "layers", "heads", "segment", "batch", "epochs"):
            if getattr(self, field) < 1:
                raise InputError(f"gdp-paper: {field} must be at least 1, not {getattr(self, field)}")
        if not 0 <= self.memory <= self.segment:
            raise InputError(f"gdp-paper: memory must be 0 to {self.segment} (segment), not {self.memory}")
        if self.width % self.heads:
            raise InputError(f"gdp-paper: width {self.width} is not a multiple of heads {self.heads}")

    def supports(self, problem: Problem) -> str | None:
        """The time of one step, where PyTorch is installed: what the paper is about."""
        if not isinstance(problem.model, Serial | Concurrent):
            return "as published it minimizes the time of one step: use serial or concurrent, or gdp"
        return missing_torch()

    def train(self, search: Search, units: Units, seed: int) -> None:
        """Train until the budget is used up."""
        from loadmaster.placers.learned.gdp_paper._training import train_one

        train_one(search, units, self, seed)


def train_batch(
    problems: Sequence[Problem],
    settings: GdpPaper | None = None,
    *,
    evaluations: int,
    seed: int = 0,
    state: State | None = None,
    colocate: Sequence[str] | None = None,
    on_update: Callable[[int, list[float]], None] | None = None,
) -> tuple[State, list[Solution]]:
    """Train one policy on several graphs at once: what it learnt, and the best placement drawn for each graph.

    Parameters
    ----------
    problems : their devices should be alike and in the same order; the largest number is the policy's.
    evaluations : evaluations per graph.
    state : weights to start from; random ones by default.
    colocate : coarsening rules of each graph, in place of the one of ``settings``.
    on_update : called with the number of updates made and the best costs so far. Ctrl-C keeps what was learnt.
    """
    if not problems:
        raise InputError("gdp-paper: there is no graph to train on")
    from loadmaster.placers.learned.gdp_paper._training import train_several

    settings = settings or GdpPaper()
    rules = colocate or [settings.colocate] * len(problems)
    return train_several(problems, rules, settings, evaluations, seed, state, on_update)
