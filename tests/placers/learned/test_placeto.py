"""Placeto: episodes, messages between groups, and what the network sees."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from learned_problems import layers

from loadmaster.placers import Budget, Search
from loadmaster.placers.learned.placeto import Placeto
from loadmaster.placers.learned.placeto._policy import BothWays, PlacetoPolicy, relations
from loadmaster.placers.learned.placeto._training import play, returns_to_go
from loadmaster.placers.learned.units import units_of
from loadmaster.problem import Problem


def small(n: int = 12, seed: int = 1, devices: int = 2, **more: object) -> Problem:
    return layers(n, seed, width=3, devices=devices, **more)  # type: ignore[arg-type]


def policy_of(problem: Problem, **more: object) -> PlacetoPolicy:
    torch.manual_seed(0)
    return PlacetoPolicy(units_of(problem, ""), replace(Placeto(), **more))  # type: ignore[arg-type]


@settings(max_examples=15)
@given(st.integers(0, 2**32 - 1))
def test_the_rewards_of_an_episode_add_up_to_what_it_gained(seed: int) -> None:
    problem = small(9, seed=seed % 100)
    policy = policy_of(problem, rounds=1)
    rng = np.random.default_rng(seed)
    start = rng.integers(0, 2, (3, 9)).astype(np.int32)
    search = Search(problem, Budget(evaluations=10_000), "placeto")
    search.simulated = False  # an optimum that meets the bound must not end the episode
    episodes = play(search, policy, start, 1.0, 4.0, rng)
    final = episodes.before[-1].copy()
    final[:, episodes.visited[-1]] = episodes.action[-1]
    count = search.evaluator.evaluations
    ends = [search.evaluator.evaluate_batch(p[:, policy.units.of_op])[0] for p in (start, final)]
    assert episodes.reward.sum(axis=0) == pytest.approx(ends[0] - ends[1], abs=1e-9)
    moved = int((episodes.before[np.arange(9), :, episodes.visited] != episodes.action).sum())
    assert count == 3 + moved  # the beginnings, and every step that changed something
    value = returns_to_go(episodes.reward, 1.0)
    assert value[0] == pytest.approx(ends[0] - ends[1], abs=1e-9)
    assert value == pytest.approx(episodes.cost[:-1] - episodes.cost[-1], abs=1e-9)


def test_returns_discount_what_comes_later() -> None:
    reward = np.array([[1.0], [10.0], [100.0]])
    assert returns_to_go(reward, 0.1)[:, 0].tolist() == pytest.approx([3.0, 20.0, 100.0])


def two_layers(net: BothWays, side: int, x: torch.Tensor) -> torch.Tensor:
    for weight, bias in zip(net.weight, net.bias, strict=True):
        x = torch.relu(x @ weight[side] + bias[side, 0])
    return x


def test_message_passing_equals_messages_passed_one_by_one() -> None:
    problem = small(8)
    policy = policy_of(problem, rounds=3)
    units = policy.units
    x = policy.features(np.zeros((1, 8), np.int32), np.array([2]))
    with torch.no_grad():
        found = policy.embed(x)[0]
        own = policy.enter(x[0])
        for side, direction in ((0, (units.tail, units.head)), (1, (units.head, units.tail))):
            e = {v: own[v] for v in range(8)}
            for _ in range(3):
                after = {}
                for v in range(8):
                    sources = [int(a) for a, b in zip(*direction, strict=True) if b == v]
                    total = sum(
                        (two_layers(policy.sent, side, e[u]) for u in sources), torch.zeros(len(own[v]))
                    )
                    after[v] = own[v] + (two_layers(policy.got, side, total) if sources else 0.0)
                e = after
            width = own.shape[1]
            for v in range(8):
                assert torch.allclose(found[v, side * width : (side + 1) * width], e[v], atol=1e-5)


@given(st.integers(0, 2**32 - 1))
def test_groups_before_after_and_beside_are_those_that_paths_say(seed: int) -> None:
    units = units_of(small(9, seed=seed % 100), "")
    before, after, beside = relations(units.count, units.tail, units.head)
    link = np.eye(units.count)
    link[units.tail, units.head] = 1
    reach = np.linalg.matrix_power(link, units.count) > 0
    np.fill_diagonal(reach, val=False)
    assert (after == reach).all()
    assert (before == reach.T).all()
    assert ((before | after | beside) == ~np.eye(units.count, dtype=bool)).all()
    assert not (beside & (before | after)).any()


def test_the_network_sees_where_the_other_groups_are() -> None:
    policy = policy_of(small(8))
    with torch.no_grad():
        policy.leave[4].weight.mul_(10.0)
    one = np.zeros((1, 8), np.int32)
    other = one.copy()
    other[0, 5] = 1
    at = np.array([2])
    assert not torch.allclose(policy(one, at), policy(other, at))
