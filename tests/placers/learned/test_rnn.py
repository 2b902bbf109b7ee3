"""The RNN-based placer: sequences of devices, and what it sees of its groups."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest
import torch
from learned_problems import layers

from loadmaster.placers.learned._seq2seq import Seq2Seq
from loadmaster.placers.learned.rnn import Rnn
from loadmaster.placers.learned.rnn._policy import neighbour_rows
from loadmaster.placers.learned.units import units_of


@pytest.mark.parametrize("aligned", [True, False])
def test_the_probabilities_of_all_sequences_of_devices_add_up_to_one(aligned: bool) -> None:
    torch.manual_seed(0)
    placer = Seq2Seq(5, 3, replace(Rnn(), aligned=aligned))
    with torch.no_grad():
        placer.leave.weight.mul_(30.0)
    groups, allowed = torch.randn(1, 3, 5), torch.ones(3, 3, dtype=torch.bool)
    allowed[1, 2] = False
    every = torch.tensor(list(itertools.product(range(3), repeat=3)))
    log_q = placer.log_probs(groups, allowed, every)
    total = log_q.gather(2, every[..., None])[..., 0].sum(1).exp()
    assert total.sum().item() == pytest.approx(1.0, abs=1e-5)
    assert total[every[:, 1] == 2].sum().item() == 0.0
    assert total.std() > 1e-3
    # and what is drawn step by step follows them
    rng = np.random.default_rng(0)
    drawn = placer.draw(groups, allowed, 4000, rng)
    share = torch.bincount((drawn * torch.tensor([9, 3, 1])).sum(1), minlength=27) / 4000
    assert (share - total).abs().max().item() < 0.03


def test_groups_know_who_reads_them_and_whom_they_read() -> None:
    units = units_of(layers(12, width=3), "")
    rows = neighbour_rows(units)
    arcs = set(zip(units.tail.tolist(), units.head.tolist(), strict=True))
    n = units.count
    for a, b in itertools.product(range(n), repeat=2):
        assert rows[a, b] == ((a, b) in arcs)
        assert rows[a, n + b] == ((b, a) in arcs)
