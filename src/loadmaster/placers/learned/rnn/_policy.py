"""The RNN-based placer (ColocRL): a sequence-to-sequence LSTM over groups of ops, trained by REINFORCE.

A. Mirhoseini et al., "Device placement optimization with reinforcement learning", ICML 2017.

Groups come from co-location rules, in topological order. A group is read as the share of each op type among
its members, its output shape, and its neighbours; reward is minus the root of the run time against a moving
average. What differs from public code, in particular that of the HSDAG paper, which compares with this method:

- there the loss multiplies log-probabilities by +√(run time): the slowest placements are reinforced most. Here
  the sign is right, and there is a baseline;
- an LSTM, as published, not a GRU; the attention's keys are computed once, not once a step (which is what
  runs out of memory on BERT there);
- neighbours are two rows, readers and producers; no width depends on a number typed in by hand;
- several placements are drawn for an update (the paper draws several, too, one for each worker);
- the decoder reads the encoder's state of the group that it places. Otherwise it has to learn to count first;
- a weight on entropy that falls, in place of a temperature: without it the policy is soon at a single device.

An update on g groups costs O(samples · g² · attention).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor, nn

from loadmaster.arrays import FloatArray, IntArray
from loadmaster.placers.learned._features import features_of
from loadmaster.placers.learned._seq2seq import Seq2Seq
from loadmaster.placers.learned._tensors import floats
from loadmaster.placers.learned.units import Units

if TYPE_CHECKING:
    from loadmaster.placers.learned.rnn.rnn import Rnn

__all__ = ["RnnPolicy", "neighbour_rows"]


class RnnPolicy(nn.Module):  # type: ignore[misc]
    """The network, on the groups of one problem."""

    def __init__(self, units: Units, settings: Rnn) -> None:
        super().__init__()
        columns = np.concatenate([features_of(units, settings.features), neighbour_rows(units)], axis=1)
        self.register_buffer("groups", floats(columns)[None], persistent=False)
        self.register_buffer("allowed", torch.from_numpy(units.allowed), persistent=False)
        self.placer = Seq2Seq(columns.shape[1], units.problem.devices, settings)

    def draw(self, samples: int, rng: np.random.Generator) -> tuple[IntArray, Tensor]:
        """(samples, groups) devices, which are also the decisions."""
        device = self.placer.draw(self.groups, self.allowed, samples, rng)
        return device.numpy().astype(np.int32), device

    def log_prob(self, decisions: Tensor) -> tuple[Tensor, Tensor]:
        """(samples,) log-probabilities, and the entropies of the decisions on the way."""
        log_q = self.placer.log_probs(self.groups, self.allowed, decisions)
        chosen = log_q.gather(2, decisions[..., None])[..., 0]
        return chosen.sum(1), -(log_q.exp() * log_q).sum((1, 2))


def neighbour_rows(units: Units) -> FloatArray:
    """(groups, 2 * groups) which groups read this one's data, and which ones' data it reads."""
    reads = np.zeros((units.count, units.count))
    reads[units.tail, units.head] = 1.0
    return np.concatenate([reads, reads.T], axis=1)
