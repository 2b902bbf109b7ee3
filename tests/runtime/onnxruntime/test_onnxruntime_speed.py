"""Devices of unlike speed by ONNX Runtime: the same in every way to run a model, by the clock of the core."""

from __future__ import annotations

import time

import numpy as np
import pytest
from small_networks import CLOCK
from small_onnx import branched_onnx

import loadmaster
from loadmaster import api
from loadmaster.optimize import optimize
from loadmaster.problem import Placement
from loadmaster.runtime import cut

ort = pytest.importorskip("onnxruntime")

from loadmaster.runtime.onnxruntime import FlatModel, profile_model, run_plan  # noqa: E402
from loadmaster.runtime.onnxruntime._executors import EXECUTORS  # noqa: E402

SLOW = 0.05
"""So slow that no other work on the machine looks like it."""
SHAPES = {"x": (2, 8, 12, 12)}
EQUAL, UNLIKE = (api.parse_devices(["A=cpu", text]) for text in ("B=cpu", f"B=cpu:speed={SLOW}"))


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return branched_onnx(tmp_path_factory.mktemp("speed") / "net.onnx")


@pytest.fixture(scope="module")
def flat(model):
    return FlatModel(model, SHAPES)


def executor(flat, specs, how, **options):
    made = EXECUTORS[how](flat, {spec.name: spec for spec in specs}, **options)
    made.feed(flat.draw(1))
    made.infer()
    return made


def close(made):
    getattr(made, "close", lambda: None)()


@pytest.mark.parametrize("how", ["chain", "concurrent", "pipeline", "serial"])
def test_every_submodel_of_a_slow_device_takes_longer_and_gives_the_same(how, model, flat):
    problem = api.problem(str(model), "2acc", "concurrent", shapes=SHAPES)
    placement = Placement((np.arange(problem.n) % 2).astype(np.int32))
    named = {op: "AB"[at] for op, at in zip(problem.graph.names, placement.device.tolist(), strict=True)}
    pieces = [
        type(piece)("AB"[problem.cluster.index[piece.device]], piece.ops)
        for piece in cut(problem, placement, joins=how == "concurrent")
    ]
    options = {"placement": named} if how == "serial" else {"pieces": pieces}
    taken, outputs = {}, {}
    for specs in (EQUAL, UNLIKE):
        made = executor(flat, specs, how, **options)
        runs = [[s for s in made.spans() if s.get("request", 0) == 0] for _ in range(5)]
        taken[specs[1].speed] = min(sum(s["core"] for s in run if s["device"] == "B") for run in runs)
        outputs[specs[1].speed] = made.outputs()
        close(made)
    assert taken[SLOW] > 5 * taken[1.0]
    for a, b in zip(outputs[1.0], outputs[SLOW], strict=True):
        np.testing.assert_array_equal(a, b)


def test_a_slow_device_alone_takes_longer(flat):
    taken = {}
    for name in "AB":
        made = executor(flat, UNLIKE, "single", device=name)
        runs = []
        for _ in range(5):
            began = time.thread_time()
            made.infer()
            runs.append(time.thread_time() - began)
        taken[name] = min(runs)
    assert taken["B"] > 5 * taken["A"]


def test_a_chain_runs_pieces_in_an_order_that_their_tensors_allow(model, flat):
    problem = api.problem(str(model), "2acc", "concurrent", shapes=SHAPES)
    placement = Placement((np.arange(problem.n) % 2).astype(np.int32))
    pieces = [
        type(piece)("AB"[problem.cluster.index[piece.device]], piece.ops)
        for piece in cut(problem, placement, joins=False)
    ]
    whole = executor(flat, EQUAL, "single", device="A")
    backwards = executor(flat, EQUAL, "chain", pieces=pieces[::-1])
    for a, b in zip(whole.outputs(), backwards.outputs(), strict=True):
        np.testing.assert_allclose(b, a, rtol=1e-4, atol=1e-5)


def test_a_profile_sees_the_speed(model):
    profile = profile_model(model, UNLIKE, SHAPES, clock=CLOCK, links_too=False)
    fast, slow = profile.profiles["A"], profile.profiles["B"]
    assert slow.wall > 5 * fast.wall
    assert sum(slow.seconds.values()) == pytest.approx(slow.wall)


def test_a_plan_of_unlike_devices_is_optimised_run_and_opened(model):
    found = optimize(
        model,
        UNLIKE,
        SHAPES,
        budget=5.0,
        model="concurrent",
        pins=["b0/left=B"],
        samples=3,
        clock=CLOCK,
        runtime="onnxruntime",
    )
    assert found.plan.document["placement"]["b0/left"] == "B"
    again = run_plan(model, found.plan, shapes=SHAPES, samples=3, clock=CLOCK)
    times = {line.name: line.measurement.median for line in again.lines if line.measurement}
    assert times["B alone"] > 5 * times["A alone"]
    x = np.random.default_rng(0).normal(size=SHAPES["x"]).astype(np.float32)
    expected = ort.InferenceSession(str(model), providers=["CPUExecutionProvider"]).run(None, {"x": x})
    with loadmaster.open(model, found.plan, shapes=SHAPES) as net:
        for a, b in zip(net(x), expected, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)
