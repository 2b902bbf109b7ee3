"""HSDAG as published: parsing, and the only way that a gradient takes to the scores."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from learned_problems import layers
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from loadmaster import api
from loadmaster.placers.learned.hsdag_paper import HsdagPaper
from loadmaster.placers.learned.hsdag_paper._policy import PaperPolicy
from loadmaster.placers.learned.hsdag_paper._training import Step, side_by_side, step_loss
from loadmaster.placers.learned.units import Units, units_of


def paper_policy(units: Units, **more: object) -> PaperPolicy:
    torch.manual_seed(0)
    return PaperPolicy(units, replace(HsdagPaper(), **more))  # type: ignore[arg-type]


def test_d_parsing_to_the_fixed_point_leaves_one_group_per_component() -> None:
    problem = api.problem("zoo:inception-v3", "hsdag", "serial")
    units = units_of(problem, "chain")
    edges = coo_array((np.ones(len(units.first)), (units.first, units.second)), shape=(units.count,) * 2)
    components = connected_components(edges)[0]
    fixed = paper_policy(units, levels=0)
    assert len(fixed(fixed.start)[1]) == components
    once = paper_policy(units, levels=1)
    groups = len(once(once.start)[1])
    assert components < groups <= (units.count + components) // 2


def test_f_the_gradient_reaches_the_scores_through_the_pooling_factor_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    units = units_of(layers(30, width=4), "chain")
    policy = paper_policy(units)
    with torch.no_grad():
        _, log_q, levels, _ = policy(policy.start)
    ones = torch.ones(len(log_q))
    step = Step(policy.start, levels, torch.zeros(len(log_q), dtype=torch.int64), ones)
    step_loss(policy, step).backward()
    assert policy.edge_net[-1].weight.grad.abs().sum() > 0
    pool = PaperPolicy._pool

    def cut(self, h, adjacency, a, b, score, group):  # type: ignore[no-untyped-def]
        return pool(self, h, adjacency, a, b, score.detach(), group)

    monkeypatch.setattr(PaperPolicy, "_pool", cut)
    policy.zero_grad()
    step_loss(policy, step).backward()
    assert policy.edge_net[-1].weight.grad is None or policy.edge_net[-1].weight.grad.abs().sum() == 0
    assert policy.device_net[-1].weight.grad.abs().sum() > 0


@pytest.mark.parametrize("levels", [1, 2])
def test_steps_side_by_side_have_the_loss_of_the_steps_one_by_one(levels: int) -> None:
    units = units_of(layers(30, width=4), "chain")
    policy = paper_policy(units, levels=levels, dropout=0.0)
    steps = []
    for t in range(3):
        x = policy.start + 0.3 * t
        _, log_q, parse, _ = policy(x)
        device = torch.arange(len(log_q)) % 2
        steps.append(Step(x, parse, device, torch.full((len(device),), 1.0 + t)))
    one_by_one = sum(step_loss(policy, step).item() for step in steps)
    together = sum(step_loss(policy, step).item() for step in side_by_side(steps, units.count))
    assert together == pytest.approx(one_by_one, rel=1e-5)
