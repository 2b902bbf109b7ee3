"""Critical path, waits, cuts and moves: checked against the evaluation they explain."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import models, placements, problems

from loadmaster.problem import Concurrent, Offload, Placement, Serial
from loadmaster.problem._evaluator import SimulatedEvaluator, evaluate
from loadmaster.report._critical import critical_path, waits
from loadmaster.report._cuts import cuts
from loadmaster.report._moves import move_costs


@given(st.data())
def test_the_critical_path_has_no_pause_and_ends_with_the_cost(data):
    problem = data.draw(problems(st.sampled_from([Concurrent(), Concurrent("static"), Offload(2)])))
    placement = data.draw(placements(problem))
    evaluation = evaluate(problem, placement)
    steps = critical_path(problem, placement, evaluation)
    if evaluation.start is None:
        assert steps == []
        return
    assert steps[-1].end == evaluation.cost
    assert steps[0].start == 0
    for before, after in itertools.pairwise(steps):
        assert before.end == after.start


@given(st.data())
def test_waiting_and_working_add_up_to_the_makespan(data):
    problem = data.draw(problems(st.just(Concurrent())))
    placement = data.draw(placements(problem))
    evaluation = evaluate(problem, placement)
    if evaluation.start is None:
        return
    found = waits(problem, placement, evaluation)
    for d in range(problem.devices):
        idle = sum(wait.seconds for wait in found if wait.device == d)
        assert evaluation.busy[d] + idle == pytest.approx(evaluation.cost)


@given(st.data())
def test_cuts_under_serial_are_the_communication_of_the_evaluation(data):
    problem = data.draw(problems(st.just(Serial())))
    placement = data.draw(placements(problem))
    total = sum(cut.seconds for cut in cuts(problem, placement))
    assert total == pytest.approx(evaluate(problem, placement).comm.sum())


@given(st.data())
def test_moves_cost_what_evaluating_them_says(data):
    problem = data.draw(problems(models()))
    placement = data.draw(placements(problem, orders=data.draw(st.booleans())))
    cost = move_costs(problem, placement)
    evaluator = SimulatedEvaluator(problem)
    for v in range(problem.n):
        for d in range(problem.devices):
            if d == placement.device[v]:
                continue
            device = placement.device.copy()
            device[problem.class_of == problem.class_of[v]] = d
            outcome = evaluator.evaluate(Placement(device, placement.order))
            if len(set(placement.device[problem.class_of == problem.class_of[v]].tolist())) == 1:
                assert cost[v, d] == outcome.value


@given(st.data())
def test_without_effort_no_move_is_looked_at(data):
    problem = data.draw(problems(Serial()))
    placement = Placement(np.zeros(problem.n, np.int32))
    cost = move_costs(problem, placement, effort=0)
    allowed = problem.class_allowed[problem.class_of]
    assert np.isnan(cost[:, 1:][allowed[:, 1:]]).all()
    assert np.isinf(cost[:, 1:][~allowed[:, 1:]]).all()
    assert not np.isnan(cost[:, 0]).any()
