"""Op times: by roofline, from tables, scaled to known totals; and how each of them is known."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from loadmaster import api
from loadmaster.errors import InputError
from loadmaster.graph import Graph, GraphBuilder, layered
from loadmaster.hardware import (
    KINDS,
    ORIGINS,
    Cluster,
    Device,
    accelerators,
    estimate,
    op_kind,
    parse_totals,
    preset,
    read_costs,
    roofline,
    scale_to,
)
from loadmaster.plan import Plan
from loadmaster.report import problem_document


def one(kind: str, device: Device, **more: Any) -> float:
    """The time of a single op on a single device."""
    builder = GraphBuilder()
    builder.op("op", kind, **more)
    return float(roofline(builder.build(), Cluster("one", (device,)))[0, 0])


# -- roofline --------------------------------------------------------------------------------------------------


def test_an_op_takes_what_limits_it_and_the_launch() -> None:
    device = Device("d", "gpu", flops=1e12, bandwidth=1e11, launch=1e-6)
    assert one("Conv", device, flops=1e9) == pytest.approx(1e-6 + 1e-3)
    assert one("Conv", device, flops=1e9, bytes_read=3e8, bytes_written=1e8) == pytest.approx(1e-6 + 4e-3)
    assert one("Conv", device, param_bytes=2e8) == pytest.approx(1e-6 + 2e-3)
    assert one("Conv", device) == 1e-6


@pytest.mark.parametrize("kind", ["Parameter", "Constant", "Result", "Reshape", "Identity"])
def test_what_does_not_run_takes_no_time(kind: str) -> None:
    device = Device("d", "gpu", flops=1e12, bandwidth=1e11, launch=1e-6)
    assert one(kind, device, bytes_written=1e9) == 0.0


def test_efficiency_is_of_the_peak_for_arithmetic_and_of_the_bandwidth_for_traffic() -> None:
    shares = {"conv": 0.5, "default": 0.25, "elementwise": 0.2, "bandwidth": 0.1}
    device = Device("d", "gpu", flops=1e12, bandwidth=1e12, efficiency=shares)
    assert one("Conv", device, flops=1e9) == pytest.approx(2e-3)
    assert one("MatMul", device, flops=1e9) == pytest.approx(4e-3)
    assert one("MatMul", device, bytes_read=1e9) == pytest.approx(1e-2)
    assert one("Relu", device, bytes_read=1e9) == pytest.approx(5e-3)
    assert one("Softmax", device, bytes_read=1e9) == pytest.approx(1e-2)


def test_small_ops_do_not_fill_the_machine() -> None:
    device = Device("d", "gpu", flops=1e12, bandwidth=1e12, saturation={"conv": 1000.0})
    assert one("Conv", device, flops=1e9, shapes=[(10, 100)]) == pytest.approx(2e-3)
    assert one("Conv", device, flops=1e9, shapes=[(1000, 1000)]) == pytest.approx(1.001e-3)
    assert one("Conv", device, flops=1e9, bytes_written=4000) == pytest.approx(2e-3)
    assert one("MatMul", device, flops=1e9, shapes=[(10, 100)]) == pytest.approx(1e-3)


def test_weights_are_read_at_their_own_bandwidth_constants_included() -> None:
    device = Device("d", "cpu", flops=1e15, bandwidth=1e12, weight_bandwidth=1e11)
    assert one("MatMul", device, param_bytes=1e8, bytes_read=1e9) == pytest.approx(2e-3)
    builder = GraphBuilder()
    builder.op("w", "Constant")
    builder.op("half", "Convert", bytes_read=5e7, bytes_written=1e8)
    builder.op("mm", "MatMul", bytes_read=1.1e9)
    builder.tensor("w", bytes=5e7, consumers=["half"])
    builder.tensor("half", bytes=1e8, consumers=["mm"])
    time = roofline(builder.build(), Cluster("one", (device,)))[:, 0]
    assert time.tolist() == pytest.approx([0.0, 5e-4 + 1e-4, 1e-3 + 1e-3])


def test_precision_chooses_the_peak() -> None:
    graph = layered(30, seed=2)
    cluster = preset("p100-2")
    single, half = roofline(graph, cluster), roofline(graph, cluster, precision="fp16")
    assert (half <= single).all()
    assert (half[:, 1] < single[:, 1]).any()
    assert (half[:, 0] == single[:, 0]).all()  # the CPU has no figure for fp16
    with pytest.raises(InputError, match="fp32"):
        roofline(graph, cluster, precision="fp7")


def test_a_device_without_speeds_cannot_be_estimated() -> None:
    with pytest.raises(InputError, match="'d'"):
        one("Conv", Device("d"))


@pytest.mark.parametrize(
    ("op_type", "kind"),
    [
        ("Conv", "conv"), ("Convolution", "conv"), ("GroupConvolution", "conv"), ("aten.convolution.default", "conv"),
        ("Conv2DBackpropInput", "conv"), ("ConvGrad", "conv"), ("MatMul", "matmul"), ("Gemm", "matmul"),
        ("aten::addmm", "matmul"), ("BatchMatMulV2", "matmul"), ("LSTMCell", "recurrent"), ("ReLU", "elementwise"),
        ("aten.add.Tensor", "elementwise"), ("FusedBatchNormV3", "elementwise"), ("Softmax", "reduction"),
        ("ReduceMean", "reduction"), ("MaxPool", "reduction"), ("LayerNormalization", "reduction"),
        ("Concat", "memory"), ("Transpose", "memory"), ("Convert", "memory"), ("Gather", "memory"),
        ("Constant", "data"), ("Parameter", "data"), ("Result", "data"), ("Reshape", "view"), ("Unsqueeze", "view"),
        ("NoSuchOp", "other"), ("", "other"),
    ],
)  # fmt: skip
def test_kinds_of_ops(op_type: str, kind: str) -> None:
    assert op_kind(op_type) == kind
    assert kind in KINDS


@pytest.mark.parametrize("name", ["gnmt-2", "bert-base", "unet", "switch-base-8"])
def test_the_zoo_has_no_op_of_an_unknown_kind(name: str) -> None:
    from loadmaster import zoo

    graph = zoo.model(name).graph
    assert {kind for kind in graph.op_types if op_kind(kind) == "other"} == set()


# -- scaling -----------------------------------------------------------------------------------------------------


def test_scaling_meets_the_totals_and_keeps_the_proportions() -> None:
    graph, cluster = layered(40, seed=1), preset("hsdag")
    before = estimate(graph, cluster)
    after = scale_to(before, graph, cluster, {"cpu": 0.0128, "gpu": 0.0120})
    assert after.time.sum(axis=0)[[0, 2]].tolist() == pytest.approx([0.0128, 0.0120], rel=1e-12)
    assert (after.time[:, 1] == before.time[:, 1]).all()
    ratio = after.time[:, 0] / before.time[:, 0]
    assert ratio.max() == pytest.approx(ratio.min(), rel=1e-12)
    assert "cpu=0.0128" in after.text


def test_a_pattern_scales_every_device_that_it_fits() -> None:
    graph, cluster = layered(10), preset("p100-4")
    after = scale_to(estimate(graph, cluster), graph, cluster, {"gpu*": 0.25})
    assert after.time[:, 1:].sum(axis=0).tolist() == pytest.approx(4 * [0.25])


def test_totals_that_make_no_sense_are_refused() -> None:
    graph, cluster = layered(10), accelerators(1, 1)
    costs = estimate(graph, cluster)
    with pytest.raises(InputError, match="'gpu'"):
        scale_to(costs, graph, cluster, {"gpu": 1.0})
    with pytest.raises(InputError, match="> 0"):
        scale_to(costs, graph, cluster, {"cpu0": 0.0})
    costs.time[3, 1] = np.inf
    with pytest.raises(InputError, match="'op3'"):
        scale_to(costs, graph, cluster, {"cpu0": 1.0})
    costs.time[:] = 0.0
    with pytest.raises(InputError, match="no op takes any time"):
        scale_to(costs, graph, cluster, {"cpu0": 1.0})


@pytest.mark.parametrize("text", ["cpu", "=1", "cpu=1,cpu=2", "cpu=fast", "cpu=1 GB", "", "cpu=1,"])
def test_totals_that_cannot_be_read_are_refused(text: str) -> None:
    with pytest.raises(InputError, match="--scale-to"):
        parse_totals(text)


# -- tables ------------------------------------------------------------------------------------------------------


def tiny() -> tuple[Graph, Cluster]:
    builder = GraphBuilder("tiny")
    for name in ("a", "b", "c"):
        builder.op(name, "Conv", flops=1e9)
    return builder.build(), accelerators(1, 1)


def table(tmp_path: Path, text: str, name: str = "costs.csv") -> Path:
    path = tmp_path / name
    path.write_text(text)
    return path


def test_a_csv_table(tmp_path: Path) -> None:
    graph, cluster = tiny()
    path = table(tmp_path, "op,cpu0,acc0\na,1.5e-3,2 us\nb,0,unsupported\n\nc, 3 ms ,estimate\n")
    costs = read_costs(path, graph, cluster)
    estimated = roofline(graph, cluster)[2, 0]
    assert costs.time.tolist() == [[2e-6, 1.5e-3], [math.inf, 0.0], [estimated, 3e-3]]
    assert [[ORIGINS[x] for x in row] for row in costs.origin] == [
        ["imported", "imported"],
        ["imported", "imported"],
        ["estimated", "imported"],
    ]
    assert "costs.csv" in costs.text
    assert "1 of 6" in costs.text


def test_a_csv_table_says_what_was_measured_and_what_is_left_to_the_roofline(tmp_path: Path) -> None:
    graph, cluster = tiny()
    text = "op,acc0,cpu0,provenance\na,1,1,measured\n*,estimate,estimate,\n"
    costs = read_costs(table(tmp_path, text), graph, cluster)
    assert costs.origin.tolist() == [[2, 2], [0, 0], [0, 0]]
    assert (costs.time[1:] == roofline(graph, cluster)[1:]).all()


def test_a_json_table(tmp_path: Path) -> None:
    graph, cluster = tiny()
    data = {
        "provenance": "measured",
        "times": {
            "a": {"acc0": 1e-3, "cpu0": "2 ms"},
            "b": {"acc0": None, "cpu0": "unsupported", "provenance": "imported"},
            "*": {"acc0": "estimate", "cpu0": 1},
        },
    }
    costs = read_costs(table(tmp_path, json.dumps(data), "costs.json"), graph, cluster)
    assert costs.time[:2].tolist() == [[1e-3, 2e-3], [math.inf, math.inf]]
    assert costs.time[2].tolist() == [roofline(graph, cluster)[2, 0], 1.0]
    assert costs.origin.tolist() == [[2, 2], [1, 1], [0, 2]]


CSV_MISTAKES = {
    "missing op": ("op,acc0,cpu0\na,1,1\nb,1,1\n", 1, "'c' is missing"),
    "missing device": ("op,acc0\na,1\nb,1\nc,1\n", 2, "'cpu0'"),
    "unknown op": ("op,acc0,cpu0\na,1,1\nz,1,1\n", 3, "'z'"),
    "unknown device": ("op,acc0,tpu\na,1,1\n", 2, "'tpu'"),
    "an op twice": ("op,acc0,cpu0\na,1,1\nb,1,1\na,2,2\n", 4, "'a' appears twice (first in line 2)"),
    "a column twice": ("op,acc0,acc0\na,1,1\n", 1, "'acc0' appears twice"),
    "a negative time": ("op,acc0,cpu0\na,1,-1\nb,1,1\nc,1,1\n", 2, "'cpu0' must be >= 0"),
    "a unit of something else": ("op,acc0,cpu0\na,1,1\nb,1,16 GB\nc,1,1\n", 3, "is an amount of memory"),
    "not a number": ("op,acc0,cpu0\na,1,1\nb,1,nan\nc,1,1\n", 3, "'nan'"),
    "an empty cell": ("op,acc0,cpu0\na,1,\nb,1,1\nc,1,1\n", 2, "'cpu0'"),
    "a cell too many": ("op,acc0,cpu0\na,1,1,1\n", 2, "4 cells"),
    "a header that is none": ("a,1,1\n", 1, "begin with 'op'"),
    "an empty file": ("", 1, "empty"),
    "an origin that is none": ("op,acc0,cpu0,provenance\na,1,1,guessed\nb,1,1,\nc,1,1,\n", 2, "'guessed'"),
}  # fmt: skip


@pytest.mark.parametrize("mistake", CSV_MISTAKES)
def test_a_mistake_in_a_csv_table_is_named_with_its_line(tmp_path: Path, mistake: str) -> None:
    text, line, word = CSV_MISTAKES[mistake]
    path = table(tmp_path, text)
    with pytest.raises(InputError) as caught:
        read_costs(path, *tiny())
    assert str(caught.value).startswith(f"{path}, line {line}: ")
    assert word in str(caught.value)


JSON_TABLE = """\
{
  "times": {
    "a": {"acc0": 1, "cpu0": 1},
    "b": {
      "acc0": 1,
      "cpu0": 1
    },
    "c": {"acc0": 1, "cpu0": 1}
  }
}
"""
JSON_MISTAKES = {
    "unknown op": ('"c":', '"z":', 8, "'z'"),
    "unknown device": ('"cpu0": 1\n', '"tpu": 1\n', 6, "'tpu'"),
    "missing device": (',\n      "cpu0": 1\n', "\n", 4, "'cpu0'"),
    "a negative time": ('"cpu0": 1\n', '"cpu0": -1\n', 6, ">= 0"),
    "a list": ('"cpu0": 1\n', '"cpu0": [1]\n', 6, "a list"),
    "a unit of something else": ('"cpu0": 1\n', '"cpu0": "1 GB/s"\n', 6, "is a bandwidth"),
    "a time alone": ('{"acc0": 1, "cpu0": 1}\n', "1\n", 8, "'c'"),
    "an unknown key": ('"times": {', '"unit": "s",\n  "times": {', 2, "'unit'"),
}


@pytest.mark.parametrize("mistake", JSON_MISTAKES)
def test_a_mistake_in_a_json_table_is_named_with_its_line(tmp_path: Path, mistake: str) -> None:
    old, new, line, word = JSON_MISTAKES[mistake]
    assert JSON_TABLE.count(old) == 1
    path = table(tmp_path, JSON_TABLE.replace(old, new), "costs.json")
    with pytest.raises(InputError) as caught:
        read_costs(path, *tiny())
    assert str(caught.value).startswith(f"{path}, line {line}: ")
    assert word in str(caught.value)


@pytest.mark.parametrize("text", ["[]", '{"times": []}', "{", "[" * 100_000])
def test_json_that_is_no_table_is_refused(tmp_path: Path, text: str) -> None:
    with pytest.raises(InputError, match=r"costs.json"):
        read_costs(table(tmp_path, text, "costs.json"), *tiny())


# -- in a problem --------------------------------------------------------------------------------------------------


def test_a_problem_keeps_how_its_times_are_known(tmp_path: Path) -> None:
    graph, cluster = tiny()
    path = table(tmp_path, "op,acc0,cpu0,provenance\na,1,1,measured\nb,1,1,\nc,estimate,1,\n")
    problem = api.problem(graph, cluster, costs=path)
    document = problem_document(problem)
    assert document["origins"] == {
        "acc0": {"estimated": 1, "imported": 1, "measured": 1},
        "cpu0": {"imported": 2, "measured": 1},
    }
    solution = api.place(problem, "single", evaluations=5)
    plan = tmp_path / "plan.json"
    Plan.from_solution(problem, solution).save(plan)
    back = Plan.load(plan).problem()
    assert (back.origin == problem.origin).all()
    assert back.provenance == problem.provenance
    assert back == problem


def test_provenance_does_not_make_problems_differ(tmp_path: Path) -> None:
    graph, cluster = tiny()
    texts = [f"op,acc0,cpu0,provenance\n*,1,1,{origin}\n" for origin in ("measured", "imported")]
    first, second = (api.problem(graph, cluster, costs=table(tmp_path, text)) for text in texts)
    assert first == second


def test_scaled_single_device_totals_are_the_serial_costs_alone() -> None:
    problem = api.problem(layered(50), "hsdag", "serial", scale_to="cpu=12.8ms,gpu=0.012")
    alone = {device["name"]: device["cost_alone"] for device in problem_document(problem)["devices"]}
    assert alone["cpu"] == pytest.approx(0.0128)
    assert alone["gpu"] == pytest.approx(0.0120)


def test_what_brings_its_own_times_takes_no_others() -> None:
    problem = api.problem(layered(5))
    for more in ({"costs": "x.csv"}, {"scale_to": "cpu0=1"}, {"precision": "fp16"}):
        with pytest.raises(InputError, match="own op times"):
            api.problem(problem, **more)
