"""HDP: groups and devices are drawn together, and groups are read as the paper says."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from learned_problems import layers

from loadmaster.graph import GraphBuilder
from loadmaster.hardware import accelerators
from loadmaster.placers.learned.hdp import Hdp
from loadmaster.placers.learned.hdp._policy import SLOTS, Decisions, HdpPolicy, group_columns, neighbour_slots
from loadmaster.placers.learned.units import units_of
from loadmaster.problem import Problem, Serial


def small(n: int = 12, seed: int = 1, devices: int = 2, **more: object) -> Problem:
    return layers(n, seed, width=3, devices=devices, **more)  # type: ignore[arg-type]


def test_log_probabilities_of_groups_and_devices_are_joint() -> None:
    b = GraphBuilder("three")
    ops = [b.op(f"op{i}", t) for i, t in enumerate(("Conv", "Relu", "MatMul"))]
    b.tensor(ops[0], bytes=1.0, consumers=[ops[1], ops[2]])
    graph, cluster = b.build(), accelerators(1, 1)
    units = units_of(Problem.make(graph, cluster, Serial(), time=np.ones((3, 2))), "")
    torch.manual_seed(1)
    policy = HdpPolicy(units, replace(Hdp(), groups=2))
    with torch.no_grad():
        policy.placer.leave.weight.mul_(30.0)
    cases = list(
        itertools.product(itertools.product(range(2), repeat=3), itertools.product(range(2), repeat=2))
    )
    group = np.array([g for g, _ in cases], np.int32)
    device = torch.tensor([d for _, d in cases])
    columns = torch.from_numpy(group_columns(units, group, 2, policy.types, policy.sizes)).float()
    log_prob, _ = policy.log_prob(Decisions(torch.from_numpy(group.astype(np.int64)), columns, device))
    assert log_prob.exp().sum().item() == pytest.approx(1.0, abs=1e-5)
    log_prob.sum().backward()
    assert policy.grouper[0].weight.grad.abs().sum() > 0
    assert policy.placer.leave.weight.grad.abs().sum() > 0


@given(st.integers(0, 2**32 - 1))
def test_the_slots_of_an_op_hold_all_its_neighbours_producers_and_readers(seed: int) -> None:
    rng = np.random.default_rng(seed)
    units = units_of(small(int(rng.integers(2, 12)), seed=int(rng.integers(100))), "")
    slots = neighbour_slots(units).reshape(units.count, SLOTS, 2)
    for v in range(units.count):
        readers = set(units.head[units.tail == v].tolist())
        producers = set(units.tail[units.head == v].tolist())
        assert (slots[v, :, 1] == 1).sum() + (slots[v, :, 1] == -1).sum() == min(
            len(readers) + len(producers), SLOTS
        )
        if len(readers) + len(producers) <= SLOTS:
            assert (slots[v, :, 1] == 1).sum() == len(readers)
            assert (slots[v, slots[v, :, 1] == 1, 0] > 0).all()
            assert (slots[v, slots[v, :, 1] == -1, 0] < 0).all()


@given(st.integers(0, 2**32 - 1))
def test_group_features_are_traffic_types_and_sizes_each_in_columns_of_its_own(seed: int) -> None:
    rng = np.random.default_rng(seed)
    units = units_of(small(8, seed=seed % 50), "")
    groups = 3
    group = rng.integers(0, groups, (2, units.count)).astype(np.int32)
    types, sizes = rng.random((units.count, 4)), rng.random((units.count, 5))
    found = group_columns(units, group, groups, types, sizes)
    assert found.shape == (2, groups, 2 * groups + 9)
    for s, g in itertools.product(range(2), range(groups)):
        out, into = np.zeros(groups), np.zeros(groups)
        for a, b in zip(units.tail, units.head, strict=True):
            out[group[s, b]] += group[s, a] == g
            into[group[s, a]] += group[s, b] == g
        mine = group[s] == g
        parts = [out, into, types[mine].sum(0), sizes[mine].sum(0)]
        assert found[s, g] == pytest.approx(np.concatenate([p / (p.max() + 1) for p in parts]))


def test_an_op_that_may_not_follow_its_group_goes_where_it_may() -> None:
    problem = small(10, devices=3, pins={0: 2}, forbids=[(1, 0), (1, 1)])
    units = units_of(problem, "")
    torch.manual_seed(0)
    devices, _ = HdpPolicy(units, replace(Hdp(), groups=2)).draw(50, np.random.default_rng(0))
    assert units.allowed[np.arange(units.count), devices].all()
    assert len(np.unique(devices)) == 3
