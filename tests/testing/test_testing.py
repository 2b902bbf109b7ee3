"""What is published for the tests of others: right itself, and able to fail."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import pytest
from hypothesis import given, settings

from loadmaster.errors import InfeasibleError, InputError
from loadmaster.placers import Searcher, find_feasible
from loadmaster.problem import Problem, Serial, Solution
from loadmaster.problem._evaluator import SimulatedEvaluator
from loadmaster.testing import PlacerConformance, _cases, brute_force, problems


@settings(max_examples=30)
@given(problems(max_ops=4))
def test_brute_force_is_the_best_of_all_rows(problem: Problem) -> None:
    grid = np.indices((problem.devices,) * problem.n).reshape(problem.n, -1).T
    cost, feasible = SimulatedEvaluator(problem).evaluate_batch(grid.astype(np.int32))
    if not feasible.any():
        with pytest.raises(InfeasibleError):
            brute_force(problem)
    else:
        assert brute_force(problem)[1] == pytest.approx(cost[feasible].min(), rel=1e-12)


def test_brute_force_refuses_what_would_never_end() -> None:
    with pytest.raises(InputError, match="placements: brute force is for 100,000 at most"):
        brute_force(_cases.plain(Serial(), 40))


def test_without_pytest_or_hypothesis_it_says_what_to_install() -> None:
    program = """
import sys
sys.modules["pytest"] = sys.modules["hypothesis"] = None
from loadmaster import testing
print(testing.brute_force.__name__, testing.reference.evaluate.__name__)
for name in ("PlacerConformance", "problems"):
    try:
        getattr(testing, name)
    except ModuleNotFoundError as error:
        print(error)
"""
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert found.stdout.splitlines() == [
        "brute_force evaluate",
        "loadmaster.testing.PlacerConformance needs pytest: pip install 'loadmaster[testing]'",
        "loadmaster.testing.problems needs hypothesis: pip install 'loadmaster[testing]'",
    ]


# -- a suite that cannot fail says nothing ---------------------------------------------------------------------


@dataclass(frozen=True)
class Sound(Searcher):
    name: ClassVar[str] = "sound"
    summary: ClassVar[str] = "any feasible placement"

    def explore(self, search: Any, start: Any, seed: int) -> None:
        find_feasible(search, seed)


class Liar(Sound):
    """Claims half of what its placement costs."""

    def place(self, problem: Problem, **more: Any) -> Solution:
        found = super().place(problem, **more)
        return replace(found, cost=found.cost / 2, bound=0.0)


class Boaster(Sound):
    """Claims a bound that it has not proved."""

    def place(self, problem: Problem, **more: Any) -> Solution:
        found = super().place(problem, **more)
        return replace(found, bound=found.cost)


class Forgetful(Sound):
    """Says that it keeps a start, and does not."""

    keeps_start: ClassVar[bool] = True


class Deaf(Sound):
    """Does not hear Ctrl-C."""

    def place(self, problem: Problem, **more: Any) -> Solution:
        return super().place(problem, **{**more, "on_progress": None})


class Spender(Sound):
    """Evaluates more than it may."""

    def explore(self, search: Any, start: Any, seed: int) -> None:
        for _ in range(400):
            super().explore(search, start, seed)


class Restless(Sound):
    """Depends on the seed of hashes."""

    def explore(self, search: Any, start: Any, seed: int) -> None:
        # By the seed itself: the hash of something is the same for two seeds once in a while.
        for _ in range(1 + len(os.environ.get("PYTHONHASHSEED", ""))):
            super().explore(search, start, seed)


def suite_of(placer: Searcher) -> PlacerConformance:
    suite = PlacerConformance()
    suite.placer = placer  # type: ignore[misc]
    return suite


CHECKS = [
    (Liar(), "test_a_plain_graph", True),
    (Boaster(), "test_the_bound_holds_for_all_placements", True),
    (Forgetful(), "test_a_start_is_never_made_worse", True),
    (Deaf(), "test_an_interrupt_keeps_the_best_so_far", True),
    (Restless(), "test_a_run_repeats_in_another_process", False),
]


@pytest.mark.parametrize(("placer", "check", "models"), CHECKS, ids=[type(p).__name__ for p, _, _ in CHECKS])
def test_a_wrong_placer_fails(placer: Searcher, check: str, models: bool) -> None:
    arguments = [Serial()] if models else []
    with pytest.raises(AssertionError):
        getattr(suite_of(placer), check)(*arguments)


def test_a_placer_that_spends_too_much_fails() -> None:
    with pytest.raises(AssertionError):
        suite_of(Spender()).test_a_budget_of_evaluations_is_kept(Serial(), 7)


def test_a_refusal_skips_and_must_be_given_to_the_user() -> None:
    class Choosy(Sound):
        def supports(self, problem: Problem) -> str | None:
            fits = problem.memory.sum() <= problem.capacity.min()
            return None if fits else "it does not watch memory"

    suite = suite_of(Choosy())
    suite.test_a_plain_graph(Serial())
    with pytest.raises(pytest.skip.Exception, match="it does not watch memory"):
        suite.test_all_constraints_at_once(Serial())


def test_the_command_line_needs_none_of_it() -> None:
    program = (
        "import sys; from loadmaster import api; import loadmaster.cli, loadmaster.runtime, loadmaster.report; "
        "print(any(name.startswith(('loadmaster.testing', 'hypothesis', 'pytest')) for name in sys.modules))"
    )
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "False"
