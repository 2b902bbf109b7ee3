"""Ranks with little memory, for real: the plan that counts it trains, the usual one runs out."""

from __future__ import annotations

import json
import os
from pathlib import Path

import numpy as np
import pytest
from limited_program import LIMIT, case

import loadmaster.torch as pipelines
from benchmarks.torch_memory import AT_ONCE
from loadmaster import api
from loadmaster.errors import WorkerError
from loadmaster.graph.torch import capture
from loadmaster.problem import Solution, evaluate
from loadmaster.runtime.torch import launch
from loadmaster.split import chain_of_units, place_by_rule

SHARE = 0.8  # of the limit, for what is counted: temporary tensors need the rest


def test_a_plan_that_fits_trains_where_equal_layers_runs_out_of_memory(tmp_path: Path, monkeypatch) -> None:
    model, example, _ = case()
    captured = capture(model, example, training=True)
    ranks = pipelines.ranks(2, memory=SHARE * LIMIT)
    problem = pipelines.problem(
        captured, ranks, "pipeline:microbatches=2", time=np.ones(captured.network().graph.n)
    )
    ours = api.place(problem, "stages")
    layer = dict(zip(captured.names, captured.layers, strict=True))
    layers = [layer.get(name.removesuffix("/backward"), "") for name in problem.graph.names]
    usual = place_by_rule(problem, chain_of_units(problem, layers), "equal layers")
    assert evaluate(problem, ours.placement).memory.max() <= SHARE * LIMIT
    assert evaluate(problem, usual).memory.max() > LIMIT
    pipelines.plan(captured, problem, ours).save(tmp_path / "loadmaster.json")
    as_usual = Solution(usual, evaluate(problem, usual).cost, 0.0, "nothing", "equal layers")
    pipelines.plan(captured, problem, as_usual).save(tmp_path / "equal layers.json")
    here = str(Path(__file__).parent)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([here, os.environ.get("PYTHONPATH", "")]))
    for key, value in AT_ONCE.items():
        monkeypatch.setenv(key, value)
    with pytest.raises(WorkerError, match=r"rank 1 of 2 ended .*(can't allocate memory|MemoryError)"):
        launch("limited_program", [str(tmp_path)], 2, timeout=400)
    losses = json.loads((tmp_path / "loadmaster.1").read_text())
    assert len(losses) == 3
    assert losses[-1] < losses[0]
    assert not (tmp_path / "equal layers.1").exists()
