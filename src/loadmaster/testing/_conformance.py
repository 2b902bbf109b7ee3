"""What every placer must do, as a pytest class. Nothing here knows any placer: what differs, they say."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, ClassVar

import pytest

from loadmaster import api
from loadmaster.errors import InfeasibleError, UnsupportedError
from loadmaster.placers import Budget, Placer, Progress
from loadmaster.problem import (
    ExecutionModel,
    Offload,
    Outcome,
    Placement,
    Problem,
    SimulatedEvaluator,
    Solution,
    evaluate,
)
from loadmaster.problem.bounds import lower_bound
from loadmaster.testing import _cases as cases
from loadmaster.testing._brute_force import brute_force
from loadmaster.testing._repeating import assert_runs_repeat

__all__ = ["PlacerConformance"]


class PlacerConformance:
    """The tests that every placer of Loadmaster passes.

    >>> # class TestMine(PlacerConformance):
    >>> #     placer = Mine()

    Each test runs under every execution model that the placer supports. A problem that it does not support (a
    training graph, say, or limited memory) is skipped with the reason that ``supports`` gives.

    A placer says by class attributes what more may be asked of it, all optional:

    - ``keeps_start = True``: it never returns something worse than a feasible ``start``.
    - ``warm_up``: evaluations after which all its parts have had their turn, where 300 would take long.
    """

    placer: ClassVar[Placer]
    """What is tested."""
    models: ClassVar[Sequence[ExecutionModel]] = cases.MODELS
    """Execution models to test with, where it supports them."""
    evaluations: ClassVar[int] = 300
    """The budget of most runs."""

    def pytest_generate_tests(self, metafunc: pytest.Metafunc) -> None:
        """Every test of a model with every model that the placer supports."""
        if "model" in metafunc.fixturenames:
            models = [m for m in self.models if self.placer.supports(cases.plain(m, 4)) is None]
            metafunc.parametrize("model", models, ids=[cases.label(model) for model in models])

    def solve(self, problem: Problem, **more: Any) -> Solution:
        """Place, and check whatever holds for any answer."""
        self.require_support(problem)
        more.setdefault("budget", Budget(evaluations=self.evaluations))
        solution = self.placer.place(problem, **more)
        detail = evaluate(problem, solution.placement)
        assert detail.feasible, detail.why
        assert detail.cost == solution.cost
        again = SimulatedEvaluator(problem).evaluate(solution.placement)
        assert again == (solution.cost, True)
        assert math.isfinite(solution.cost)
        assert solution.bound <= solution.cost
        assert solution.bound >= min(lower_bound(problem).value, solution.cost)
        assert solution.method == self.placer.name
        assert solution.bound_by
        costs = [point.cost for point in solution.history]
        assert costs == sorted(costs, reverse=True)
        assert costs[-1] == solution.cost
        return solution

    def require_support(self, problem: Problem) -> None:
        """Skip what the placer does not support; the reason must be one that a user can be given."""
        reason = self.placer.supports(problem)
        if reason is None:
            return
        assert reason.strip()
        assert "\n" not in reason
        with pytest.raises(UnsupportedError) as refusal:
            api.place(problem, self.placer, evaluations=1)
        assert reason in str(refusal.value)
        pytest.skip(f"{self.placer.name}: {reason}")

    # -- what it is ------------------------------------------------------------------------------------------

    def test_it_supports_some_model(self) -> None:
        """Else nothing else is tested."""
        assert any(self.placer.supports(cases.plain(model, 4)) is None for model in self.models)

    def test_its_parameters_can_be_set(self) -> None:
        """It is a dataclass: with nothing changed, the same again."""
        assert api.configured(self.placer) == self.placer
        assert self.placer.name
        assert "\n" not in self.placer.summary

    # -- what it finds ---------------------------------------------------------------------------------------

    def test_a_plain_graph(self, model: ExecutionModel) -> None:
        """Forty ops, two accelerators and a CPU."""
        self.solve(cases.plain(model, 40, seed=1))

    def test_all_constraints_at_once(self, model: ExecutionModel) -> None:
        """Memory, a pin, a forbidden device, an unsupported op, colocation."""
        problem = cases.constrained(model)
        solution = self.solve(problem)
        assert solution.placement.device[problem.graph.topological_order[-1]] == 3

    def test_a_training_graph(self, model: ExecutionModel) -> None:
        """Forward and backward ops, colocated in pairs."""
        if not isinstance(model, Offload):  # offload is for inference
            self.solve(cases.training(model))

    def test_the_bound_holds_for_all_placements(self, model: ExecutionModel) -> None:
        """No placement at all is cheaper than the bound."""
        problem = cases.small(model)
        assert self.solve(problem).bound <= _optimum(problem)[1] * (1 + 1e-9)

    def test_a_start_is_never_made_worse(self, model: ExecutionModel) -> None:
        """A placer that ``keeps_start`` returns the best placement if that is where it starts.

        Any placer must take a start.
        """
        problem = cases.small(model)
        best, cost = _optimum(problem)
        found = self.solve(problem, start=best).cost
        if getattr(self.placer, "keeps_start", False):
            assert found <= cost * (1 + 1e-12)

    # -- how it stops ----------------------------------------------------------------------------------------

    @pytest.mark.parametrize("evaluations", [1, 2, 7])
    def test_a_budget_of_evaluations_is_kept(self, model: ExecutionModel, evaluations: int) -> None:
        """Also a tiny one."""
        problem = cases.plain(model, 15, width=3, seed=2)
        assert self.solve(problem, budget=Budget(evaluations=evaluations)).evaluations <= evaluations

    def test_no_time_at_all_still_gives_an_answer(self, model: ExecutionModel) -> None:
        """A deadline that has passed already."""
        self.solve(cases.plain(model, 20, seed=3), budget=Budget(seconds=0.0))

    def test_an_interrupt_keeps_the_best_so_far(self, model: ExecutionModel) -> None:
        """Ctrl-C, once something feasible is known."""
        told: list[Progress] = []

        def interrupt(progress: Progress) -> None:
            if math.isfinite(progress.cost) and not told:
                told.append(progress)
                raise KeyboardInterrupt

        solution = self.solve(cases.plain(model, 30, seed=4), on_progress=interrupt)
        assert told, "it never tells how far it is"
        assert solution.stopped == "interrupted"
        assert solution.cost <= told[0].cost

    # -- odd problems ----------------------------------------------------------------------------------------

    @pytest.mark.parametrize("shape", cases.ODD)
    def test_odd_graphs(self, model: ExecutionModel, shape: str) -> None:
        """No op, one op, no edge."""
        self.solve(cases.odd(model, shape))

    def test_zero_costs(self, model: ExecutionModel) -> None:
        """Everything is optimal, and that is known."""
        solution = self.solve(cases.free_of_cost(model))
        assert solution.cost == 0
        assert solution.optimal

    def test_one_device(self, model: ExecutionModel) -> None:
        """There is nothing to decide."""
        solution = self.solve(cases.on_one_device(model))
        if not isinstance(model, Offload):
            assert solution.gap < 1e-9

    def test_two_hundred_devices(self, model: ExecutionModel) -> None:
        """More devices than ops."""
        self.solve(cases.plain(model, 60, seed=11, devices=199), budget=Budget(evaluations=50))

    @pytest.mark.parametrize("change", cases.IMPOSSIBLE)
    def test_an_impossible_constraint_is_named(self, model: ExecutionModel, change: str) -> None:
        """The error names the op, the device or the memory."""
        problem = cases.impossible(model, change)
        self.require_support(problem)
        with pytest.raises(InfeasibleError, match=cases.IMPOSSIBLE[change]):
            self.placer.place(problem, budget=Budget(evaluations=10))

    # -- who is asked ----------------------------------------------------------------------------------------

    def test_another_evaluator_is_asked(self, model: ExecutionModel) -> None:
        """Costs that are measured, here twice the simulated ones, are those of the answer."""
        problem = cases.plain(model, 12, width=3, seed=13)
        self.require_support(problem)
        measured = _Measured(problem)
        solution = self.placer.place(problem, budget=Budget(evaluations=40), evaluator=measured)
        assert solution.cost == 2 * SimulatedEvaluator(problem).evaluate(solution.placement).cost
        assert 1 <= measured.evaluations <= 40
        assert solution.evaluations == measured.evaluations

    def test_a_run_repeats_in_another_process(self) -> None:
        """Under a budget of evaluations, for a seed."""
        assert_runs_repeat([self.placer])


class _Measured:
    """Stands for a runtime that measures: an evaluator that is not the simulated one."""

    def __init__(self, problem: Problem) -> None:
        self.problem, self.evaluations = problem, 0
        self._inner = SimulatedEvaluator(problem)

    def evaluate(self, placement: Placement) -> Outcome:
        self.evaluations += 1
        outcome = self._inner.evaluate(placement)
        return outcome._replace(cost=2 * outcome.cost)

    def evaluate_batch(self, device: Any) -> Any:
        cost, feasible = self._inner.evaluate_batch(device)
        self.evaluations += len(cost)
        return 2 * cost, feasible


_optima: dict[int, tuple[Placement, float]] = {}


def _optimum(problem: Problem) -> tuple[Placement, float]:
    """By brute force, once for each of the cases (which live as long as this module)."""
    if id(problem) not in _optima:
        _optima[id(problem)] = brute_force(problem)
    return _optima[id(problem)]
