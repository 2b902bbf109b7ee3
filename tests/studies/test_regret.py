"""Regret over evaluations from rows, and the machines that are not as their model says."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from benchmarks.machines import KINDS, Machine, wrong_by
from loadmaster import api, cli
from loadmaster.problem import Placement
from loadmaster.studies import regret_curves, regrets


def _entry(method: str, seed: int, **costs: float) -> tuple[dict[str, object], dict[str, object]]:
    return {"method": method, "seed": seed}, {"best": 1.0, **{k[1:]: v for k, v in costs.items()}}


def test_regret_is_against_the_best_that_any_run_of_the_case_knows() -> None:
    runs = regrets(
        [_entry("a", 0, n10=2.0, n30=1.5), _entry("b", 0, n10=0.5, n30=0.5), _entry("a", 1, n10=1.0)]
    )
    assert runs[0]["regret"] == {10: 3.0, 30: 2.0}
    assert runs[1]["regret"] == {10: 0.0, 30: 0.0}
    curves = regret_curves(runs)
    assert curves["a"][10] == (1.5, pytest.approx(2 * np.std([3, 0], ddof=1) / np.sqrt(2)), 2)
    assert curves["a"][30][2] == 1


def test_intervals_are_over_graphs_not_over_seeds_of_one_graph() -> None:
    runs = regrets(
        [
            (
                {"method": "a", "seed": seed, "kind": str(seed), "family": family},
                {"best": 1.0, "10": 1.0 + cost},
            )
            for family, cost in (("x", 0.1), ("y", 0.3), ("z", 0.2))
            for seed in range(5)
        ]
    )
    mean, error, count = regret_curves(runs)["a"][10]
    assert (mean, count) == (pytest.approx(0.2), 15)
    assert error == pytest.approx(2 * np.std([0.1, 0.3, 0.2], ddof=1) / np.sqrt(3))


def test_the_command_draws_rows_and_refuses_what_are_none(tmp_path: Path) -> None:
    rows, out, run = tmp_path / "rows.jsonl", tmp_path / "plot.svg", CliRunner()
    entries = [_entry(m, s, n10=1.2 + s, n30=1.1) for m in ("fit", "hsdag") for s in range(3)]
    rows.write_text("".join(json.dumps({"key": k, "when": "", "row": r}) + "\n" for k, r in entries))
    done = run.invoke(cli.app, ["plot", str(rows), "-o", str(out), "--json"])
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["curves"]["fit"]["30"]["regret"] == pytest.approx(0.1)
    assert "hsdag (3)" in out.read_text()
    done = run.invoke(cli.app, ["plot", str(rows), "-o", str(out), "--methods", "fit"])
    assert done.exit_code == 0, done.output
    assert "hsdag" not in out.read_text()
    assert run.invoke(cli.app, ["plot", str(rows), "--methods", "nobody"]).exit_code == 2
    rows.write_text("nonsense\n")
    for words in (
        ["plot", str(rows)],
        ["plot", str(tmp_path / "absent")],
        ["plot", str(rows), "-o", "plot.gif"],
    ):
        done = run.invoke(cli.app, words)
        assert done.exit_code == 2, done.output


@pytest.mark.parametrize("kind", KINDS)
def test_a_machine_is_off_by_what_was_asked_for_and_answers_with_noise(kind: str) -> None:
    problem = api.problem("zoo:layered-60?width=6", "hsdag", "concurrent")
    answer = api.place(problem, "heft").placement.device
    truth, error = wrong_by(problem, answer, kind, 3)
    assert 0.015 < error < 0.25
    machine = Machine(problem, truth, 1)
    outcomes = [machine.evaluate(Placement(answer)).cost for _ in range(40)]
    exact = truth.costs(answer[None])[0]
    assert machine.at(40) == machine.least == exact
    assert (machine.answer == answer).all()
    assert 0.01 < np.std(np.log(outcomes)) < 0.03
    assert abs(np.mean(np.log(outcomes / exact))) < 0.02
    again = Machine(problem, truth, 1)
    assert again.evaluate(Placement(answer)).cost == outcomes[0]
    assert api.place(problem, "local-search", evaluations=30, evaluator=machine).evaluations == 30
