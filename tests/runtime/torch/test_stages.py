"""Stages as modules, in one process: what they compute together, what they refuse, what they cost."""

from __future__ import annotations

import itertools
import random
from types import SimpleNamespace

import numpy as np
import pytest
import torch
import torch.utils._pytree as pytree
from small_modules import TiedModel, skip_case, tied_case
from torch import nn

import loadmaster.torch as pipelines
from benchmarks.torch_equality import random_split
from loadmaster import api
from loadmaster.errors import InputError
from loadmaster.graph.torch import capture
from loadmaster.runtime.torch import (
    Clock,
    _allocation,
    _costs,
    check_plan,
    corrected,
    cut_stages,
    example_batch,
    load_source,
    measure_ops,
    measure_stages,
    run_unsplit,
    stage_module,
    stages_of_plan,
)
from loadmaster.runtime.torch._equality import relative
from loadmaster.runtime.torch._pipeline import _Sends, unflattened


def chained(captured, cut, tensors, clocks):
    """All stages one after another, as one autograd graph."""
    given = list(tensors)
    for stage in range(cut.count):
        given = list(stage_module(captured, cut, stage, clocks[stage])(*given))
    return unflattened(captured, given, joined=False)


@pytest.mark.parametrize("granularity", ["op", "layer"])
@pytest.mark.parametrize("case", [tied_case, skip_case])
def test_stages_of_any_split_compute_what_the_module_does(case, granularity: str) -> None:
    model, example, loss, target = case()
    captured = capture(model, example, training=True)
    batch = example_batch(captured.example, 1, target)
    reference = run_unsplit(captured, batch, 1, model=model, loss=loss)
    assert reference.eager
    buffers = {name: tensor.clone() for name, tensor in model.named_buffers()}
    rng = random.Random(0)
    for stages in (2, 3, 4):
        cut = cut_stages(captured, random_split(captured, stages, granularity, rng), stages)
        model.zero_grad()
        model.load_state_dict(buffers, strict=False)
        clocks = [Clock(0, 1) for _ in range(stages)]
        value = loss(chained(captured, cut, captured.example.tensors(), clocks), target)
        value.backward()
        assert relative(value.detach(), reference.losses[0]) < 1e-6
        for name, parameter in model.named_parameters():
            if parameter.grad is not None:
                assert relative(parameter.grad, reference.gradients[name]) < 1e-5, name
        for name, tensor in model.named_buffers():
            assert relative(tensor, reference.buffers[name]) < 1e-6, name


def test_dropout_draws_the_same_in_any_split_and_something_else_in_the_next_microbatch() -> None:
    model, example, _, _ = tied_case(dropout=0.3)
    captured = capture(model, example, training=True)
    tensors = captured.example.tensors()
    whole = cut_stages(captured, [0] * len(captured.nodes), 1)
    clock = Clock(7, 2)
    one = [chained(captured, whole, tensors, [clock])["logits"] for _ in range(3)]
    assert not torch.equal(one[0], one[1])
    assert not torch.equal(one[0], one[2])
    state = torch.get_rng_state()
    for seed in range(3):
        cut = cut_stages(captured, random_split(captured, 3, "op", random.Random(seed)), 3)
        clocks = [Clock(7, 2) for _ in range(3)]
        for expected in one:
            # Strides of what crosses differ, and with them the last bit.
            assert (
                relative(chained(captured, cut, tensors, clocks)["logits"].detach(), expected.detach()) < 1e-6
            )
    assert torch.equal(state, torch.get_rng_state())
    other = chained(captured, whole, tensors, [Clock(8, 2)])["logits"]
    assert not torch.equal(other, one[0])


def test_what_shares_memory_may_not_be_apart_and_data_may_not_flow_back() -> None:
    model, example, _, _ = skip_case()
    captured = capture(model, example, training=True)
    norm = captured.index["batch_norm"]
    with pytest.raises(InputError, match="share memory"):
        cut_stages(captured, [int(v > norm) for v in range(len(captured.nodes))], 2)
    with pytest.raises(InputError, match="data would flow back"):
        cut_stages(captured, [int(captured.layers[v] == "stem") for v in range(len(captured.nodes))], 2)
    with pytest.raises(InputError, match="stage 1 has no op"):
        cut_stages(captured, [0] * len(captured.nodes), 3)


def test_a_value_that_is_read_much_later_crosses_every_boundary_between() -> None:
    model, example, _, _ = skip_case()
    captured = capture(model, example, training=True)
    stage = {"stem": 0, "first.0": 0, "first.1": 1, "second.0": 1, "second.1": 2, "head": 2}
    cut = cut_stages(captured, [stage.get(layer, 2) for layer in captured.layers], 3)
    crossing = [{value.node.name for value in values} for values in cut.boundaries]
    assert "conv2d" in crossing[1]
    assert "conv2d" in crossing[2]
    assert all(len(values) == 2 for values in crossing[1:3])
    assert all(value.has_gradient for values in cut.boundaries[1:3] for value in values)


# -- costs ------------------------------------------------------------------------------------------------------


def test_what_an_op_keeps_is_counted_once_and_weights_are_not() -> None:
    model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4), nn.Identity())
    captured = capture(model, torch.randn(4, 8), training=True)
    costs = measure_ops(captured, loss=lambda result: result.sum())
    kept = dict(zip((node.name for node in captured.nodes), costs.kept, strict=True))
    # The first product keeps its input; the ReLU its output, which the second product only reads.
    assert kept == {"linear": 4 * 8 * 4, "relu": 4 * 16 * 4, "linear_1": 0}
    assert (costs.forward > 0).all()
    assert costs.backward[captured.index["linear_1"]] > 0
    assert costs.loss[0] > 0


def test_every_op_of_a_pass_gets_the_time_between_two_looks_at_the_clock(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    model = nn.Sequential(nn.Linear(8, 8), nn.ReLU(inplace=True), nn.Dropout(0.5), nn.Linear(8, 4))
    captured = capture(model, torch.randn(4, 8), training=True)
    cut = cut_stages(captured, [0] * len(captured.nodes), 1)
    clock = Clock(0, 1)
    module = stage_module(captured, cut, 0, clock, shared=True)
    ticks = itertools.count()
    monkeypatch.setattr(_costs.time, "process_time", lambda: float(next(ticks)))
    found = _costs._pass(captured, module, clock, captured.example.tensors(), lambda x: x.sum(), None)
    # A look before and behind each op forward; backward one at the beginning of each, which ends the one before.
    assert found[:, 0].tolist() == [1.0] * (len(captured.nodes) + 1)
    assert found[:, 1].tolist() == [1.0] * len(captured.nodes) + [2.0]
    assert all(parameter.grad is None for parameter in model.parameters())


def test_what_looking_costs_is_taken_off_and_slow_rounds_change_nothing() -> None:
    true = np.array([[4.0, 8.0], [1.0, 0.0], [3.0, 6.0]])
    looked = true + np.array([0.5, 1.0]) * (true > 0)
    seen = _costs._without_looking(np.stack([looked] * 3), np.stack([true.sum(axis=0)] * 3))
    assert seen[0] == pytest.approx(true)
    slow = np.array([1.0, 1.0, 3.0, 1.0, 2.0])[:, None, None] * true
    assert _costs._undisturbed(slow) == pytest.approx(true)


def test_freed_memory_is_given_back_where_there_is_a_limit_or_the_user_chose(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[tuple[int, int]] = []
    library = SimpleNamespace(mallopt=lambda kind, value: asked.append((kind, value)) or 1)
    monkeypatch.setattr(_allocation.ctypes, "CDLL", lambda name: library)
    for name in _allocation.CHOSEN:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(_allocation, "_limited", lambda: False)
    keep = _allocation.keep_freed_memory.__wrapped__
    assert keep()
    assert [kind for kind, _ in asked] == [-3, -1]
    monkeypatch.setenv("MALLOC_TRIM_THRESHOLD_", "100000")
    assert not keep()
    monkeypatch.delenv("MALLOC_TRIM_THRESHOLD_")
    monkeypatch.setattr(_allocation, "_limited", lambda: True)
    assert not keep()
    assert len(asked) == 2


def test_a_tied_weight_is_measured_as_one_of_each_op_that_reads_it() -> None:
    """The gradients of a tied one are added up where the last is made, which would be charged for all."""
    model, example, loss, target = tied_case()
    captured = capture(model, example, training=True)
    cut = cut_stages(captured, [0] * len(captured.nodes), 1)
    tied, apart = (stage_module(captured, cut, 0, Clock(0, 1), shared=True) for _ in range(2))
    tensors = captured.example.tensors()
    apart = _costs._untied(apart)
    results = [unflattened(captured, module(*tensors), joined=False) for module in (tied, apart)]
    lost = [loss(result, target) for result in results]
    assert lost[0] == lost[1]
    for one in lost:
        one.backward()
    gradients = [
        {name: p.grad for name, p in module.named_parameters() if p.grad is not None}
        for module in (tied, apart)
    ]
    copies = [name for name in gradients[1] if name.startswith("_untied")]
    assert len(copies) == 1
    assert gradients[1].keys() - gradients[0].keys() == set(copies)
    copied = gradients[1].pop(copies[0])
    assert copied.abs().max() > 0
    name = next(
        name for name, gradient in gradients[0].items() if not torch.allclose(gradient, gradients[1][name])
    )
    assert torch.allclose(gradients[0][name], gradients[1][name] + copied)


def test_messages_are_asked_for_before_others_are_sent() -> None:
    sent, received = _Sends(["send 1", "send 2"]), ["receive"]
    assert sent + received == ["receive", "send 1", "send 2"]


def test_corrected_op_times_add_up_to_the_stages() -> None:
    model, example, loss, target = skip_case()
    captured = capture(model, example, training=True)
    running = {name: tensor.clone() for name, tensor in model.named_buffers()}
    costs = measure_ops(captured, loss=loss, target=target)
    cut = cut_stages(captured, random_split(captured, 3, "layer", random.Random(0)), 3)
    measured = measure_stages(captured, cut, loss=loss, target=target, repeats=2)
    after = corrected(costs, cut, measured)
    stage = np.array(cut.stage_of)
    for s, taken in enumerate(measured):
        last = s == 2
        assert after.forward[stage == s].sum() + last * after.loss[0] == pytest.approx(taken.forward)
        assert after.backward[stage == s].sum() + last * after.loss[1] == pytest.approx(taken.backward)
    assert all(parameter.grad is None for parameter in model.parameters())
    assert all(torch.equal(tensor, running[name]) for name, tensor in model.named_buffers())


def test_a_measured_problem_has_ties_memory_and_speeds() -> None:
    model, example, loss, target = tied_case()
    captured = capture(model, example, training=True)
    costs = measure_ops(captured, loss=loss, target=target)
    cluster = pipelines.ranks(2, speeds=[1.0, 0.5], memory=1e9)
    problem = pipelines.problem(captured, cluster, "pipeline:microbatches=4", time=costs, optimizer_state=1)
    assert np.allclose(problem.time[:, 1], 2 * problem.time[:, 0])
    (tie,) = problem.ties
    table = 20 * 8 * 4
    assert (tie.size, tie.memory) == (table, 3 * table)
    weights = sum(parameter.bytes for parameter in captured.parameters)
    made = model(*captured.example.args, **captured.example.kwargs)
    tensors = [leaf for leaf in pytree.tree_leaves(made) if isinstance(leaf, torch.Tensor)]
    results = 4 * sum(leaf.numel() * leaf.element_size() for leaf in tensors)  # until the step ends
    assert problem.memory.sum() == 3 * (weights - table) + results
    saturated = pipelines.problem(captured, cluster, time=costs, optimizer_state=1)
    assert saturated.memory.sum() == 3 * (weights - table)
    assert problem.kept is not None
    assert problem.kept.sum() == costs.kept.sum() + costs.loss_kept


def test_a_roofline_of_a_cluster_that_is_not_here_needs_no_run() -> None:
    model, example, _, _ = tied_case()
    captured = capture(model, example, training=True)
    problem = pipelines.problem(captured, api.cluster("2acc+1cpu"))
    assert problem.time.shape == (captured.network().graph.n, 3)
    assert (problem.time >= 0).all()


# -- plans ------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def planned():
    model, example, _, _ = tied_case()
    captured = capture(model, example, training=True, name="small")
    graph = captured.network().graph
    problem = pipelines.problem(captured, pipelines.ranks(3), time=np.ones(graph.n))
    solution = api.place(problem, "balanced", evaluations=50)
    return captured, pipelines.plan(captured, problem, solution, microbatches=3, schedule="gpipe")


def test_a_plan_gives_stages_in_the_order_of_data(planned) -> None:
    captured, plan = planned
    check_plan(captured, plan)
    stages = stages_of_plan(captured, plan)
    cut = cut_stages(captured, stages.of, len(stages.devices))
    assert cut.count == 3
    assert sorted(stages.ranks) == [0, 1, 2]
    assert [plan.problem().cluster.names[rank] for rank in stages.ranks] == list(stages.devices)


def test_interleaved_stages_come_from_the_plans_calls(planned) -> None:
    captured, plan = planned
    stages = stages_of_plan(captured, plan)
    twice = dict(zip(captured.names, stages.of, strict=True))
    devices = {0: "rank0", 1: "rank1", 2: "rank0"}
    document = {
        **plan.document,
        "placement": {**plan.document["placement"], **{name: devices[s] for name, s in twice.items()}},
        "call": {name: twice.get(name, 0) for name in plan.document["placement"]},
    }
    found = stages_of_plan(captured, type(plan)(document))
    assert found.of == stages.of
    assert found.ranks == (0, 1, 0)


def test_plans_for_another_model_or_version_are_refused(planned) -> None:
    captured, plan = planned
    other = type(plan)({**plan.document, "torch": {**plan.document["torch"], "version": "1.0"}}, "old.json")
    with pytest.raises(InputError, match=r"old\.json: was made with torch '1\.0'"):
        check_plan(captured, other)
    model = TiedModel(width=16)
    bigger = capture(model, tied_case()[1], training=True, name="bigger")
    with pytest.raises(InputError, match="plan for a different model"):
        check_plan(bigger, plan)
    model, example, _, _ = tied_case()
    with pytest.raises(InputError, match="training instead of inference"):
        check_plan(capture(model, example), plan)
    with pytest.raises(InputError, match="does not place op"):
        stages_of_plan(capture(TiedModel(blocks=4), example, training=True), plan)


def test_without_torchrun_a_pipeline_says_so(planned, monkeypatch) -> None:
    captured, plan = planned
    monkeypatch.delenv("RANK", raising=False)
    with pytest.raises(InputError, match="start the program with torchrun"):
        pipelines.pipeline(captured, plan, loss=lambda result, target: result)


# -- models in files ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("def build(): return 3", "must return .model, example"),
        ("def build(): return 3, 4", "must be a torch.nn.Module, not a int"),
        ("def build(): return {'model': 1, 'exampel': 2}", "'exampel', which is none of"),
        ("def build():\n    raise ValueError('no weights')", r"it fails, line 2 \(ValueError: no weights\)"),
        ("import nothing_like_it\ndef build(): return 3", "cannot be imported"),
        ("other = 1", "has no function 'build'"),
        ("import sys\ndef build(): sys.exit(0)", r"it fails, line 2 \(SystemExit: 0\)"),
        ("raise SystemExit\ndef build(): return 3", "cannot be imported"),
        ("x = " + "-" * 200_000 + "1\ndef build(): return 3", "is not a Python file"),
        ("def build(): raise ValueError('x' * 10**6)", r"ValueError: x{100,300}"),
    ],
    ids=range(10),
)
def test_what_is_wrong_with_a_models_file_is_one_sentence(tmp_path, text: str, message: str) -> None:
    path = tmp_path / "model.py"
    path.write_text(text + "\n")
    with pytest.raises(InputError, match=message):
        load_source(f"{path}:build")


def test_a_models_file_may_have_any_name_and_import_what_lies_beside_it(tmp_path, monkeypatch) -> None:
    """It hides no module of the same name, and neither does what lies beside it."""
    monkeypatch.syspath_prepend("")  # the search path is put back afterwards
    (tmp_path / "beside_the_model.py").write_text("WIDTH = 3\n")
    (tmp_path / "json.py").write_text("raise RuntimeError('this is not json')\n")
    text = "import json, torch\nfrom beside_the_model import WIDTH\n"
    (tmp_path / "torch.py").write_text(
        f"{text}def build(): return torch.nn.Linear(WIDTH, 1), torch.ones(1, WIDTH)\n"
    )
    assert load_source(f"{tmp_path}/torch.py:build").model.in_features == 3
    import sys

    assert sys.modules["torch"] is torch


def test_a_models_file_must_be_there(tmp_path) -> None:
    with pytest.raises(InputError, match="no such file"):
        load_source(f"{tmp_path}/none.py:build")
    with pytest.raises(InputError, match=r"FILE\.py:FUNCTION"):
        load_source("model.py")
