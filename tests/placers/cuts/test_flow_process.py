"""Large maximum flows are solved in a process of their own, and given up when time is over."""

from __future__ import annotations

import time

import numpy as np
import pytest

from loadmaster import api
from loadmaster.graph import layered
from loadmaster.placers.cuts import _cut_graph, _flow_process
from loadmaster.placers.cuts._cut_graph import Arcs, minimum_cut
from loadmaster.placers.cuts._flow_process import solve_apart
from loadmaster.placers.frame.search import Budget, OutOfBudget, Search, look_at_clock


def drawn(rng: np.random.Generator, nodes: int, arcs: int) -> Arcs:
    """Some arcs from the source (-1), some to the sink (-2), some that must not be cut."""
    tail = rng.integers(-1, nodes, arcs)
    head = np.where(rng.random(arcs) < 0.3, -2, rng.integers(0, nodes, arcs))
    return Arcs(nodes, tail, head, np.where(rng.random(arcs) < 0.1, np.inf, rng.random(arcs)))


def test_the_cut_is_the_same_in_another_process(monkeypatch):
    rng = np.random.default_rng(0)
    networks = [drawn(rng, int(rng.integers(2, 14)), int(rng.integers(1, 40))) for _ in range(40)]
    here = [minimum_cut(network, flows=True) for network in networks]
    monkeypatch.setattr(_cut_graph, "APART", 0)
    for network, known in zip(networks, here, strict=True):
        found = minimum_cut(network, flows=True)
        assert found.value == known.value
        assert np.array_equal(found.source_side, known.source_side)
        assert np.array_equal(found.flow, known.flow)


def test_one_process_serves_one_network_after_another(monkeypatch):
    monkeypatch.setattr(_cut_graph, "APART", 0)
    network = drawn(np.random.default_rng(1), 5, 20)
    minimum_cut(network)
    process = _flow_process._idle[-1].pid
    minimum_cut(network)
    assert _flow_process._idle[-1].pid == process


def test_it_ends_at_once_when_time_is_over():
    rng = np.random.default_rng(2)
    nodes = 100_000
    tail, head = (rng.integers(0, nodes, 10**6).astype(np.int32) for _ in range(2))
    units = rng.integers(1, 1000, 10**6)
    before = list(_flow_process._idle)
    with pytest.raises(OutOfBudget):
        solve_apart(tail, head, units, 0, 1, False, _raise)
    assert len(_flow_process._idle) <= len(before)  # a process that is in the middle of it is not used again


def _raise() -> None:
    raise OutOfBudget


def test_the_clock_is_that_of_the_search_around():
    problem = api.problem(layered(10), "2acc+1cpu", model="serial")
    look_at_clock()  # none
    with Search(problem, Budget(seconds=0.01), "mine") as search:
        search.try_device(np.zeros(10, np.int32))
        time.sleep(0.02)
        with pytest.raises(OutOfBudget):
            look_at_clock()
    assert search.stopped == "budget"
    look_at_clock()
