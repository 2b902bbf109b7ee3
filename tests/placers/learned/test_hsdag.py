"""HSDAG: features, graph parsing, both policies, and training that repeats, resumes and learns.

The acceptance checks of our reading of the paper are marked with their letters; (a), the counts of ResNet-50 in
OpenVINO's form, is in ``tests/problem/test_coarsen.py``, and (h), the same run in a fresh process, in the
conformance suite.
"""

from __future__ import annotations

import os
import struct
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from loadmaster import api
from loadmaster.errors import InputError
from loadmaster.graph import GraphBuilder, layered
from loadmaster.graph.order import topological_order
from loadmaster.hardware import accelerators
from loadmaster.placers import PLACERS, Budget, Progress
from loadmaster.placers.learned._features import FEATURES, features_of
from loadmaster.placers.learned._fractal import fractal_dimension
from loadmaster.placers.learned._methods import Hsdag, HsdagPaper
from loadmaster.placers.learned._parsing import (
    choices_of,
    dominant_edges,
    groups_of_edges,
    sample_devices,
    sample_groups,
)
from loadmaster.placers.learned._scalars import event_record
from loadmaster.placers.learned._units import Units, units_of
from loadmaster.placers.learned.hsdag import _training as hsdag
from loadmaster.placers.learned.hsdag._levels import level_above
from loadmaster.placers.learned.hsdag_paper import _training as hsdag_paper
from loadmaster.problem import ExecutionModel, Offload, Pipeline, Problem, Serial
from loadmaster.problem._evaluator import SimulatedEvaluator
from loadmaster.problem.coarsening import coarsen


def small(n: int = 30, seed: int = 1, model: ExecutionModel | None = None) -> Problem:
    """A problem whose optimum meets no bound, so that nobody stops early."""
    graph, cluster = layered(n, width=4, seed=seed), accelerators(1, 1)
    rng = np.random.default_rng(seed)
    return Problem.make(
        graph, cluster, model or Serial(), time=0.5 + rng.random((n, 2)), size=rng.random(graph.tensors),
        latency=0.1 * (1 - np.eye(2)), rate=0.2 * (1 - np.eye(2)),
    )  # fmt: skip


@st.composite
def scored_graphs(draw: st.DrawFn) -> tuple[int, np.ndarray, np.ndarray, np.ndarray]:
    """Nodes, undirected edges (first < second) and distinct scores."""
    n = draw(st.integers(1, 14))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    first, second = np.nonzero(np.triu(rng.random((n, n)) < draw(st.sampled_from([0.1, 0.3, 0.8])), 1))
    return (
        n,
        first.astype(np.int32),
        second.astype(np.int32),
        rng.permutation(len(first)) / (len(first) + 1.0),
    )


# -- co-location: units --------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["resnet-50", "inception-v3", "bert-base?seq=8"])
def test_b_units_are_a_partition_their_graph_is_acyclic_and_every_choice_expands(name: str) -> None:
    problem = api.problem(f"zoo:{name}", "hsdag", "serial")
    units = units_of(problem, "chain")
    coarse = coarsen(problem, "chain").coarse
    assert units.count == coarse.classes
    assert np.unique(units.of_op).tolist() == list(range(units.count))
    assert len(topological_order(units.count, units.tail, units.head)) == units.count
    rng = np.random.default_rng(0)
    choice = (rng.random(units.allowed.shape) * units.allowed).argmax(axis=1)
    assert SimulatedEvaluator(problem).evaluate_batch(choice[units.of_op].astype(np.int32))[1].all()


def test_units_that_may_go_to_different_devices_share_no_group() -> None:
    problem = api.problem("zoo:resnet-50", "hsdag", "serial", forbids=["stage2/.*=gpu"])
    units = units_of(problem, "")
    assert len(units.first)
    assert (units.allowed[units.first] == units.allowed[units.second]).all()
    pinned = np.flatnonzero(units.allowed.sum(axis=1) == 1)
    assert not np.isin(pinned, np.concatenate([units.first, units.second])).any()


@pytest.mark.parametrize("model", [Pipeline(contiguity="chain"), Pipeline(contiguity="device"), Offload()])
def test_where_stages_must_be_contiguous_most_draws_are_made_so(model: ExecutionModel) -> None:
    problem = small(40, model=model)
    units = units_of(problem, "")
    choice = np.random.default_rng(0).integers(0, 2, (50, units.count)).astype(np.int32)
    search = _Costs(problem)
    cost = hsdag.learn_costs(search, units, choice)  # type: ignore[arg-type]
    assert np.isfinite(cost).all()


class _Costs:
    """The little of a search that costing needs."""

    def __init__(self, problem: Problem) -> None:
        self.evaluator, self.cost = SimulatedEvaluator(problem), 0.0


# -- features ------------------------------------------------------------------------------------------------


def path(n: int) -> tuple[np.ndarray, np.ndarray]:
    return np.arange(n - 1, dtype=np.int32), np.arange(1, n, dtype=np.int32)


def test_e_the_dimension_is_one_at_the_end_of_a_path_and_zero_without_neighbours() -> None:
    assert fractal_dimension(50, *path(50))[[0, 49]] == pytest.approx([1.0, 1.0], abs=1e-12)
    assert fractal_dimension(51, *path(50))[50] == 0.0
    assert fractal_dimension(2, *path(2)).tolist() == [0.0, 0.0]  # a single distance has no slope


def test_e_the_dimension_of_a_grid_tends_to_two() -> None:
    def middle(side: int) -> float:
        node = np.arange(side * side, dtype=np.int32).reshape(side, side)
        tail = np.concatenate([node[:-1].ravel(), node[:, :-1].ravel()])
        head = np.concatenate([node[1:].ravel(), node[:, 1:].ravel()])
        # As far as the nearest border, where the ball is still a whole one.
        return float(
            fractal_dimension(side * side, tail, head, ball=side * side // 2)[node[side // 2, side // 2]]
        )

    slopes = [middle(side) for side in (11, 41, 121)]
    assert slopes == sorted(slopes)
    assert 1.85 < slopes[-1] < 2.0


@given(scored_graphs(), st.integers(0, 2**32 - 1))
def test_e_the_dimension_is_the_slope_and_does_not_depend_on_names(graph, seed: int) -> None:  # type: ignore[no-untyped-def]
    n, first, second, _ = graph
    found = fractal_dimension(n, first, second)
    name = np.random.default_rng(seed).permutation(n).astype(np.int32)
    assert fractal_dimension(n, name[second], name[first])[name] == pytest.approx(found)
    link = np.zeros((n, n))
    link[first, second] = link[second, first] = 1
    hops = [np.linalg.matrix_power(link + np.eye(n), r) > 0 for r in range(n + 1)]
    for v in range(n):
        ball = [int(h[v].sum()) - 1 for h in hops]
        r = [k for k in range(1, n + 1) if ball[k] > ball[k - 1]]
        wanted = np.polyfit(np.log(r), np.log([ball[k] for k in r]), 1)[0] if len(r) > 1 else 0.0
        assert found[v] == pytest.approx(wanted, abs=1e-9)


def test_every_feature_can_be_left_out_and_none_is_infinite() -> None:
    problem = api.problem("zoo:bert-base?seq=8", "hsdag", "serial", forbids=["encoder/layer1/.*=gpu"])
    units = units_of(problem, "chain")
    whole = features_of(units, FEATURES)
    assert np.isfinite(whole).all()
    widths = [features_of(units, tuple(p for p in FEATURES if p != part)).shape[1] for part in FEATURES]
    assert sum(whole.shape[1] - width for width in widths) == whole.shape[1] - 1  # and a constant
    with pytest.raises(InputError, match="nonsense"):
        Hsdag(features=("nonsense",))


# -- parsing -------------------------------------------------------------------------------------------------


@given(scored_graphs())
def test_c_groups_are_the_components_of_the_dominant_edges_and_halve_every_component(graph) -> None:  # type: ignore[no-untyped-def]
    n, first, second, score = graph
    keep = dominant_edges(n, first, second, score)
    best = {}
    for e in np.argsort(score).tolist():  # the last one seen is the best
        best[int(first[e])] = best[int(second[e])] = e
    assert set(np.flatnonzero(keep).tolist()) == set(best.values())
    group = groups_of_edges(n, first[keep], second[keep])
    _, wanted = connected_components(
        coo_array((np.ones(keep.sum()), (first[keep], second[keep])), shape=(n, n))
    )
    assert (
        len(set(zip(group.tolist(), wanted.tolist(), strict=True)))
        == len(set(group.tolist()))
        == wanted.max() + 1
    )
    _, whole = connected_components(coo_array((np.ones(len(first)), (first, second)), shape=(n, n)))
    for component in range(whole.max() + 1):
        nodes = whole == component
        if nodes.sum() > 1:
            assert len(set(group[nodes].tolist())) <= nodes.sum() // 2


def test_a_node_stays_alone_where_no_edge_scores_higher_than_that() -> None:
    ends = path(4)
    alone = np.array([0.0, 0.0, 0.9, 0.9])
    keep = dominant_edges(4, *ends, np.array([0.5, 0.4, 0.3]), alone)
    assert groups_of_edges(4, ends[0][keep], ends[1][keep]).tolist() == [0, 0, 1, 2]


@given(scored_graphs(), st.integers(0, 2**32 - 1))
def test_drawn_groups_are_the_components_of_the_drawn_edges(graph, seed: int) -> None:  # type: ignore[no-untyped-def]
    n, first, second, _ = graph
    ptr, edge, other = choices_of(n, first, second)
    rng = np.random.default_rng(seed)
    node = np.repeat(np.arange(n), np.diff(ptr))
    weight = rng.random(len(edge)) * (rng.random(len(edge)) < 0.7)
    weight[ptr[:-1]] += 0.1
    weight /= np.bincount(node, weight, n)[node]
    chosen, group, count = sample_groups(weight, ptr, other, rng.random((3, n)))
    assert (node[chosen] == np.arange(n)).all()
    assert (weight[chosen] > 0).all()
    assert np.unique(group).tolist() == list(range(count))
    for row in range(3):
        _, wanted = connected_components(
            coo_array((np.ones(n), (np.arange(n), other[chosen[row]])), shape=(n, n)), directed=False
        )
        pairs = set(zip(group[row].tolist(), wanted.tolist(), strict=True))
        assert len(pairs) == len(set(group[row].tolist())) == wanted.max() + 1


def test_devices_are_drawn_as_often_as_their_probability_says_and_never_at_zero() -> None:
    q = np.tile([0.0, 0.3, 0.0, 0.7, 0.0], (20_000, 1))
    share = np.bincount(sample_devices(q, np.random.default_rng(0).random(len(q))), minlength=5) / len(q)
    assert share == pytest.approx([0, 0.3, 0, 0.7, 0], abs=0.02)
    assert sample_devices(q[:1], np.array([np.nextafter(1.0, 0.0)])).tolist() == [3]


# -- the policy as published ---------------------------------------------------------------------------------


def paper_policy(units: Units, **more: object) -> hsdag_paper.PaperPolicy:
    torch.manual_seed(0)
    return hsdag_paper.PaperPolicy(units, replace(HsdagPaper(), **more))  # type: ignore[arg-type]


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
    units = units_of(small(), "chain")
    policy = paper_policy(units)
    with torch.no_grad():
        _, log_q, levels, _ = policy(policy.start)
    ones = torch.ones(len(log_q))
    step = hsdag_paper.Step(policy.start, levels, torch.zeros(len(log_q), dtype=torch.int64), ones)
    hsdag_paper.paper_loss(policy, step).backward()
    assert policy.edge_net[-1].weight.grad.abs().sum() > 0
    pool = hsdag_paper.PaperPolicy._pool

    def cut(self, h, adjacency, a, b, score, group):  # type: ignore[no-untyped-def]
        return pool(self, h, adjacency, a, b, score.detach(), group)

    monkeypatch.setattr(hsdag_paper.PaperPolicy, "_pool", cut)
    policy.zero_grad()
    hsdag_paper.paper_loss(policy, step).backward()
    assert policy.edge_net[-1].weight.grad is None or policy.edge_net[-1].weight.grad.abs().sum() == 0
    assert policy.device_net[-1].weight.grad.abs().sum() > 0


@pytest.mark.parametrize("levels", [1, 2])
def test_steps_side_by_side_have_the_loss_of_the_steps_one_by_one(levels: int) -> None:
    units = units_of(small(), "chain")
    policy = paper_policy(units, levels=levels, dropout=0.0)
    steps = []
    for t in range(3):
        x = policy.start + 0.3 * t
        _, log_q, parse, _ = policy(x)
        device = torch.arange(len(log_q)) % 2
        steps.append(hsdag_paper.Step(x, parse, device, torch.full((len(device),), 1.0 + t)))
    one_by_one = sum(hsdag_paper.paper_loss(policy, step).item() for step in steps)
    together = sum(
        hsdag_paper.paper_loss(policy, step).item() for step in hsdag_paper.side_by_side(steps, units.count)
    )
    assert together == pytest.approx(one_by_one, rel=1e-5)


# -- learning ------------------------------------------------------------------------------------------------


def blocks(count: int = 12, size: int = 3) -> Problem:
    """Blocks of ops that must not be torn apart, in turn faster on the one and on the other device."""
    b = GraphBuilder("blocks")
    ops = [b.op(f"b{i}/{j}", "Conv") for i in range(count) for j in range(size)]
    ends: dict[int, list[int]] = {v: [] for v in ops}
    for v in range(1, len(ops)):
        ends[ops[v - 1]].append(ops[v])
    for v, readers in ends.items():
        b.tensor(v, bytes=1.0 if v % size == size - 1 else 100.0, consumers=readers)
    graph, cluster = b.build(), accelerators(1, 1)
    turn = np.arange(graph.n) // size % 2
    time = np.where(turn[:, None] == np.arange(2), 1.0, 1.5)
    link = np.zeros((2, 2)), 0.05 * (1 - np.eye(2))
    return Problem.make(graph, cluster, Serial(), time=time, latency=link[0], rate=link[1])


def test_g_the_best_device_of_every_group_is_learnt() -> None:
    problem = blocks()
    best = PLACERS["min-cut"].place(problem, budget=Budget(evaluations=20_000))
    assert best.optimal
    budget = Budget(evaluations=6000)
    learnt = Hsdag().place(problem, budget=budget)
    unlearnt = replace(Hsdag(), learn=False).place(problem, budget=budget)
    assert learnt.cost == pytest.approx(best.cost, rel=1e-9)
    assert unlearnt.cost > 1.05 * best.cost


@pytest.mark.parametrize(
    "change",
    [{"groups": "random"}, {"groups": "fixed"}, {"groups": "none"}, {"singletons": False}, {"levels": 2}, {"runs": 3},
     {"levels": 3, "groups": "random", "singletons": False}, {"ppo": False},
     {"state_update": True}, {"elites": 0}, {"lean": 0.0},
     {"learn": False}, {"entropy": 0.0}, {"features": ("position",)}],
    ids=str,
)  # fmt: skip
def test_every_variant_of_an_ablation_runs_and_repeats(change: dict[str, object]) -> None:
    placer = replace(Hsdag(), **change)  # type: ignore[arg-type]
    one, two = (placer.place(small(), budget=Budget(evaluations=400), seed=5) for _ in range(2))
    assert one.placement == two.placement
    assert one.evaluations == two.evaluations == 400


def test_training_leaves_the_random_numbers_and_threads_of_pytorch_alone() -> None:
    torch.manual_seed(3)
    before, threads = torch.get_rng_state(), torch.get_num_threads()
    for name in ("hsdag", "hsdag-paper"):
        PLACERS[name].place(small(), budget=Budget(evaluations=30))
    assert torch.equal(torch.get_rng_state(), before)
    assert torch.get_num_threads() == threads


@given(st.integers(0, 2**32 - 1))
def test_groups_of_a_later_pass_are_unions_of_neighbours_in_one_placement(seed: int) -> None:
    rng = np.random.default_rng(seed)
    units, batch = units_of(small(), ""), 3
    ptr, _, other = choices_of(units.count, units.first, units.second)
    even = 1.0 / np.repeat(np.diff(ptr), np.diff(ptr))
    _, group, count = sample_groups(even, ptr, other, rng.random((batch, units.count)))
    above = level_above(units, group.reshape(-1), count, batch)
    assert above is not None
    level = above[0]
    assert (level.placement[level.first] == level.placement[level.second]).all()
    wanted = {
        (int(min(a, b)), int(max(a, b)))
        for row in group
        for a, b in zip(row[units.first], row[units.second], strict=True)
        if a != b
    }
    assert set(zip(level.first.tolist(), level.second.tolist(), strict=True)) == wanted
    z = torch.from_numpy(rng.random((units.count, 2))).float()
    mean = z[torch.from_numpy(group[1] == group[1, 0])].mean(dim=0)
    assert level.pooled(z)[group[1, 0]].numpy() == pytest.approx(mean.numpy(), rel=1e-5)


def test_further_passes_leave_fewer_groups_and_none_is_refused() -> None:
    units = units_of(small(), "")
    groups = []
    for levels in (1, 2, 3):
        torch.manual_seed(0)
        policy = hsdag.Policy(units, replace(Hsdag(), levels=levels))
        groups.append(len(policy.draw(policy(), 16, np.random.default_rng(0), None, 0.0).size))
    assert groups[0] > groups[1] > groups[2]
    with pytest.raises(InputError, match="levels must be >= 1"):
        Hsdag(levels=0)


def test_the_line_of_progress_has_groups_and_entropy() -> None:
    notes: list[str] = []
    _place_telling_always(Hsdag(), small(), Budget(evaluations=300), lambda p: notes.append(p.note))
    assert any("groups" in note and "entropy" in note for note in notes)


# -- checkpoints and scalars ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "limit", "change"),
    [("hsdag", 700, {}), ("hsdag", 900, {"runs": 3}), ("hsdag-paper", 90, {}), ("hsdag+polish", 700, {})],
)
def test_a_run_that_was_killed_goes_on_and_ends_as_if_it_had_not_been(
    name: str, limit: int, change: dict[str, int], tmp_path: Path
) -> None:
    problem = small(40, seed=3)
    placer = api.configured(name, change)
    budget = Budget(evaluations=limit)
    whole = placer.place(problem, budget=budget, seed=2)
    file = tmp_path / "run.pt"
    saving = api.configured(placer, {"checkpoint": str(file), "checkpoint_seconds": 0.0})

    class Killed(BaseException):
        pass

    def kill(progress: Progress) -> None:
        if progress.evaluations > limit // 2:
            raise Killed

    with pytest.raises(Killed):
        # Progress is told ten times a second at most; here every time.
        _place_telling_always(saving, problem, budget, kill)
    assert file.exists()
    resumed = saving.place(problem, budget=budget, seed=2)
    assert resumed.placement == whole.placement
    assert resumed.evaluations == whole.evaluations
    assert [(p.evaluations, p.cost) for p in resumed.history] == [
        (p.evaluations, p.cost) for p in whole.history
    ]


def _place_telling_always(placer, problem, budget, tell):  # type: ignore[no-untyped-def]
    from loadmaster.placers.frame.search import Search

    quiet = Search.tell
    try:
        Search.tell = lambda self, *, always=False: quiet(self, always=True)  # type: ignore[method-assign]
        return placer.place(problem, budget=budget, seed=2, on_progress=tell)
    finally:
        Search.tell = quiet  # type: ignore[method-assign]


def test_a_checkpoint_of_something_else_is_refused_by_name(tmp_path: Path) -> None:
    file = tmp_path / "run.pt"
    placer = replace(Hsdag(), checkpoint=str(file))
    placer.place(small(), budget=Budget(evaluations=100))
    with pytest.raises(InputError, match=r"run\.pt.*another problem"):
        placer.place(small(seed=9), budget=Budget(evaluations=100))
    file.write_text("nothing of the kind")
    with pytest.raises(InputError, match=r"run\.pt.*not a checkpoint"):
        placer.place(small(), budget=Budget(evaluations=100))


def test_the_warm_up_before_a_budget_in_seconds_leaves_no_checkpoint_of_its_own(tmp_path: Path) -> None:
    file = tmp_path / "run.pt"
    for _ in range(2):  # the second goes on from the first
        api.place(small(), "hsdag", budget=0.2, parameters={"checkpoint": str(file)})
    assert file.exists()


def test_scalars_are_framed_as_tensorboard_reads_them(tmp_path: Path) -> None:
    record = event_record(7, {"gap": 0.25})
    (length,) = struct.unpack("<Q", record[:8])
    assert len(record) == 8 + 4 + length + 4
    assert struct.pack("<f", 0.25) in record
    assert b"gap" in record
    replace(Hsdag(), log_dir=str(tmp_path / "logs")).place(small(), budget=Budget(evaluations=200))
    (file,) = (tmp_path / "logs").iterdir()
    content, names = file.read_bytes(), []
    while content:
        (length,) = struct.unpack("<Q", content[:8])
        names.append(content[12 : 12 + length])
        content = content[16 + length :]
    assert b"brain.Event:2" in names[0]
    assert all(key in names[1] for key in (b"best", b"gap", b"groups", b"entropy"))


# -- without PyTorch -----------------------------------------------------------------------------------------


def test_without_pytorch_the_table_is_there_and_says_what_to_install() -> None:
    script = """
import sys
class Absent:
    def find_spec(self, name, path=None, target=None):
        if name == "torch" or name.startswith("torch."):
            raise ModuleNotFoundError(name)
sys.meta_path.insert(0, Absent())
import importlib.util
real = importlib.util.find_spec
importlib.util.find_spec = lambda name, package=None: None if name == "torch" else real(name, package)
from loadmaster.placers import PLACERS
assert "torch" not in sys.modules
print(PLACERS["hsdag"].supports(None))
"""
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, env=dict(os.environ)
    )
    assert "loadmaster[learn]" in done.stdout
