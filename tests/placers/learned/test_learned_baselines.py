"""The learned baselines: `placeto`, `rnn` and `hdp` do what their papers say, and learn."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from loadmaster.graph import GraphBuilder, layered
from loadmaster.hardware import accelerators
from loadmaster.placers import PLACERS, Budget, Progress, Search
from loadmaster.placers.learned._baselines import Hdp, Placeto, Rnn
from loadmaster.placers.learned._reinforce import Baseline, rewards
from loadmaster.placers.learned._seq2seq import Seq2Seq
from loadmaster.placers.learned._units import units_of
from loadmaster.placers.learned.hdp import _training as hdp
from loadmaster.placers.learned.placeto import _training as placeto
from loadmaster.placers.learned.rnn import _training as rnn
from loadmaster.problem import Problem, Serial

NAMES = ("placeto", "rnn", "hdp")


def small(n: int = 12, seed: int = 1, devices: int = 2, **more: object) -> Problem:
    """A problem whose optimum meets no bound, so that nobody stops early."""
    graph, cluster = layered(n, width=3, seed=seed), accelerators(devices - 1, 1)
    rng = np.random.default_rng(seed)
    return Problem.make(
        graph, cluster, Serial(), time=0.5 + rng.random((n, devices)), size=rng.random(graph.tensors),
        latency=0.1 * (1 - np.eye(devices)), rate=0.2 * (1 - np.eye(devices)), **more,  # type: ignore[arg-type]
    )  # fmt: skip


def switches(count: int = 10) -> Problem:
    """A chain in which every op is far faster on one of the devices, in no pattern; cuts cost next to nothing."""
    b = GraphBuilder("switches")
    turn = np.array([0, 1, 1, 0, 1, 0, 0, 0, 1, 1] * (count // 10))
    ops = [b.op(f"op{i}", ("Conv", "MatMul")[turn[i]], flops=1.0 + i) for i in range(count)]
    for one, next_one in itertools.pairwise(ops):
        b.tensor(one, bytes=1.0, consumers=[next_one])
    graph, cluster = b.build(), accelerators(1, 1)
    time = np.where(turn[:, None] == np.arange(2), 1.0, 2.0)
    return Problem.make(
        graph, cluster, Serial(), time=time, latency=np.zeros((2, 2)), rate=0.01 * (1 - np.eye(2))
    )


# -- learning ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", NAMES)
def test_the_best_device_of_every_group_is_learnt(name: str) -> None:
    problem = switches()
    placer = replace(PLACERS[name], colocate="", entropy=0.1)  # type: ignore[type-var]
    found = placer.place(problem, budget=Budget(evaluations=1500))
    best = 10 + 0.01 * 5
    assert found.cost == pytest.approx(best)


@pytest.mark.parametrize("name", NAMES)
def test_training_leaves_the_random_numbers_and_threads_of_pytorch_alone(name: str) -> None:
    torch.manual_seed(3)
    before, threads = torch.get_rng_state(), torch.get_num_threads()
    PLACERS[name].place(small(), budget=Budget(evaluations=30))
    assert torch.equal(torch.get_rng_state(), before)
    assert torch.get_num_threads() == threads


@pytest.mark.parametrize("name", NAMES)
def test_a_run_that_was_killed_goes_on_and_ends_as_if_it_had_not_been(name: str, tmp_path: Path) -> None:
    problem, budget = small(seed=3), Budget(evaluations=160)
    whole = PLACERS[name].place(problem, budget=budget, seed=2)
    file = tmp_path / "run.pt"
    saving = replace(PLACERS[name], checkpoint=str(file), checkpoint_seconds=0.0)  # type: ignore[type-var]

    class Killed(BaseException):
        pass

    def kill(progress: Progress) -> None:
        if progress.evaluations > 70 and file.exists():
            raise Killed

    quiet = Search.tell
    try:
        Search.tell = lambda self, *, always=False: quiet(self, always=True)  # type: ignore[method-assign]
        with pytest.raises(Killed):
            saving.place(problem, budget=budget, seed=2, on_progress=kill)
    finally:
        Search.tell = quiet  # type: ignore[method-assign]
    resumed = saving.place(problem, budget=budget, seed=2)
    assert resumed.placement == whole.placement
    assert resumed.evaluations == whole.evaluations


def test_the_baseline_begins_at_the_first_rewards_and_follows_slowly() -> None:
    baseline = Baseline(0.9)
    assert baseline.advantages(np.array([-3.0, -1.0])).tolist() == [-1.0, 1.0]
    assert baseline.value == -2.0
    gain = baseline.advantages(np.array([-1.0, -1.0]))
    assert gain[0] == gain[1] > 0
    assert baseline.value == pytest.approx(-1.9)


def test_a_faster_placement_has_the_larger_reward_and_an_infeasible_one_the_failing_one() -> None:
    value = rewards(np.array([1.0, 4.0, np.inf]), 1.0, 9.0)
    assert value.tolist() == [-1.0, -2.0, -3.0]


# -- sequence to sequence ------------------------------------------------------------------------------------


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
    units = units_of(small(), "")
    rows = rnn.neighbour_rows(units)
    arcs = set(zip(units.tail.tolist(), units.head.tolist(), strict=True))
    n = units.count
    for a, b in itertools.product(range(n), repeat=2):
        assert rows[a, b] == ((a, b) in arcs)
        assert rows[a, n + b] == ((b, a) in arcs)


# -- HDP -----------------------------------------------------------------------------------------------------


def test_log_probabilities_of_groups_and_devices_are_joint() -> None:
    b = GraphBuilder("three")
    ops = [b.op(f"op{i}", t) for i, t in enumerate(("Conv", "Relu", "MatMul"))]
    b.tensor(ops[0], bytes=1.0, consumers=[ops[1], ops[2]])
    graph, cluster = b.build(), accelerators(1, 1)
    units = units_of(Problem.make(graph, cluster, Serial(), time=np.ones((3, 2))), "")
    torch.manual_seed(1)
    policy = hdp.HdpPolicy(units, replace(Hdp(), groups=2))
    with torch.no_grad():
        policy.placer.leave.weight.mul_(30.0)
    cases = list(
        itertools.product(itertools.product(range(2), repeat=3), itertools.product(range(2), repeat=2))
    )
    group = np.array([g for g, _ in cases], np.int32)
    device = torch.tensor([d for _, d in cases])
    columns = torch.from_numpy(hdp.group_columns(units, group, 2, policy.types, policy.sizes)).float()
    log_prob, _ = policy.log_prob(hdp.Decisions(torch.from_numpy(group.astype(np.int64)), columns, device))
    assert log_prob.exp().sum().item() == pytest.approx(1.0, abs=1e-5)
    log_prob.sum().backward()
    assert policy.grouper[0].weight.grad.abs().sum() > 0
    assert policy.placer.leave.weight.grad.abs().sum() > 0


@given(st.integers(0, 2**32 - 1))
def test_the_slots_of_an_op_hold_all_its_neighbours_producers_and_readers(seed: int) -> None:
    rng = np.random.default_rng(seed)
    units = units_of(small(int(rng.integers(2, 12)), seed=int(rng.integers(100))), "")
    slots = hdp.neighbour_slots(units).reshape(units.count, hdp.SLOTS, 2)
    for v in range(units.count):
        readers = set(units.head[units.tail == v].tolist())
        producers = set(units.tail[units.head == v].tolist())
        assert (slots[v, :, 1] == 1).sum() + (slots[v, :, 1] == -1).sum() == min(
            len(readers) + len(producers), hdp.SLOTS
        )
        if len(readers) + len(producers) <= hdp.SLOTS:
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
    found = hdp.group_columns(units, group, groups, types, sizes)
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
    devices, _ = hdp.HdpPolicy(units, replace(Hdp(), groups=2)).draw(50, np.random.default_rng(0))
    assert units.allowed[np.arange(units.count), devices].all()
    assert len(np.unique(devices)) == 3


# -- Placeto -------------------------------------------------------------------------------------------------


def policy_of(problem: Problem, **more: object) -> placeto.PlacetoPolicy:
    torch.manual_seed(0)
    return placeto.PlacetoPolicy(units_of(problem, ""), replace(Placeto(), **more))  # type: ignore[arg-type]


@settings(max_examples=15)
@given(st.integers(0, 2**32 - 1))
def test_the_rewards_of_an_episode_add_up_to_what_it_gained(seed: int) -> None:
    problem = small(9, seed=seed % 100)
    policy = policy_of(problem, rounds=1)
    rng = np.random.default_rng(seed)
    start = rng.integers(0, 2, (3, 9)).astype(np.int32)
    search = Search(problem, Budget(evaluations=10_000), "placeto")
    search.simulated = False  # an optimum that meets the bound must not end the episode
    episodes = placeto.play(search, policy, start, 1.0, 4.0, rng)
    final = episodes.before[-1].copy()
    final[:, episodes.visited[-1]] = episodes.action[-1]
    count = search.evaluator.evaluations
    ends = [search.evaluator.evaluate_batch(p[:, policy.units.of_op])[0] for p in (start, final)]
    assert episodes.reward.sum(axis=0) == pytest.approx(ends[0] - ends[1], abs=1e-9)
    moved = int((episodes.before[np.arange(9), :, episodes.visited] != episodes.action).sum())
    assert count == 3 + moved  # the beginnings, and every step that changed something
    value = placeto.returns_to_go(episodes.reward, 1.0)
    assert value[0] == pytest.approx(ends[0] - ends[1], abs=1e-9)
    assert value == pytest.approx(episodes.cost[:-1] - episodes.cost[-1], abs=1e-9)


def test_returns_discount_what_comes_later() -> None:
    reward = np.array([[1.0], [10.0], [100.0]])
    assert placeto.returns_to_go(reward, 0.1)[:, 0].tolist() == pytest.approx([3.0, 20.0, 100.0])


def two_layers(net: placeto.BothWays, side: int, x: torch.Tensor) -> torch.Tensor:
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
    before, after, beside = placeto.relations(units.count, units.tail, units.head)
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


# -- without PyTorch -----------------------------------------------------------------------------------------


def test_without_pytorch_the_baselines_say_what_to_install() -> None:
    script = """
import importlib.util, sys
real = importlib.util.find_spec
importlib.util.find_spec = lambda name, package=None: None if name == "torch" else real(name, package)
from loadmaster.placers import PLACERS
assert "torch" not in sys.modules
print(*(PLACERS[name].supports(None) for name in ("placeto", "rnn", "hdp")))
"""
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, env=dict(os.environ)
    )
    assert done.stdout.count("loadmaster[learn]") == 3
