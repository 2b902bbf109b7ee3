"""``annealing``: cycles that end, cold, in the time there is."""

from __future__ import annotations

import importlib
from typing import Any

import pytest

from loadmaster import api
from loadmaster.placers import Budget
from loadmaster.placers.search.annealing import Annealing


@pytest.mark.parametrize(
    "budget", [Budget(evaluations=6000), Budget(seconds=2.0)], ids=["evaluations", "seconds"]
)
@pytest.mark.parametrize(("model", "ops"), [("pipeline", 20_000), ("concurrent", 1000)])
def test_every_walk_has_been_cold_in_less_than_a_cycle(
    model: str, ops: int, budget: Budget, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = importlib.import_module("loadmaster.placers.search.annealing")
    seen: list[Any] = []

    def walk(search: Any, walkers: list[Any]) -> None:
        seen.extend(walkers)
        run(search, walkers)

    run = module.run_walkers
    monkeypatch.setattr(module, "run_walkers", walk)
    problem = api.problem(f"zoo:layered-{ops}?width=8", "3acc+1cpu", model=model)
    Annealing(hot=0.4).place(problem, budget=Budget(evaluations=200))  # compiled
    seen.clear()
    solution = Annealing().place(problem, budget=budget)
    assert solution.evaluations < ops * 3 * Annealing().length
    for walker in seen:
        assert walker._cycles >= 1 or walker._warmth < 0.01


def test_it_repeats() -> None:
    problem = api.problem("zoo:layered-200", "3acc+1cpu", model="serial")
    found = [Annealing().place(problem, budget=Budget(evaluations=20_000), seed=5) for _ in range(2)]
    assert found[0].cost == found[1].cost
    assert found[0].evaluations == found[1].evaluations <= 20_000
