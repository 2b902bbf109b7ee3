"""``hsdag`` with weights from other problems: what the network sees, how it is trained, and what it is worth."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from pathlib import Path

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

from loadmaster import api, cli
from loadmaster.errors import InputError
from loadmaster.graph import GraphBuilder
from loadmaster.hardware import accelerators
from loadmaster.placers import Budget
from loadmaster.placers.learned._learner import quiet_torch
from loadmaster.placers.learned.gdp._training_problems import FAMILIES
from loadmaster.placers.learned.hsdag import Hsdag, pretraining
from loadmaster.placers.learned.hsdag._messages import beliefs
from loadmaster.placers.learned.hsdag._network import PairNetwork
from loadmaster.placers.learned.hsdag._pairs import seen_of
from loadmaster.placers.learned.hsdag._policy import Policy
from loadmaster.placers.learned.hsdag._unlike_problems import distorted, training_problem
from loadmaster.placers.learned.hsdag._weights import (
    SHIPPED,
    load_weights,
    network_of,
    save_weights,
    weights_of,
)
from loadmaster.placers.learned.units import units_of
from loadmaster.problem import Concurrent, Placement, Problem, Serial, SimulatedEvaluator

TINY = pretraining.Teaching(problems=2, checked=1, label=60, imitation=4, reinforcement=2, draws=4)
LEFT = [family for family in FAMILIES if family != "random"]


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """As placers do: two threads wait for each other on a busy machine, and add in another order."""
    with quiet_torch(1):
        yield


def chain(seed: int, n: int = 7, devices: int = 3) -> Problem:
    """A path of ops, on which messages are exact."""
    b = GraphBuilder("chain")
    ops = [b.op(f"op{i}", "Op") for i in range(n)]
    rng = np.random.default_rng(seed)
    for i in range(n - 1):
        b.tensor(ops[i], bytes=1.0, consumers=[ops[i + 1]])
    off = 1 - np.eye(devices)
    return Problem.make(
        b.build(), accelerators(devices - 1, 1), Serial(), time=rng.random((n, devices)), size=rng.random(n - 1),
        latency=0.3 * off * rng.random((devices, devices)), rate=off * rng.random((devices, devices)),
    )  # fmt: skip


@pytest.mark.parametrize("seed", range(8))
def test_on_a_path_messages_find_the_optimum(seed: int) -> None:
    problem = chain(seed)
    units = units_of(problem, "")
    found = beliefs(units, 1.0, 3).argmin(axis=1).astype(np.int32)[units.of_op]
    every = np.array(list(product(range(3), repeat=problem.n)), np.int32)
    check = SimulatedEvaluator(problem)
    assert check.costs(found[None])[0][0] == pytest.approx(check.costs(every)[0].min())


@pytest.mark.parametrize("model", [Serial(), Concurrent()])
def test_reordering_devices_reorders_scores_and_units_of_time_do_not_matter(
    model: Serial | Concurrent,
) -> None:
    problem = replace(chain(3), model=model)
    order = np.array([2, 0, 1])
    names = ("latency", "rate")
    other = replace(
        problem,
        time=8 * problem.time[:, order],
        **{name: 8 * getattr(problem, name)[np.ix_(order, order)] for name in names},
        **{
            f"{way}_{name}": 8 * getattr(problem, f"{way}_{name}")[order]
            for way in ("send", "recv")
            for name in names
        },
    )
    torch.manual_seed(1)
    network = PairNetwork()
    prior = np.array([0, 1, 2, 0, 1, 2, 0], np.int32)
    moved = np.argsort(order)[prior].astype(np.int32)
    first = Policy(units_of(problem, ""), Hsdag(), network, prior)()
    second = Policy(units_of(other, ""), Hsdag(), network, moved)()
    assert torch.allclose(first.logits[:, torch.from_numpy(order)], second.logits, atol=1e-4)
    assert torch.allclose(first.choice, second.choice, atol=1e-4)


def test_a_prior_is_seen() -> None:
    units = units_of(chain(1), "")
    without, with_ = seen_of(units), seen_of(units, np.ones(7, np.int32))
    assert not (without.pair == with_.pair).all()
    assert all(np.isfinite(part).all() for seen in (without, with_) for part in seen)


def test_a_machine_that_is_not_distorted_is_the_model() -> None:
    problem = training_problem([1, 2], ("random",))
    same, other = (distorted(np.random.default_rng(0), problem, strength) for strength in (0.0, 0.5))
    device = np.where(problem.pin >= 0, problem.pin, 1).astype(np.int32)
    costs = [SimulatedEvaluator(p).evaluate(Placement(device)).cost for p in (problem, same, other)]
    assert costs[1] == pytest.approx(costs[0])
    assert costs[2] != pytest.approx(costs[0], rel=1e-3)


def test_training_repeats_and_goes_on_after_a_kill_as_if_nothing_had_happened(tmp_path: Path) -> None:
    state = tmp_path / "w.state"
    whole = pretraining.pretrain(settings=TINY, seed=5, left_out=LEFT)
    trainer = pretraining.Trainer(TINY, 5, ("random",))
    for _ in range(TINY.problems):
        trainer.prepare()
    for _ in range(3):
        trainer.step()
    trainer.save(state)
    again = pretraining.pretrain(settings=TINY, seed=5, left_out=LEFT, state=state, resume=True)
    assert again.digest == whole.digest
    assert whole.digest != weights_of(PairNetwork(), {}).digest
    with pytest.raises(InputError, match="different seed"):
        pretraining.pretrain(settings=TINY, seed=6, left_out=LEFT, state=state, resume=True)


def test_imitation_learns_one_problem_by_heart() -> None:
    lesson = pretraining.lesson([2, 7], ("random",), 200)
    trainer = pretraining.Trainer(replace(TINY, imitation=10**6), 1, ("random",))
    trainer.lessons = [lesson]
    losses = [trainer.step() for _ in range(40)]
    assert np.mean(losses[-10:]) < 0.6 * np.mean(losses[:3])


def test_weights_are_written_and_read_without_pickle_and_refused_when_damaged(tmp_path: Path) -> None:
    path = tmp_path / "w.npz"
    weights = weights_of(PairNetwork(), {"trained": False})
    save_weights(path, weights)
    assert load_weights(path).digest == weights.digest
    changed = dict(weights.arrays)
    name = next(iter(changed))
    with np.load(path) as found:
        np.savez(path, **{**{k: found[k] for k in found.files}, name: changed[name] + 1})
    with pytest.raises(InputError, match="checksum"):
        load_weights(path)
    path.write_bytes(b"nonsense")
    with pytest.raises(InputError, match="not a file of weights"):
        load_weights(path)
    with pytest.raises(InputError, match="no weights"):
        load_weights(tmp_path / "absent.npz")


def test_the_weights_of_the_package_are_small_trained_and_better_than_none() -> None:
    weights = load_weights(SHIPPED)
    assert SHIPPED.stat().st_size < 200_000
    assert weights.recipe["trained"]
    assert not {"inception", "resnet", "unet"} & set(
        weights.recipe["families"]
    )  # so that these can be tested
    torch.manual_seed(0)
    for model in ("serial", "concurrent"):
        problem = api.problem("zoo:inception-v3", "hsdag", model)
        units, check = units_of(problem, ""), SimulatedEvaluator(problem)
        costs = []
        for network in (network_of(weights), PairNetwork()):
            policy = Policy(units, Hsdag(), network)
            costs.append(check.evaluate(Placement(policy.likeliest(policy())[units.of_op])).value)
        assert costs[0] < costs[1]


def test_with_weights_a_run_repeats_keeps_its_start_and_needs_no_scratch_settings() -> None:
    problem = api.problem("zoo:layered-40", "hsdag", "serial")
    best = api.place(problem, "min-cut")
    placer = Hsdag(weights="shipped", runs=2)
    first, again = (placer.place(problem, budget=Budget(evaluations=60), seed=3) for _ in range(2))
    assert first.placement == again.placement
    assert first.evaluations == 60
    kept = placer.place(problem, budget=Budget(evaluations=20), start=best.placement)
    assert kept.cost == pytest.approx(best.cost)
    with pytest.raises(InputError, match="weights=none"):
        Hsdag(weights="shipped", levels=2)


def test_the_command_trains_and_the_placer_takes_the_weights(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pretraining, "Teaching", lambda: TINY)
    run, out = CliRunner(), str(tmp_path / "w.npz")
    left = [word for family in LEFT for word in ("--leave-out", family)]
    log = tmp_path / "log"
    words = [
        "pretrain",
        "hsdag",
        "--problems",
        "1",
        "--steps",
        "100",
        "-o",
        out,
        "--json",
        "--log-dir",
        str(log),
        *left,
    ]
    done = run.invoke(cli.app, words)
    assert done.exit_code == 0, done.output
    assert load_weights(out).digest == json.loads(done.stdout)["sha256"]
    assert "imitation loss" in next(log.glob("*.csv")).read_text()
    words = [
        "place",
        "zoo:layered-30",
        "--method",
        "hsdag",
        "--evaluations",
        "20",
        "--set",
        f"weights={out}",
        "--json",
    ]
    done = run.invoke(cli.app, words)
    assert done.exit_code == 0, done.output
    for wrong in (["--generations", "1"], ["--leave-out", "nonsense"]):
        assert run.invoke(cli.app, ["pretrain", "hsdag", "-o", out, *wrong]).exit_code == 2
