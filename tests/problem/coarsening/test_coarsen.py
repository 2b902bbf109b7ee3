"""Coarsening: what the groups are, and that costs and constraints carry over."""

from __future__ import annotations

import itertools
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loadmaster.errors import InputError
from loadmaster.graph import Graph, GraphBuilder, layered
from loadmaster.graph.order import topological_order
from loadmaster.hardware import accelerators, roofline
from loadmaster.problem import (
    Concurrent,
    ExecutionModel,
    Offload,
    Pipeline,
    Placement,
    Problem,
    Serial,
)
from loadmaster.problem._evaluator import SimulatedEvaluator, evaluate
from loadmaster.problem.coarsening import Coarsening, coarsen, contract
from loadmaster.problem.coarsening import _rules as rules
from loadmaster.testing import reference

RULES = ["colour", "chain", "constants", "zero", "scope:1", "scope:2", "matching:3", "matching:1", "fused"]
EXACT: list[ExecutionModel] = [
    Serial(),
    Pipeline(),
    Pipeline(comm="overlap"),
    Pipeline(objective="fw+bw"),
    Pipeline(comm="overlap", objective="fw+bw"),
    Pipeline(contiguity="device"),
    Pipeline(contiguity="chain"),
]
OTHER: list[ExecutionModel] = [Concurrent(), Concurrent(schedule="static"), Offload(max_calls=3)]


@st.composite
def problems(draw: Any, models: list[ExecutionModel] = EXACT + OTHER, most: int = 12) -> Problem:
    """Small problems with everything in them: ports, shared tensors, backward ops, and all constraints."""
    model = draw(st.sampled_from(models))
    n = draw(st.integers(1, most))
    devices = draw(st.integers(1, 3))
    forward = n if isinstance(model, Offload) else draw(st.integers((n + 1) // 2, n))
    number = st.integers(0, 8).map(lambda x: x / 4)
    builder = GraphBuilder("random")
    order = draw(st.permutations(range(n)))
    for v in range(n):
        kind = draw(st.sampled_from(["Constant", "Conv", "Add", ""]))
        name = f"{draw(st.sampled_from('ab'))}/{draw(st.sampled_from('xy'))}/op{v}"
        builder.op(
            name, kind, flops=draw(number), bytes_written=draw(number), backward=order.index(v) >= forward
        )
    for i in range(n - 1):
        for _ in range(draw(st.integers(0, 2))):
            later = st.lists(st.sampled_from(order[i + 1 :]), min_size=1, max_size=3, unique=True)
            builder.tensor(order[i], bytes=draw(number), consumers=draw(later))
    graph = builder.build()
    cluster = accelerators(devices - 1, 1)
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    time = rng.integers(0, 5, (n, devices)).astype(float)
    time[rng.random((n, devices)) < 0.1] = np.inf
    time[rng.random(n) < 0.3] = 0.0
    pairs = rng.integers(0, n, (draw(st.integers(0, 3)), 2))
    return Problem.make(
        graph,
        cluster,
        model,
        time=time,
        latency=_no_diagonal(rng.integers(0, 3, (devices, devices))),
        rate=_no_diagonal(rng.integers(0, 3, (devices, devices))),
        send_latency=rng.integers(0, 2, devices),
        send_rate=rng.integers(0, 3, devices),
        recv_latency=rng.integers(0, 2, devices),
        recv_rate=rng.integers(0, 3, devices),
        memory=rng.integers(0, 3, n),
        capacity=rng.integers(n // 2, 2 * n + 1, devices),
        colocation=pairs.tolist(),
        pins={int(v): int(rng.integers(devices)) for v in np.flatnonzero(rng.random(n) < 0.1)},
        forbids=[(int(v), int(rng.integers(devices))) for v in np.flatnonzero(rng.random(n) < 0.1)],
    )


def _no_diagonal(matrix: Any) -> Any:
    np.fill_diagonal(matrix, 0)
    return matrix


def coarsened(problem: Problem, rule: str, rng: np.random.Generator | None = None) -> Coarsening:
    """By a rule of that name; ``fused`` takes random groups."""
    if rule == "fused":
        group = (rng or np.random.default_rng(0)).integers(0, 3, problem.n)
        lists = [[problem.graph.names[v] for v in np.flatnonzero(group == g)] for g in range(3)]
        return coarsen(problem, [lambda p: rules.fused(p, lists)])
    return coarsen(problem, rule)


def random_device(coarse: Problem, seed: int) -> np.ndarray:
    """Devices that keep colocation classes together."""
    return (
        np.random.default_rng(seed)
        .integers(0, coarse.devices, coarse.classes)
        .astype(np.int32)[coarse.class_of]
    )


# -- what holds whatever the rule ----------------------------------------------------------------------------


@settings(max_examples=250, deadline=None)
@given(problems(EXACT), st.lists(st.sampled_from(RULES), min_size=1, max_size=3), st.integers(0, 2**32))
def test_serial_and_pipeline_costs_are_those_of_the_expanded_placement(
    problem: Problem, names: list[str], seed: int
) -> None:
    coarse, groups = problem, []
    for name in names:
        groups.append(coarsened(coarse, name, np.random.default_rng(seed)))
        coarse = groups[-1].coarse
    device = random_device(coarse, seed)
    placement = Placement(device)
    for coarsening in reversed(groups):
        placement = coarsening.expand(placement)
    small, full = reference.evaluate(coarse, Placement(device)), reference.evaluate(problem, placement)
    assert small.cost == pytest.approx(full.cost, rel=1e-12, abs=1e-12)
    assert SimulatedEvaluator(coarse).evaluate(Placement(device)).cost == pytest.approx(
        full.cost, rel=1e-12, abs=1e-12
    )
    for what in ("busy", "comm", "load", "memory"):
        np.testing.assert_allclose(getattr(small, what), getattr(full, what), rtol=1e-12, atol=1e-12)


@settings(max_examples=150, deadline=None)
@given(problems(), st.sampled_from(RULES), st.integers(0, 2**32))
def test_what_is_feasible_coarse_is_feasible_expanded(problem: Problem, rule: str, seed: int) -> None:
    coarsening = coarsened(problem, rule)
    device = random_device(coarsening.coarse, seed)
    small = reference.evaluate(coarsening.coarse, Placement(device))
    call = np.zeros(coarsening.coarse.n, np.int32)
    for number, cut in enumerate(small.calls):
        call[list(cut.ops)] = number
    given = Placement(device, call=call if isinstance(problem.model, Offload) else None)
    full = reference.evaluate(problem, coarsening.expand(given))
    kinds = {"unsupported", "pin", "forbidden", "colocation", "capacity", "contiguity", "calls", "deadlock"}
    assert {v.kind for v in full.violations} <= {v.kind for v in small.violations} & kinds


@settings(max_examples=150, deadline=None)
@given(problems(), st.sampled_from(RULES), st.integers(0, 2**32))
def test_constraints_are_neither_lost_nor_invented(problem: Problem, rule: str, seed: int) -> None:
    coarsening = coarsened(problem, rule)
    device = random_device(coarsening.coarse, seed)
    mine = {"unsupported", "pin", "forbidden", "colocation", "capacity"}
    small = {v.kind for v in reference.evaluate(coarsening.coarse, Placement(device)).violations} & mine
    full = {
        v.kind for v in reference.evaluate(problem, coarsening.expand(Placement(device))).violations
    } & mine
    assert small == full


@settings(max_examples=150, deadline=None)
@given(problems(), st.sampled_from(RULES))
def test_groups_are_acyclic_one_sided_and_can_go_somewhere(problem: Problem, rule: str) -> None:
    coarsening = coarsened(problem, rule)
    coarse, group = coarsening.coarse, coarsening.group_of
    tail, head = problem.graph.arcs
    arcs = {(group[u], group[v]) for u, v in zip(tail, head, strict=True) if group[u] != group[v]}
    order = topological_order(coarse.n, *np.array(sorted(arcs), np.int32).reshape(-1, 2).T)
    assert len(order) == coarse.n
    assert arcs == set(zip(*coarse.graph.arcs, strict=True))
    assert (coarse.graph.backward[group] == problem.graph.backward).all()
    assert sorted(set(group.tolist())) == list(range(coarse.n))
    possible = problem.class_allowed.any(axis=1)[problem.class_of]
    for c in range(coarse.classes):
        members = np.flatnonzero(coarse.class_of[group] == c)
        if possible[members].all():
            assert coarse.class_allowed[c].any()


@settings(max_examples=100, deadline=None)
@given(problems(), st.sampled_from(["chain", "constants", "zero", "scope:1", "matching:2"]))
def test_automatic_rules_take_no_device_from_an_op_that_works(problem: Problem, rule: str) -> None:
    coarsening = coarsened(problem, rule)
    before, after = problem.class_allowed[problem.class_of], coarsening.coarse.class_allowed
    now = after[coarsening.coarse.class_of[coarsening.group_of]]
    works = np.bincount(problem.class_of, problem.mean_time, problem.classes)[problem.class_of] > 0
    assert (before[works] == now[works]).all()


@settings(max_examples=100, deadline=None)
@given(problems(), st.sampled_from(RULES), st.integers(0, 2**32))
def test_restricting_an_expanded_placement_gives_it_back(problem: Problem, rule: str, seed: int) -> None:
    coarsening = coarsened(problem, rule)
    device = random_device(coarsening.coarse, seed)
    if coarsening.coarse.allowed[np.arange(coarsening.coarse.n), device].all():
        back = coarsening.restrict(coarsening.expand(Placement(device)))
        assert (back.device == device).all()


@settings(max_examples=100, deadline=None)
@given(problems([Concurrent(), Concurrent(schedule="static")]), st.sampled_from(RULES), st.integers(0, 2**32))
def test_an_order_of_the_groups_expands_to_one_that_can_be_run(
    problem: Problem, rule: str, seed: int
) -> None:
    coarsening = coarsened(problem, rule)
    coarse = coarsening.coarse
    device = random_device(coarse, seed)
    expanded = coarsening.expand(Placement(device, order=coarse.graph.position))
    assert sorted(expanded.order.tolist()) == list(range(problem.n))
    if np.isfinite(problem.time[np.arange(problem.n), expanded.device]).all():
        assert math.isfinite(evaluate(problem, expanded).cost)


# -- what each rule does -------------------------------------------------------------------------------------


def bare(graph: Graph, model: ExecutionModel | None = None, **more: Any) -> Problem:
    cluster = accelerators(2, 1)
    more.setdefault("time", roofline(graph, cluster))
    return Problem.make(graph, cluster, model or Serial(), **more)


def sets(coarsening: Coarsening) -> set[frozenset[str]]:
    """The groups of more than one op, by name."""
    names = coarsening.fine.graph.names
    found = [
        frozenset(names[v] for v in np.flatnonzero(coarsening.group_of == g))
        for g in range(coarsening.coarse.n)
    ]
    return {group for group in found if len(group) > 1}


def build(ops: str, arcs: str, **more: Any) -> Graph:
    """Ops by name (``name:Type``) and arcs as ``a>b``."""
    builder = GraphBuilder()
    for text in ops.split():
        name, _, kind = text.partition(":")
        builder.op(name, kind or "Conv", flops=1e9, backward=name.endswith("'"))
    for text in arcs.split():
        a, b = text.split(">")
        builder.tensor(a, bytes=4e6, consumers=b.split(","))
    return builder.build()


def resnet50_ir() -> Graph:
    """ResNet-50 as OpenVINO's IR has it: batch norm folded, weights and biases a Constant and its Convert."""
    builder = GraphBuilder("resnet50-ir")
    number = itertools.count()

    def op(kind: str, *inputs: int) -> int:
        v = builder.op(f"{kind}_{next(number)}", kind)
        for u in inputs:
            readers.setdefault(u, []).append(v)
        return v

    readers: dict[int, list[int]] = {}

    def constant() -> int:
        return op("Convert", op("Constant"))

    def conv(x: int) -> int:
        return op("Add", op("Convolution", x, constant()), constant())

    x = op("MaxPool", op("ReLU", conv(op("Parameter"))))
    for blocks in (3, 4, 6, 3):
        for block in range(blocks):
            skip = conv(x) if block == 0 else x
            y = conv(op("ReLU", conv(op("ReLU", conv(x)))))
            x = op("ReLU", op("Add", y, skip))
    pooled = op("ReduceMean", x, op("Constant"))
    flat = op("Reshape", pooled, op("Constant"))
    op("Result", op("Add", op("MatMul", flat, constant()), constant()))
    for u, targets in readers.items():
        builder.tensor(u, bytes=4.0, consumers=targets)
    return builder.build()


def test_the_chain_rule_gives_the_groups_that_hsdag_has_for_resnet50() -> None:
    problem = bare(resnet50_ir())
    assert (problem.n, len(problem.graph.arcs[0])) == (396, 411)
    coarse = coarsen(problem, "chain").coarse
    assert (coarse.n, len(coarse.graph.arcs[0])) == (237, 252)


def test_a_chain_ends_where_a_tensor_is_shared_or_two_meet() -> None:
    graph = build("a b c d e f", "a>b b>c,d c>e d>e e>f")
    assert sets(coarsen(bare(graph), "chain")) == {frozenset("ab"), frozenset("ef")}


def test_a_chain_does_not_cross_from_forward_to_backward() -> None:
    graph = build("a b b' a'", "a>b b>b' b'>a'")
    assert sets(coarsen(bare(graph), "chain")) == {frozenset("ab"), frozenset(["b'", "a'"])}


def test_constants_go_to_their_first_reader_with_their_conversions() -> None:
    graph = build(
        "x:Parameter w:Constant cw:Convert shared:Constant conv conv2 y:Result",
        "x>conv w>cw cw>conv conv>conv2 shared>conv2,y conv2>y",
    )
    assert sets(coarsen(bare(graph), "constants")) == {
        frozenset(["w", "cw", "conv"]),
        frozenset(["shared", "conv2"]),
    }


def test_zero_time_leaves_are_merged_again_and_again() -> None:
    graph = build("x:Parameter r:Reshape conv other y:Result z:Result", "x>r r>conv conv>other,y other>z")
    assert sets(coarsen(bare(graph), "zero")) == {
        frozenset(["x", "r", "conv", "y"]),
        frozenset(["other", "z"]),
    }


def test_an_input_pinned_to_the_host_does_not_take_its_reader_along() -> None:
    graph = build("x:Parameter conv y:Result", "x>conv conv>y")
    problem = bare(graph, pins={0: 2})
    assert sets(coarsen(problem, "zero")) == {frozenset(["conv", "y"])}
    assert sets(coarsen(problem, "chain")) == {frozenset(["conv", "y"])}


def test_a_colour_class_becomes_a_forward_and_a_backward_group_tied_together() -> None:
    graph = build("a b c c' b' a'", "a>b b>c c>c' c'>b' b'>a'")
    coarsening = coarsen(bare(graph, colocation=[[0, 1, 4, 5]]), "colour")
    assert sets(coarsening) == {frozenset("ab"), frozenset(["a'", "b'"])}
    first, second = coarsening.group_of[[0, 5]]
    assert coarsening.coarse.class_of[first] == coarsening.coarse.class_of[second]


def test_a_merge_that_would_close_a_cycle_is_skipped() -> None:
    graph = build("a b c", "a>b b>c")
    assert sets(coarsen(bare(graph, colocation=[[0, 2]]), "colour")) == set()
    graph = build("s/a s/b t/c t/d", "s/a>t/d t/c>s/b")
    assert len(sets(coarsen(bare(graph), "scope:1"))) == 1


def test_scopes_are_cut_where_another_scope_lies_between() -> None:
    graph = build("s/a s/b t/c s/d s/e", "s/a>s/b s/b>t/c t/c>s/d s/d>s/e")
    assert sets(coarsen(bare(graph), "scope:1")) == {frozenset(["s/a", "s/b"]), frozenset(["s/d", "s/e"])}


def test_a_scope_takes_in_its_constants_however_early_they_are() -> None:
    graph = build("t/w:Constant s/w:Constant s/a s/b t/c t/d", "s/w>s/a s/a>s/b s/b>t/c t/w>t/d t/c>t/d")
    assert sets(coarsen(bare(graph), "scope:1")) == {
        frozenset(["s/w", "s/a", "s/b"]),
        frozenset(["t/w", "t/c", "t/d"]),
    }


@pytest.mark.parametrize("depth", [1, 2])
def test_the_depth_of_scopes(depth: int) -> None:
    graph = build("m/s/a m/s/b m/t/c m/t/d", "m/s/a>m/s/b m/s/b>m/t/c m/t/c>m/t/d")
    assert coarsen(bare(graph), f"scope:{depth}").coarse.n == depth


def test_groups_from_outside(tmp_path: Path) -> None:
    graph = build("a b c d", "a>b b>c c>d")
    file = tmp_path / "groups.json"
    file.write_text(json.dumps([["a", "b"], ["d"]]))
    assert sets(coarsen(bare(graph), f"fused:{file}")) == {frozenset("ab")}
    file.write_text(json.dumps([["a", "z"]]))
    with pytest.raises(InputError, match="'z'"):
        coarsen(bare(graph), f"fused:{file}")
    file.write_text(json.dumps([["a"], ["a"]]))
    with pytest.raises(InputError, match="'a' is in group 0 and in group 1"):
        coarsen(bare(graph), f"fused:{file}")


def test_matching_reaches_its_target_with_groups_of_like_weight() -> None:
    problem = bare(layered(2000, seed=3))
    coarsening = coarsen(problem, "matching:100")
    assert coarsening.coarse.n == 100
    time = coarsening.coarse.mean_time
    assert time.max() < 10 * time.mean()


def test_matching_cuts_less_than_chance() -> None:
    problem = bare(layered(500, seed=4))
    coarse = coarsen(problem, "matching:50").coarse
    order = problem.graph.topological_order
    slices = np.empty(problem.n, np.int32)
    slices[order] = order[(np.arange(problem.n) // 10) * 10]
    assert coarse.mean_link.sum() < contract(problem, slices).coarse.mean_link.sum()


def unrolled(layers: int, steps: int) -> Problem:
    """Layers that share a weight over time: a recurrent network."""
    builder = GraphBuilder("unrolled")
    below: list[int] = []
    ties = []
    for layer in range(layers):
        cells = [builder.op(f"layer{layer}/cell{t}", "MatMul", flops=1e9) for t in range(steps)]
        for t in range(steps):
            if t:
                builder.tensor(cells[t - 1], bytes=1e5, consumers=[cells[t]])
            if below:
                builder.tensor(below[t], bytes=1e5, consumers=[cells[t]])
        below = cells
        ties.append(cells)
    return bare(builder.build(), colocation=ties)


@pytest.mark.parametrize("rule", ["chain", "matching:2", "scope:1"])
def test_layers_that_are_unrolled_in_time_are_not_tied_together(rule: str) -> None:
    assert coarsen(unrolled(2, 10), rule).coarse.classes == 2


def test_nothing_is_merged_that_fits_no_device() -> None:
    graph = build("a b c d", "a>b b>c c>d")
    problem = bare(graph, memory=np.ones(4), capacity=np.array([4.0, 4.0, 2.0]))
    assert sorted(len(group) for group in sets(coarsen(problem, "chain"))) == [2, 2]


def test_under_chain_contiguity_ops_without_a_forward_twin_stay_apart_from_those_with() -> None:
    graph = build("f f' orphan'", "f>f' f'>orphan'")
    groups = [lambda p: rules.fused(p, [["f'", "orphan'"]])]
    assert len(sets(coarsen(bare(graph, Pipeline(), colocation=[[0, 1]]), groups))) == 1
    assert not sets(coarsen(bare(graph, Pipeline(contiguity="chain"), colocation=[[0, 1]]), groups))


def test_a_group_with_two_pins_may_go_nowhere() -> None:
    problem = bare(build("a b", "a>b"), pins={0: 0, 1: 1})
    assert not contract(problem, np.zeros(2, np.int32)).coarse.allowed.any()
    assert coarsen(problem, "chain").coarse.n == 2


def test_groups_that_wait_for_each_other_are_refused() -> None:
    problem = bare(build("a b c", "a>b b>c"))
    with pytest.raises(InputError, match="cycle"):
        contract(problem, np.array([0, 1, 0], np.int32))
    problem = bare(build("a a'", "a>a'"))
    with pytest.raises(InputError, match="forward and backward"):
        contract(problem, np.array([0, 0], np.int32))


@pytest.mark.parametrize("spec", ["chian", "scope", "scope:0", "matching:x", "chain:2", "fused", ""])
def test_a_rule_that_is_none_is_refused(spec: str) -> None:
    with pytest.raises(InputError, match="--coarsen"):
        coarsen(bare(build("a b", "a>b")), spec)


def test_an_empty_graph() -> None:
    problem = bare(GraphBuilder().build(), time=np.zeros((0, 3)))
    for rule in RULES:
        assert coarsened(problem, rule).coarse.n == 0


@pytest.mark.parametrize("file", ["bert24_training.json", "inceptionv3_training.json"])
def test_published_training_workloads_coarsen_by_colour(workloads: Path, file: str) -> None:
    from loadmaster import api

    problem = api.problem(workloads / "msr" / "throughput" / "layers" / file)
    coarsening = coarsen(problem, "colour")
    assert coarsening.coarse.n <= 2 * problem.classes
    device = random_device(coarsening.coarse, 0)
    small = SimulatedEvaluator(coarsening.coarse).evaluate(Placement(device)).cost
    full = SimulatedEvaluator(problem).evaluate(coarsening.expand(Placement(device))).cost
    assert small == pytest.approx(full, rel=1e-12)
