"""The tables of HSDAG: the scaled machine, the list of cases, and a page from whatever rows there are."""

from __future__ import annotations

import json

import numpy as np
import pytest

from loadmaster.studies import Page, Scope
from loadmaster.studies.hsdag import study
from loadmaster.studies.hsdag.measured import agreement
from loadmaster.studies.hsdag.page import PUBLISHED
from loadmaster.studies.hsdag.problems import MODELS, everything_on, study_problem


@pytest.mark.parametrize("execution", ["serial", "concurrent"])
@pytest.mark.parametrize("name", MODELS)
def test_single_devices_take_what_the_paper_says(name: str, execution: str) -> None:
    problem = study_problem(name, model=execution, whole=True)
    _, cpu, gpu, base = MODELS[name]
    assert everything_on(problem, "cpu") + base == pytest.approx(cpu, rel=1e-6)
    assert everything_on(problem, "gpu") + base == pytest.approx(gpu, rel=1e-6)
    at = list(MODELS).index(name)
    assert (PUBLISHED["cpu"][at], PUBLISHED["gpu"][at]) == (cpu, gpu)


def test_every_case_has_a_key_of_its_own_and_a_quick_run_is_a_part_of_the_whole() -> None:
    keys = {
        quick: [json.dumps(case.key) for case in study.cases(Scope(quick=quick))] for quick in (False, True)
    }
    for found in keys.values():
        assert len(set(found)) == len(found)
    assert len(keys[True]) < len(keys[False]) / 3
    only = study.cases(Scope(options={"only": "resnet"}))
    assert {case.key["model"] for case in only} == {"resnet-50"}


def test_cheap_cases_run_and_the_page_has_published_numbers_beside_them(tmp_path) -> None:  # type: ignore[no-untyped-def]
    scope = Scope(quick=True, options={"only": "resnet-50"})
    rows = []
    for case in study.cases(scope):
        cheap = case.key["part"] == "optimum" or case.key.get("method") == "random"
        if cheap and case.key["execution"] == "serial":
            rows.append({**case.key, **json.loads(json.dumps(case.run())), "when": "2026-01-01"})
    assert {row["part"] for row in rows} == {"optimum", "method"}
    optimum = next(row for row in rows if row["part"] == "optimum")
    assert optimum["optimal"]
    assert all(row["cost"] >= optimum["cost"] * (1 - 1e-9) for row in rows)
    page = Page("HSDAG")
    study.write(page, scope, rows)
    page.origin("loadmaster reproduce hsdag", rows)
    text = page.save(tmp_path, "hsdag").read_text()
    assert "| CPU-only | 16 [16] |" in text
    assert "| GPU-only | 7.81 [7.81] | 0.00 % |" in text
    assert "by construction" in text
    assert (tmp_path / "hsdag-serial-2000.svg").exists()


def test_a_page_without_rows_says_nothing_wrong(tmp_path) -> None:  # type: ignore[no-untyped-def]
    page = Page("HSDAG")
    study.write(page, Scope(), [])
    assert "Table" not in page.save(tmp_path, "hsdag").read_text().split("## ")[-1]


def test_agreement_of_outputs() -> None:
    a, b = [np.array([3.0, 0.0]), np.array([[4.0]])], [np.array([3.0, 1.0]), np.array([[4.0]])]
    same, other = agreement(a, a), agreement(a, b)
    assert (same["mse"], same["l2"]) == (0.0, 0.0)
    assert same["cosine"] == pytest.approx(1.0)
    assert other["mse"] == pytest.approx(1 / 3)
    assert other["l2"] == pytest.approx(1.0)
    assert other["cosine"] == pytest.approx(25 / (5 * np.sqrt(26)))
