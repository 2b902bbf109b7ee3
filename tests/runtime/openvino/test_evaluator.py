"""Placers search on real runs."""

from __future__ import annotations

import math

import numpy as np
from small_networks import CLOCK, DEVICES, halves

from loadmaster import api
from loadmaster.problem import Placement
from loadmaster.runtime.openvino import OpenVinoEvaluator, parse_devices


def test_any_placer_can_search_on_real_runs(network, problem, cache):
    specs = parse_devices(DEVICES[:2])
    with OpenVinoEvaluator(problem, network, specs, samples=3, cache=cache, clock=CLOCK) as evaluator:
        solution = api.place(problem, "random", evaluations=3, evaluator=evaluator)
        assert evaluator.results[solution.placement].status == "measured"
        assert solution.cost == evaluator.results[solution.placement].seconds
        assert solution.bound == 0.0
    with OpenVinoEvaluator(problem, network, specs, samples=3, cache=cache, clock=CLOCK) as again:
        assert again.evaluate(solution.placement).cost == solution.cost
        assert again.results[solution.placement].cached


def test_failures_are_results_and_the_next_placement_runs(network, problem):
    with OpenVinoEvaluator(problem, network, parse_devices(DEVICES[:2]), samples=3, clock=CLOCK) as evaluator:
        broken = np.zeros(problem.n, np.int32)
        broken[problem.graph.index["block0/relu0"]] = 1
        assert evaluator.result(Placement(broken)).status == "infeasible"
        first = Placement(np.zeros(problem.n, np.int32))
        assert evaluator.result(first).status == "measured"
        evaluator._session.worker.close()
        second = Placement(np.ones(problem.n, np.int32))
        assert evaluator.result(second).status == "died"
        assert evaluator.evaluate(second) == (math.inf, False)
        assert evaluator.result(halves(problem)).status == "measured"
        evaluator._limit = 0.0
        assert evaluator.result(Placement(1 - halves(problem).device)).status == "timeout"
