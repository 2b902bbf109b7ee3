"""The models of the zoo have the published sizes, and training is what differentiation makes of them."""

from __future__ import annotations

import math
from collections import Counter
from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loadmaster import api, zoo
from loadmaster.errors import InputError
from loadmaster.graph import Graph
from loadmaster.hardware import op_kind
from loadmaster.zoo._published import PUBLISHED, Published
from loadmaster.zoo._trace import Trace, Value

SMALL = (
    "resnet-50?size=64",
    "inception-v3?size=299",
    "unet?size=188",
    "amoebanet?size=64&batch=2&layers=3",
    "bert-base?seq=16&batch=2",
    "gpt2?seq=16&layers=2",
    "transformer-xl-2?seq=16&memory=8&batch=2",
    "switch-base-4?seq=16&target=16&batch=2",
    "rnnlm-2?seq=4&batch=2&width=32",
    "gnmt-3?seq=4&batch=2&width=32&vocabulary=100",
    "wavenet-18?seq=64",
)
"""All families, with little work each."""


large = cache(zoo.model)


def forward(graph: Graph) -> list[int]:
    return [v for v in range(graph.n) if not graph.backward[v]]


# -- published counts ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("published", PUBLISHED, ids=lambda p: f"{p.name} {p.quantity}")
def test_counts_are_the_published_ones(published: Published) -> None:
    model = large(published.name)
    counts = {"parameters": model.parameters, "macs": model.macs}
    counts["macs per token"] = model.macs / math.prod(model.graph.output_shapes[model.inputs[0]][0])
    assert counts[published.quantity] == pytest.approx(published.value, rel=published.tolerance, abs=0)


def test_wavenet_counts_follow_from_its_figure() -> None:
    # Per layer: a convolution of width 2 into both gates, one to the skip sum, and one back but for the last.
    r, s, layers = 64, 32, 18
    model = zoo.model(f"wavenet-18?residual={r}&skip={s}&seq=100&batch=3")
    gated, skip, residual = (2 * r + 1) * 2 * r, (r + 1) * s, (r + 1) * r
    ends = 256 * r + (s + 1) * s + (s + 1) * 256
    assert model.parameters == layers * (gated + skip) + (layers - 1) * residual + ends
    work = layers * (2 * r * 2 * r + r * s) + (layers - 1) * r * r + s * s + s * 256
    assert model.macs == 3 * 100 * work


def test_eight_layers_of_gnmt_pass_fifty_thousand_ops() -> None:
    assert large("gnmt-8").graph.n > 50_000


# -- what holds for every model -----------------------------------------------------------------------------


@pytest.mark.parametrize("name", zoo.names())
def test_every_name_gives_a_model(name: str) -> None:
    model = large(name)
    assert model.graph.name == name
    assert all(op_kind(kind) != "other" for kind in set(model.graph.op_types)) or name.startswith("layered")


@pytest.mark.parametrize("training", [0, 1])
@pytest.mark.parametrize("name", SMALL)
def test_books_are_kept(name: str, training: int) -> None:
    model = zoo.model(f"{name}&training={training}")
    graph = model.graph
    state = sum(graph.param_bytes[v] for v in range(graph.n) if graph.names[v].endswith("/memory"))
    assert graph.param_bytes.sum() - state == 4 * model.parameters
    assert bool(graph.backward.any()) is bool(training)
    for v in range(graph.n):
        written = 4 * sum(math.prod(shape) for shape in graph.output_shapes[v])
        assert graph.bytes_written[v] <= written, graph.names[v]
    members = Counter(v for group in model.colocation for v in group)
    assert all(count == 1 for count in members.values()), "an op has one weight at most"
    assert [graph.op_types[v] for v in model.inputs] == ["Parameter"] * len(model.inputs)


@pytest.mark.parametrize("name", SMALL)
def test_work_grows_with_the_batch_and_parameters_do_not(name: str) -> None:
    plain, _, options = name.partition("?")
    rest = "&".join(option for option in options.split("&") if not option.startswith("batch"))
    one, four = (zoo.model(f"{plain}?{rest}&training=0&batch={batch}") for batch in (2, 8))
    assert four.parameters == one.parameters
    # The projected distances of Transformer-XL are the same for all sequences.
    shared = sum(
        one.graph.flops[v] / 2 for v in range(one.graph.n) if one.graph.names[v].endswith("attention/r")
    )
    assert four.macs - shared == pytest.approx(4 * (one.macs - shared), rel=1e-12)


# -- training -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", SMALL)
def test_each_product_has_two_gradients_of_its_size(name: str) -> None:
    graph = zoo.graph(f"{name}&training=1")
    weighted = 0
    for v in forward(graph):
        if graph.op_types[v] not in ("Conv", "ConvTranspose", "MatMul"):
            continue
        gradients = [f"{graph.names[v]}/{kind}" for kind in ("grad_input", "grad_weight", "grad_a", "grad_b")]
        found = [graph.index[gradient] for gradient in gradients if gradient in graph.index]
        # The distances of Transformer-XL and the first convolution have nothing to pass a gradient on to.
        assert len(found) in (1, 2)
        assert all(graph.flops[u] == graph.flops[v] for u in found)
        weighted += f"{graph.names[v]}/grad_weight" in graph.index
    assert weighted > 0
    backward = graph.flops[graph.backward].sum() / graph.flops[~graph.backward].sum()
    assert 1.6 < backward < 2.3


@pytest.mark.parametrize("name", SMALL)
def test_each_weight_is_updated_once_where_it_is_stored(name: str) -> None:
    model = zoo.model(f"{name}&training=1")
    graph = model.graph
    group_of = {v: i for i, group in enumerate(model.colocation) for v in group}
    updates = [v for v in range(graph.n) if graph.op_types[v] == "ApplyGradient"]
    assert Counter(group_of[v] for v in updates) == Counter(range(len(model.colocation)))
    stored = [
        v for v in range(graph.n) if graph.param_bytes[v] > 0 and not graph.names[v].endswith("/memory")
    ]
    assert sorted(group_of[v] for v in stored) == list(range(len(model.colocation)))
    _, readers = graph.successors
    assert not set(updates) & set(graph.tensor_producer.tolist()), "nothing waits for an update"
    assert len(readers) > 0


@pytest.mark.parametrize("name", SMALL)
def test_the_backward_pass_follows_the_forward_pass(name: str) -> None:
    graph = zoo.graph(f"{name}&training=1")
    tail, head = graph.arcs
    assert not (graph.backward[tail] & ~graph.backward[head]).any(), "no forward op waits for a gradient"
    losses = [v for v in forward(graph) if graph.op_types[v] == "SoftmaxCrossEntropyLoss"]
    after = set(losses)
    ptr, before = graph.predecessors
    for v in graph.topological_order.tolist():
        if after & set(before[ptr[v] : ptr[v + 1]].tolist()):
            after.add(v)
    assert after - set(losses) == set(np.flatnonzero(graph.backward).tolist()), (
        "all gradients come from a loss"
    )


def test_training_adds_to_the_inference_graph_and_changes_nothing() -> None:
    inference, training = zoo.graph("resnet-50"), zoo.graph("resnet-50?training=1")
    for v, name in enumerate(inference.names):
        u = training.index[name]
        assert training.op_types[u] == inference.op_types[v]
        assert training.output_shapes[u] == inference.output_shapes[v]
        assert training.flops[u] == inference.flops[v]


def test_gradients_of_a_shared_weight_are_added_up_in_place() -> None:
    steps, width = 5, 8
    model = zoo.model(f"rnnlm-1?seq={steps}&batch=3&width={width}&training=1")
    graph = model.graph
    kernel = 4 * (2 * width) * (4 * width)
    written = {
        step: graph.bytes_written[graph.index[f"layer0/t{step}/linear/grad_weight"]] for step in range(steps)
    }
    assert written == {steps - 1: kernel, **dict.fromkeys(range(steps - 1), 0.0)}
    (group,) = [group for group in model.colocation if graph.index["layer0/t0/linear"] in group]
    kinds = Counter(graph.names[v].split("/")[-1] for v in group)
    assert kinds == {"linear": steps, "grad_input": steps, "grad_weight": steps, "update": 1}


def test_a_look_up_touches_its_rows_only() -> None:
    graph = zoo.graph("rnnlm-1?seq=5&batch=3&width=8&vocabulary=1000&training=1")
    rows = 4 * 3 * 5 * 8
    look_up = graph.index["embedding/embedding"]
    assert graph.bytes_read[look_up] == rows + 4 * 3 * 5
    assert graph.bytes_written[graph.index["embedding/embedding/grad_weight"]] == rows
    table = graph.index["embedding/embedding_table"]
    assert (graph.param_bytes[table], graph.bytes_written[table]) == (4 * 1000 * 8, 0)


def test_a_tied_table_is_one_weight_and_a_copy_is_two() -> None:
    tied, copied = (zoo.model(f"gpt2?seq=8&layers=1&training=1&tied={tied}") for tied in (1, 0))
    assert copied.parameters - tied.parameters == 50257 * 768
    for model, together in ((tied, True), (copied, False)):
        index = model.graph.index
        look_up, head = index["embedding/word"], index["head/linear"]
        assert any(look_up in group and head in group for group in model.colocation) is together
    # The gradient of the whole table is there first, and the rows are added to it.
    graph = tied.graph
    assert graph.output_shapes[graph.index["embedding/word/grad_weight"]] == ((50257, 768),)
    assert graph.bytes_written[graph.index["embedding/word/grad_weight"]] == 0


def test_the_gradient_of_a_repeated_summand_is_summed() -> None:
    graph = zoo.graph("bert-base?seq=8&batch=3&training=1")
    reduce = graph.index["embedding/add/grad_reduce2"]
    assert graph.op_types[reduce] == "ReduceSum"
    assert graph.output_shapes[reduce] == ((1, 8, 768),)


# -- details of families ------------------------------------------------------------------------------------


def test_a_decoding_step_reads_its_cache() -> None:
    graph = zoo.graph("gpt2-decode?seq=100&batch=2&layers=1")
    for name in ("k_cache", "v_cache"):
        v = graph.index[f"layer0/attention/{name}"]
        assert graph.param_bytes[v] == 4 * 2 * 99 * 768
        assert graph.output_shapes[v] == ((2, 12, 100, 64),)
    assert graph.flops[graph.index["layer0/attention/scores"]] == 2 * 2 * 768 * 100
    prompt = zoo.model("gpt2?seq=100&batch=2&layers=1")
    assert prompt.macs > 50 * zoo.model("gpt2-decode?seq=100&batch=2&layers=1").macs / 6


def test_greedy_decoding_waits_for_the_word_before() -> None:
    graph = zoo.graph("gnmt-2?seq=3&training=0&batch=2&width=16&vocabulary=50")
    ptr, before = graph.predecessors
    look_up = graph.index["decoder/embedding/t2/embedding"]
    assert graph.index["softmax/t1/argmax"] in before[ptr[look_up] : ptr[look_up + 1]]
    assert (
        "decoder/embedding/t2/embedding" not in zoo.graph("gnmt-2?seq=3&batch=2&width=16&vocabulary=50").index
    )


def test_experts_take_their_share_of_the_tokens() -> None:
    graph = zoo.graph("switch-base-4?seq=16&batch=2&capacity=1.5")
    assert graph.output_shapes[graph.index["encoder/layer1/mlp/expert3/up"]] == ((12, 3072),)
    assert "encoder/layer0/mlp/expert3/up" not in graph.index


# -- names and options --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("alexnet", "the zoo has no graph 'alexnet': give e.g. layered-1000, resnet-50"),
        ("resnet-34", "there is no resnet-34: choose from resnet-50, resnet-101, resnet-152"),
        ("gnmt", "the zoo has no graph 'gnmt'"),
        ("gnmt-0", "the number must be at least 1"),
        ("gnmt-1", "at least two layers"),
        ("wavenet-20", "must be a multiple of 9"),
        ("bert-base?length=9", "bert-base has no parameter 'length': choose from batch, seq, vocabulary"),
        ("bert-base?batch=0", "batch must be > 0, not 0"),
        ("bert-base?batch=many", "batch must be of type int, not 'many'"),
        ("bert-base?training=2", "training must be of type bool, not '2'"),
        ("bert-base?seq=513", "seq must be at most 512, not 513"),
        ("gpt2-decode?seq=1025", "seq must be at most 1024"),
        ("gpt2?heads=7", "width 768 must be a multiple of heads 7"),
        ("unet?size=20", "the input is too small"),
        ("switch-base-8?capacity=nan", "capacity must be > 0, not nan"),
        ("amoebanet?layers=4", "layers must be a multiple of 3"),
        ("amoebanet?filters=100", "filters must be a multiple of 16"),
    ],
)
def test_what_the_zoo_does_not_have_is_refused_by_name(name: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        zoo.model(name)


def test_a_graph_that_nobody_can_mean_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOADMASTER_LIMITS", "layers=1000")
    with pytest.raises(
        InputError, match="rnnlm-90: the graph has more than 1,000 ops, but the limit 'layers' is"
    ):
        zoo.model("rnnlm-90")


def test_options_are_part_of_the_name_and_models_repeat() -> None:
    assert zoo.graph("unet?size=188").name == "unet?size=188"
    assert zoo.graph("unet?size=188") == zoo.graph("unet?size=188")
    assert zoo.graph("unet?size=188&training=0").digest == zoo.graph("unet?size=188").digest


def test_colocation_and_inputs_reach_the_problem() -> None:
    model = zoo.model("rnnlm-2?seq=3&batch=2&width=16")
    problem = api.problem("zoo:rnnlm-2?seq=3&batch=2&width=16", "2acc+1cpu")
    for group in model.colocation:
        assert len({int(problem.class_of[v]) for v in group}) == 1
    assert problem.classes == problem.n - sum(len(group) - 1 for group in model.colocation)
    assert np.flatnonzero(problem.pin >= 0).tolist() == sorted(model.inputs)
    assert (problem.pin[list(model.inputs)] == problem.cluster.host).all()
    assert (problem.time[list(model.inputs)] == 0).all()


# -- the tracing builder ------------------------------------------------------------------------------------


def test_shapes_of_windows() -> None:
    t = Trace("shapes")
    x = t.input(2, 3, 11, 11)
    assert t.conv(x, 8, 3, stride=2).shape == (2, 8, 6, 6)
    assert t.conv(x, 8, 3, stride=2, padding="valid").shape == (2, 8, 5, 5)
    assert t.conv(x, 8, (1, 7), padding=0).shape == (2, 8, 11, 5)
    assert t.conv_transpose(x, 4, 2).shape == (2, 4, 22, 22)
    assert t.pool(x, "MaxPool", 3, stride=2, padding=1).shape == (2, 3, 6, 6)
    assert t.mean(x).shape == (2, 3)


def test_scopes_and_repeated_names() -> None:
    t = Trace("names")
    x = t.input(1, 4)
    with t.scope("a"), t.scope("b"):
        t.relu(t.relu(x))
    t.relu(x)
    assert t.model("").graph.names == ("input", "a/b/relu", "a/b/relu_1", "relu")


@st.composite
def networks(draw: st.DrawFn) -> Trace:
    """Random networks with shared weights, shared values and dead ends; the last value leads to the loss."""
    t = Trace("random", training=True)
    values: list[Value] = [t.input(2, 4)]
    weights = [t.weight(4, 4) for _ in range(2)]
    for _ in range(draw(st.integers(1, 12))):
        a, b = (values[draw(st.integers(0, len(values) - 1))] for _ in range(2))
        kind = draw(st.sampled_from(["linear", "shared", "add", "mul", "relu", "softmax", "norm", "halves"]))
        if kind == "linear":
            values.append(t.linear(a, 4))
        elif kind == "shared":
            values.append(t.linear(a, 4, weight=draw(st.sampled_from(weights)), bias=False))
        elif kind in ("add", "mul"):
            values.append(t.map(kind.title(), a, b))
        elif kind == "halves":
            left, right = t.split(a, 2)
            values.append(t.concat([t.relu(left), right], axis=-1))
        else:
            values.append(t.norm(a) if kind == "norm" else t.map(kind.title(), a))
    t.loss(t.linear(values[-1], 3))
    return t


@settings(max_examples=200, deadline=None)
@given(networks())
def test_differentiation_reaches_every_weight_that_matters_once(t: Trace) -> None:
    # What leads to the loss, told without the backward pass.
    needed: set[tuple[int, int]] = set()
    uses: Counter[tuple[int, int]] = Counter()
    mattering, useful = set(), []
    for step in reversed(t.steps):
        if step.kind != "SoftmaxCrossEntropyLoss" and not any((y.op, y.port) in needed for y in step.outputs):
            continue
        useful.append(step)
        if step.weight is not None:
            mattering.add(step.weight)
        for x in step.inputs:
            needed.add((x.op, x.port))
            if x.trained:
                uses[x.op, x.port] += 1
    model = t.model("")
    graph = model.graph
    kinds = Counter(kind for kind, late in zip(graph.op_types, graph.backward, strict=True) if late)
    assert kinds["ApplyGradient"] == len(mattering)
    assert kinds["Sum"] == sum(count > 1 for count in uses.values())
    assert kinds["ReluGrad"] == sum(s.kind == "Relu" and s.inputs[0].trained for s in useful)
    products = [s for s in useful if s.kind == "MatMul"]
    assert kinds["MatMul"] == len(products) + sum(s.inputs[0].trained for s in products)
    assert kinds["LayerNormalizationGrad"] == sum(s.kind == "LayerNormalization" for s in useful)
