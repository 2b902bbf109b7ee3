"""The expert's placements are the ones that people make by hand."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from loadmaster import api
from loadmaster.graph import layered
from loadmaster.hardware import Cluster, Device, Link, accelerators, roofline
from loadmaster.placers import Budget
from loadmaster.placers.rules.expert import Expert, balanced_cuts
from loadmaster.problem import Concurrent, Pipeline, Problem, Serial
from loadmaster.problem._evaluator import evaluate


def placed(problem: Problem) -> dict[str, str]:
    """Op name -> device name."""
    solution = Expert().place(problem, budget=Budget(evaluations=5))
    assert evaluate(problem, solution.placement).feasible
    devices = [problem.cluster.names[d] for d in solution.placement.device]
    return dict(zip(problem.graph.names, devices, strict=True))


def devices_of(placement: dict[str, str], prefix: str) -> set[str]:
    found = {device for name, device in placement.items() if name.startswith(prefix)}
    assert found, prefix
    return found


def test_one_lstm_layer_per_device() -> None:
    placement = placed(api.problem("zoo:gnmt-4?seq=3&batch=4", "4acc+1cpu"))
    for i in range(4):
        assert devices_of(placement, f"encoder/layer{i}/") == {f"acc{i}"}
        assert devices_of(placement, f"decoder/layer{i}/") == {f"acc{i}"}
    assert devices_of(placement, "encoder/embedding/") == {"acc0"}
    assert devices_of(placement, "decoder/embedding/") == {"acc0"}
    assert devices_of(placement, "attention/") == {"acc3"}
    assert placement["softmax/linear"] == placement["softmax/linear/grad_weight"] == "acc3"
    assert placement["source"] == "cpu0"


def test_more_layers_than_devices_are_dealt_out_in_order() -> None:
    placement = placed(api.problem("zoo:rnnlm-8?seq=3&batch=4", "4acc+1cpu"))
    assert [devices_of(placement, f"layer{i}/") for i in range(8)] == [{f"acc{i // 2}"} for i in range(8)]


def test_fewer_layers_than_devices_leave_devices_idle() -> None:
    placement = placed(api.problem("zoo:transformer-xl-2?seq=16&memory=16", "8acc+1cpu"))
    assert set(placement.values()) == {"acc0", "acc1", "cpu0"}


def test_a_decoder_follows_its_encoder_unless_unrolled_in_time() -> None:
    placement = placed(api.problem("zoo:switch-base-2?seq=16&target=8", "4acc+1cpu"))
    order = [f"{part}/layer{i}/attention/" for part in ("encoder", "decoder") for i in range(12)]
    assert [devices_of(placement, prefix) for prefix in order] == [{f"acc{i // 6}"} for i in range(24)]


def test_experts_of_a_mixture_are_spread() -> None:
    placement = placed(api.problem("zoo:switch-base-8?seq=16&target=8", "4acc+1cpu"))
    for e in range(8):
        assert devices_of(placement, f"encoder/layer5/mlp/expert{e}/") == {f"acc{e // 2}"}


def test_a_whole_stack_of_wavenet_per_device() -> None:
    placement = placed(api.problem("zoo:wavenet-36?seq=100", "4acc+1cpu"))
    for stack in range(4):
        assert devices_of(placement, f"stack{stack}/") == {f"acc{stack}"}
    assert devices_of(placement, "front/") == {"acc0"}
    assert placement["post/conv2"] == "acc3"


@pytest.mark.parametrize("name", ["inception-v3", "resnet-50", "amoebanet?training=0", "unet"])
def test_cnns_are_cut_into_balanced_stretches_of_whole_blocks(name: str) -> None:
    problem = api.problem(f"zoo:{name}", "3acc+1cpu")
    placement = placed(problem)
    graph = problem.graph
    blocks: dict[str, set[str]] = {}
    for v in graph.topological_order.tolist():
        if "/" in graph.names[v]:
            depth = 2 if name == "resnet-50" and graph.names[v].startswith("stage") else 1
            blocks.setdefault("/".join(graph.names[v].split("/")[:depth]), set()).add(
                placement[graph.names[v]]
            )
    order = [device for devices in blocks.values() for device in devices]
    assert len(order) == len(blocks), "no block is split"
    assert order == sorted(order), "in the order of the network"
    index = [problem.cluster.index[placement[op]] for op in graph.names]
    load = np.bincount(index, problem.time[:, 0], problem.devices)[:3]
    assert load.max() < 1.4 * load.mean()


def test_names_as_torch_writes_them() -> None:
    graph = layered(12, width=1, seed=3)
    names = [f"bert.encoder.layer.{i // 3}.op{i % 3}" for i in range(12)]
    order = graph.topological_order
    graph = type(graph)(**{**vars_of(graph), "names": tuple(names[graph.position[v]] for v in range(12))})
    cluster = accelerators(2, 0)
    problem = Problem.make(graph, cluster, Concurrent(), time=np.ones((12, 2)))
    placement = placed(problem)
    assert [placement[graph.names[v]] for v in order] == ["acc0"] * 6 + ["acc1"] * 6


def vars_of(graph: object) -> dict[str, object]:
    return {key: getattr(graph, key) for key in graph.__dataclass_fields__}  # type: ignore[attr-defined]


def test_a_much_slower_accelerator_is_left_alone() -> None:
    devices = tuple(
        Device(name, kind, flops=flops, bandwidth=1e11)
        for name, kind, flops in (
            ("cpu", "cpu", 1e12),
            ("old", "gpu", 1e12),
            ("a", "gpu", 9e12),
            ("b", "gpu", 9e12),
        )
    )
    link = Link(1e-5, 1e10)
    links = tuple(tuple(None if d == e else link for e in range(4)) for d in range(4))
    graph = layered(40, seed=1)
    cluster = Cluster("mixed", devices, links)
    problem = Problem.make(graph, cluster, Concurrent(), time=roofline(graph, cluster))
    assert set(placed(problem).values()) == {"a", "b"}
    assert set(placed(problem.with_model(Serial())).values()) in ({"a"}, {"b"})


def test_what_does_not_fit_moves_elsewhere() -> None:
    problem = api.problem("zoo:rnnlm-2?seq=3&batch=4", accelerators(2, 1, capacity=250e6))
    placement = placed(problem)
    assert set(placement.values()) == {"acc0", "acc1", "cpu0"}


@pytest.mark.parametrize("contiguity", ["device", "chain"])
def test_a_rule_that_breaks_contiguity_gives_way_to_plain_stretches(contiguity: str) -> None:
    problem = api.problem(
        "zoo:gnmt-2?seq=3&batch=4&training=1", "2acc+1cpu", "pipeline", contiguity=contiguity
    )
    placed(problem)
    straight = api.problem(
        "zoo:bert-base?training=1", "3acc+1cpu", "pipeline", contiguity=contiguity, comm="sum"
    )
    assert set(placed(straight).values()) >= {"acc0"}


def test_without_accelerators_the_cpus_share_the_work() -> None:
    graph = layered(30, seed=2)
    cluster = accelerators(0, 2)
    problem = Problem.make(graph, cluster, Pipeline(), time=roofline(graph, cluster))
    assert set(placed(problem).values()) == {"cpu0", "cpu1"}


@given(st.lists(st.integers(0, 20), min_size=1, max_size=8), st.integers(1, 4))
def test_cuts_are_the_best_there_are(load: list[int], parts: int) -> None:
    stretch = balanced_cuts(np.array(load, np.float64), parts)
    assert stretch[0] == 0
    assert set(np.diff(stretch).tolist()) <= {0, 1}
    assert stretch[-1] < parts
    largest = max(sum(x for x, s in zip(load, stretch, strict=True) if s == part) for part in range(parts))
    best = min(
        max(sum(load[a:b]) for a, b in itertools.pairwise((0, *sorted(cuts), len(load))))
        for cuts in itertools.combinations_with_replacement(range(len(load) + 1), parts - 1)
    )
    assert largest == best
