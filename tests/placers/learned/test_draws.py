"""Placements that HSDAG learns from again: which are kept, and what a batch with them beside it means."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from loadmaster.errors import InputError
from loadmaster.graph import layered
from loadmaster.hardware import accelerators
from loadmaster.placers import Budget
from loadmaster.placers.frame.search import Search
from loadmaster.placers.learned.hsdag import Hsdag, _training
from loadmaster.placers.learned.hsdag._draws import Draw, Elites
from loadmaster.placers.learned.hsdag._policy import Policy
from loadmaster.placers.learned.units import units_of
from loadmaster.problem import Problem, Serial


def policy_and_units() -> tuple[Policy, int]:
    graph, cluster = layered(20, width=4, seed=1), accelerators(1, 1)
    time = 0.5 + np.random.default_rng(1).random((20, 2))
    units = units_of(Problem.make(graph, cluster, Serial(), time=time), "")
    torch.manual_seed(0)
    return Policy(units, Hsdag()), units.count


def drawn(policy: Policy, batch: int, seed: int, lean: float = 1.0) -> Draw:
    return policy.draw(policy(), batch, np.random.default_rng(seed), None, lean)


def device_rows(draw: Draw) -> list[list[int]]:
    """Device of every unit, a row per placement."""
    rows: list[list[int]] = draw.device[draw.group].reshape(len(draw.chosen), -1).tolist()
    return rows


def test_the_best_of_all_batches_are_kept_once_each_and_the_infeasible_never() -> None:
    policy, _ = policy_and_units()
    first, second = drawn(policy, 4, 1), drawn(policy, 4, 2)
    elites = Elites(3)
    elites.take(first, np.array([5.0, np.inf, 2.0, 2.0]))
    assert elites.cost == [2.0, 5.0]
    elites.take(second, np.array([4.0, 1.0, 5.0, np.inf]))
    assert elites.cost == [1.0, 2.0, 4.0]
    kept = [device_rows(draw)[0] for draw in elites.draw]
    assert kept == [device_rows(second)[1], device_rows(first)[2], device_rows(second)[0]]
    elites.forget()
    assert elites.beside(first, np.ones(4))[0] is first


def test_a_batch_with_elites_beside_it_has_the_probabilities_of_its_parts() -> None:
    policy, _ = policy_and_units()
    first, second = drawn(policy, 5, 3), drawn(policy, 4, 4)
    elites = Elites(2)
    elites.take(first, np.arange(5.0))
    joined, cost = elites.beside(second, np.array([7.0, 8.0, 9.0, 10.0]))
    assert cost.tolist() == [7.0, 8.0, 9.0, 10.0, 0.0, 1.0]
    assert device_rows(joined) == device_rows(second) + device_rows(first)[:2]

    def log_probability(draw: Draw) -> torch.Tensor:
        """Of every placement's devices."""
        logits = policy().logits
        chosen = policy.devices(logits, draw).gather(1, draw.device[:, None])[:, 0]
        return torch.zeros(len(draw.chosen)).index_add(0, draw.placement, chosen)

    expected = torch.cat([log_probability(second), log_probability(first)[:2]])
    assert torch.allclose(log_probability(joined), expected, atol=1e-5)


def test_elites_survive_a_checkpoint() -> None:
    policy, _ = policy_and_units()
    elites, other = Elites(2), Elites(2)
    elites.take(drawn(policy, 3, 5), np.array([3.0, 1.0, 2.0]))
    other.load_state_dict(elites.state_dict())
    assert other.cost == [1.0, 2.0]
    assert [device_rows(draw) for draw in other.draw] == [device_rows(draw) for draw in elites.draw]


def test_placements_that_lean_are_mostly_on_one_device() -> None:
    policy, count = policy_and_units()

    def share(lean: float) -> float:
        """Mean share of the units that are on the device with more of them."""
        ones = np.array(device_rows(drawn(policy, 200, 6, lean))).sum(axis=1)
        return float(np.maximum(ones, count - ones).mean()) / count

    assert share(0.0) < 0.75 < 0.85 < share(5.0)


@pytest.mark.parametrize(("evaluations", "batch"), [(100, 16), (2_000, 31), (100_000, 64)])
def test_a_small_budget_has_small_batches(evaluations: int, batch: int) -> None:
    policy, _ = policy_and_units()
    search = Search(policy.units.problem, Budget(evaluations=evaluations), "hsdag")
    assert _training._batch(search, Hsdag()) == batch


@pytest.mark.parametrize(
    ("budget", "age", "fallen", "share"),
    [
        (Budget(evaluations=100_000), 32, 0.02, 0.5),
        (Budget(evaluations=100_000), 64, 0.04, 1.0),
        (Budget(evaluations=320), 10, 0.5, 0.5),  # 20 updates in all
        (Budget(seconds=60.0), 4, 0.75, 0.75),
        (Budget(seconds=60.0), 48, 0.1, 0.75),
    ],
)
def test_leaning_ends_after_so_many_updates_or_with_the_run(
    budget: Budget, age: int, fallen: float, share: float
) -> None:
    policy, _ = policy_and_units()
    search = Search(policy.units.problem, budget, "hsdag")
    assert _training._leant(search, Hsdag(), age, fallen) == share


def test_nonsense_is_refused() -> None:
    with pytest.raises(InputError, match="elites and lean"):
        Hsdag(elites=-1)
    with pytest.raises(InputError, match="elites and lean"):
        Hsdag(lean=float("nan"))
