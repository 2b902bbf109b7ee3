"""A sequence of groups in, a sequence of devices out: LSTM encoder and decoder with attention.

D. Bahdanau, K. Cho, Y. Bengio, "Neural machine translation by jointly learning to align and translate", ICLR
2015, as A. Mirhoseini et al. use it to place groups of ops (ICML 2017; ICLR 2018).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from loadmaster.placers.learned._sampling import sample_devices
from loadmaster.placers.learned._settings import SequenceToSequence
from loadmaster.placers.learned._tensors import NEVER

__all__ = ["Seq2Seq"]


CELL = ("weight_ih_l0", "weight_hh_l0", "bias_ih_l0", "bias_hh_l0")
"""What a step of an LSTM is computed with."""


class Encoded(NamedTuple):
    """What the decoder sees of the groups."""

    states: Tensor
    """(samples, groups, hidden)."""
    keys: Tensor
    """(samples, groups, attention)."""
    last: tuple[Tensor, Tensor]
    """State and cell, each (1, samples, hidden), that the decoder begins with."""


class Seq2Seq(nn.Module):  # type: ignore[misc]
    """Bidirectional encoder; a decoder that reads the device before, and attends to the encoder's states.

    Attention enters after the decoder's LSTM, so that all steps of a known sequence are one pass of
    :meth:`log_probs`, with keys computed once; only drawing goes step by step.
    """

    def __init__(self, columns: int, devices: int, settings: SequenceToSequence) -> None:
        super().__init__()
        h, self.devices, self.settings = settings.hidden, devices, settings
        self.enter = nn.Linear(columns, h)
        self.encoder = nn.LSTM(h, h // 2, bidirectional=True, batch_first=True)
        self.before = nn.Embedding(devices + 1, settings.embedding)  # the last one: nothing is placed yet
        self.decoder = nn.LSTM(settings.embedding + (h if settings.aligned else 0), h, batch_first=True)
        self.key, self.query = nn.Linear(h, settings.attention), nn.Linear(h, settings.attention, bias=False)
        self.score = nn.Linear(settings.attention, 1, bias=False)
        self.leave = nn.Linear(2 * h, devices)
        with torch.no_grad():  # begin with devices all alike
            self.leave.weight.mul_(0.1)
            self.leave.bias.zero_()

    def encode(self, groups: Tensor, samples: int) -> Encoded:
        """(1 or samples, groups, columns) features of the groups."""
        states, (hidden, cell) = self.encoder(torch.tanh(self.enter(groups)))
        both = (torch.cat([hidden[0], hidden[1]], dim=1)[None], torch.cat([cell[0], cell[1]], dim=1)[None])
        if len(groups) < samples:
            states = states.expand(samples, -1, -1)
            both = both[0].expand(-1, samples, -1).contiguous(), both[1].expand(-1, samples, -1).contiguous()
        return Encoded(states, self.key(states), both)

    def draw(self, groups: Tensor, allowed: Tensor, samples: int, rng: np.random.Generator) -> Tensor:
        """(samples, groups) devices, one after another. ``allowed``: (groups, devices)."""
        with torch.no_grad():
            encoded = self.encode(groups, samples)
            count = groups.shape[1]
            device = torch.full((samples, count), self.devices, dtype=torch.int64)
            uniform = rng.random((count, samples))
            cell = [getattr(self.decoder, name) for name in CELL]
            (hidden, memory), refused = (last[0] for last in encoded.last), ~allowed
            before = device[:, 0]
            for g in range(count):
                entered = self._inputs(encoded.states[:, g], before)
                hidden, memory = torch.lstm_cell(entered, (hidden, memory), *cell)
                logits = self._logits(encoded, hidden[:, None])[:, 0].masked_fill(refused[g], NEVER)
                q = torch.softmax(logits.double(), dim=1).numpy()
                before = torch.from_numpy(sample_devices(q, uniform[g]).astype(np.int64))
                device[:, g] = before
        return device

    def log_probs(self, groups: Tensor, allowed: Tensor, device: Tensor) -> Tensor:
        """(samples, groups, devices) log-probabilities of every group's device, given those before it."""
        samples, count = device.shape
        encoded = self.encode(groups, samples)
        nothing = torch.full((samples, 1), self.devices, dtype=torch.int64)
        before = torch.cat([nothing, device[:, : count - 1]], dim=1)
        out, _ = self.decoder(self._inputs(encoded.states, before), encoded.last)
        return torch.log_softmax(self._logits(encoded, out).masked_fill(~allowed, NEVER), dim=2)

    def _inputs(self, states: Tensor, before: Tensor) -> Tensor:
        known = self.before(before)
        return torch.cat([known, states], dim=-1) if self.settings.aligned else known

    def _logits(self, encoded: Encoded, out: Tensor) -> Tensor:
        """(samples, steps, devices) from the decoder's outputs (samples, steps, hidden)."""
        match = torch.tanh(encoded.keys[:, None] + self.query(out)[:, :, None])
        weight = torch.softmax(self.score(match)[..., 0], dim=2)
        logits = self.leave(torch.cat([weight @ encoded.states, out], dim=2))
        clip = self.settings.logit_clip
        return clip * torch.tanh(logits / clip) if clip else logits
