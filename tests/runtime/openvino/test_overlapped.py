"""Devices that work at once give the outputs of the unplaced model, in order."""

from __future__ import annotations

import itertools
import threading
import time

import numpy as np
import pytest
from small_networks import CLOCK, DEVICES, problem_of, random_pieces

from loadmaster.graph.openvino import openvino_model
from loadmaster.runtime import allowed_cores
from loadmaster.runtime.openvino import Devices, OpenVinoSession, parse_devices
from loadmaster.runtime.openvino._overlapped import Overlapped


@pytest.fixture(scope="module")
def branched_session(model_file):
    with OpenVinoSession(model_file, parse_devices(DEVICES), cores=allowed_cores(), clock=CLOCK) as opened:
        yield opened


@pytest.mark.parametrize("how", ["concurrent", "pipeline"])
@pytest.mark.parametrize("devices", [2, 3])
def test_random_placements_give_the_outputs_of_the_unplaced_model(branched_session, model_file, how, devices):
    problem = problem_of(model_file, devices)
    for seed in range(4):
        options = {"items": 5} if how == "pipeline" else {}
        candidate = branched_session.load(how, pieces=random_pieces(problem, seed), **options)
        candidate.verify()
        assert candidate.submodels > 1
        candidate.close()


def test_a_trace_has_the_real_start_and_end_of_every_submodel(branched_session, model_file):
    pieces = random_pieces(problem_of(model_file), 0)
    candidate = branched_session.load("pipeline", pieces=pieces, items=4)
    spans = candidate.trace()
    assert len(spans) == 4 * len(pieces)
    assert all(0 <= span["start"] <= span["end"] for span in spans)
    for device in "AB":
        mine = [span for span in spans if span["device"] == device]
        assert all(a["end"] <= b["start"] for a, b in itertools.pairwise(mine))
    candidate.close()


def test_all_ways_are_measured_in_turns(branched_session, model_file):
    candidates = [
        branched_session.load("single", device="A"),
        branched_session.load("all-cores", threads=2),
        branched_session.load("concurrent", pieces=random_pieces(problem_of(model_file), 1)),
    ]
    for found in branched_session.measure(candidates, samples=3):
        assert found.kept >= 3
        assert 0 < found.low <= found.median <= found.high


def test_a_stream_keeps_its_order(model_file):
    model = openvino_model(model_file)
    devices = Devices(parse_devices(["A=cpu", "B=cpu"]))
    generator = np.random.default_rng(3)
    items = [[generator.standard_normal((1, 8, 12, 12)).astype(np.float32)] for _ in range(12)]
    alone = devices.compile(model, "A")
    before = threading.active_count()
    net = Overlapped(model, devices, random_pieces(problem_of(model_file), 2), slots=3)
    try:
        for found, item in zip(net.stream(items), items, strict=True):
            for at, expected in enumerate(alone(item).values()):
                np.testing.assert_allclose(found[at], expected, rtol=1e-4, atol=1e-4)
    finally:
        net.close()
    assert threading.active_count() == before


def test_a_stream_says_how_long_single_requests_took(branched_session, model_file):
    pieces = random_pieces(problem_of(model_file), 1)
    streamed = branched_session.load("pipeline", pieces=pieces, items=6)
    alone = branched_session.load("single", device="A")
    branched_session.measure([streamed, alone], samples=3)
    latency = streamed.latency()
    assert latency.requests >= 18
    assert 0 < latency.median <= latency.p95
    assert alone.latency() is None


def test_openvinos_own_streams_are_measured_per_request(branched_session):
    streams = branched_session.load("streams", threads=2, items=6)
    found = branched_session.measure([streams], samples=3)[0]
    assert streams.items == 6
    assert found.median > 0


def test_measuring_ends_in_time_with_the_fewest_samples(branched_session):
    alone = branched_session.load("single", device="A")
    found = branched_session.measure([alone], samples=10_000, until=time.monotonic(), fewest=3)[0]
    assert 3 <= found.kept < 10_000
