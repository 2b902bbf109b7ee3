"""What learned placers decide about: units are a partition, and every choice can be costed."""

from __future__ import annotations

import numpy as np
import pytest
from learned_problems import layers

from loadmaster import api
from loadmaster.graph.order import topological_order
from loadmaster.placers.learned.units import learn_costs, units_of
from loadmaster.problem import ExecutionModel, Offload, Pipeline, Problem
from loadmaster.problem._evaluator import SimulatedEvaluator
from loadmaster.problem.coarsening import coarsen


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
    problem = layers(40, width=4, model=model)
    units = units_of(problem, "")
    choice = np.random.default_rng(0).integers(0, 2, (50, units.count)).astype(np.int32)
    search = _Costs(problem)
    cost = learn_costs(search, units, choice)  # type: ignore[arg-type]
    assert np.isfinite(cost).all()


class _Costs:
    """The little of a search that costing needs."""

    def __init__(self, problem: Problem) -> None:
        self.evaluator, self.cost = SimulatedEvaluator(problem), 0.0
