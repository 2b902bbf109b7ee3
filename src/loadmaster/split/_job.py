"""Measure a model, place its stages, and evaluate the usual rules in the same simulation."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from loadmaster import api
from loadmaster.errors import InputError
from loadmaster.hardware import Cluster, Link
from loadmaster.plan import Plan
from loadmaster.problem import Evaluation, Pipeline, Placement, Problem, Solution, evaluate
from loadmaster.split._rules import RULES, RuleError, Unit, chain_of_units, place_by_rule

if TYPE_CHECKING:
    from loadmaster.runtime.torch import OpCosts
    from loadmaster.torch import Capture, Source

__all__ = ["Split", "split"]

SECONDS = 10.0
"""Of search, where nothing is said."""


@dataclass(frozen=True)
class Split:
    """Stages of a model, and what the usual rules give.

    Attributes
    ----------
    layers : (ops,) the layer of each op of the problem; empty for inputs and the loss.
    units : whole layers in the order of the pipeline.
    rules : rule -> its placement and evaluation, or why it has none.
    """

    capture: Capture
    problem: Problem
    solution: Solution
    evaluation: Evaluation
    layers: tuple[str, ...]
    units: tuple[Unit, ...]
    rules: Mapping[str, tuple[Placement, Evaluation] | str]
    costs: OpCosts | None = None

    @property
    def model(self) -> Pipeline:
        """The schedule and its microbatches."""
        assert isinstance(self.problem.model, Pipeline)
        return self.problem.model

    def plan(self, rule: str | None = None) -> Plan:
        """The plan to run; with a rule, the plan that this rule gives.

        Raises
        ------
        InputError : the rule has no answer for this model.
        """
        from loadmaster import torch as pipelines

        solution = self.solution
        if rule is not None:
            found = self.rules[rule]
            if isinstance(found, str):
                raise InputError(f"the rule {rule!r} gives no stages: {found}")
            placement, evaluation = found
            solution = Solution(placement, evaluation.cost, 0.0, "nothing", rule)
        return pipelines.plan(
            self.capture,
            self.problem,
            solution,
            microbatches=self.model.microbatches,
            schedule=self.model.schedule,
        )


def split(
    source: Source,
    ranks: int | None = None,
    *,
    microbatches: int = 8,
    schedule: str = "1f1b",
    granularity: str = "layer",
    cluster: Cluster | None = None,
    speeds: Sequence[float] = (),
    memory: float = np.inf,
    links: Link | Sequence[Sequence[Link | None]] | None = None,
    device: Any = None,
    optimizer_state: float = 2.0,
    method: str = "auto",
    budget: float | None = None,
    seed: int = 0,
    refine: bool = True,
    costs: OpCosts | None = None,
    say: Callable[[str], None] = lambda text: None,
    on_progress: Any = None,
) -> Split:
    """Choose the stages of a model.

    Parameters
    ----------
    source : the model, its example and its loss.
    ranks : how many; with ``cluster`` at most its devices, by default all of them, otherwise 2.
    cluster : devices that are not here, whose times are estimated; by default ops are measured here.
    speeds, memory, links : of the ranks, relative to this machine, in bytes, and between them; not with ``cluster``,
        which knows them.
    device : of PyTorch, to measure on; by default where the weights are.
    optimizer_state : what the optimizer keeps, as a multiple of the parameters.
    refine : measure the chosen stages as a whole, correct the times of their ops by that, and choose again.
    costs : measured before; then nothing is measured here.

    Raises
    ------
    InputError : the model cannot be captured, or has fewer layers than there are ranks.
    InfeasibleError : no split fits into the memory of the ranks.
    """
    from loadmaster import torch as pipelines
    from loadmaster.runtime.torch import corrected, cut_stages, measure_ops, measure_stages

    say("exporting the model …")
    captured = source.capture()
    if cluster is None:
        found = pipelines.ranks(ranks or 2, speeds=speeds, link=links, memory=memory)
    else:
        found = _first_devices(cluster, ranks or len(cluster))
    model = Pipeline(microbatches=microbatches, schedule=schedule)  # type: ignore[arg-type]
    if (
        cluster is None
        and costs is None
        and any(one.tensor.device.type == "meta" for one in captured.parameters)
    ):
        raise InputError(
            f"{captured.name}: has weights on the device 'meta', where nothing takes time: make them elsewhere, or "
            "give a cluster",
            option="--cluster",
        )
    if costs is None and (captured.example is not None or cluster is None):
        say(f"measuring {len(captured.nodes):,} ops …")
        costs = measure_ops(captured, loss=source.loss, target=source.target, device=device)

    def problem_of(known: OpCosts | None, layered: str) -> Problem:
        kept = None
        if cluster is not None and known is not None:
            kept = known.kept_by(captured, captured.network(layered).graph)
        return pipelines.problem(
            captured,
            found,
            model,
            time=known if cluster is None else None,
            granularity=layered,
            kept=kept,
            optimizer_state=optimizer_state,
        )

    def search(given: Problem) -> Solution:
        return api.place(
            given, method, budget=SECONDS if budget is None else budget, seed=seed, on_progress=on_progress
        )

    whole = problem_of(costs, "layer")
    layers = _layers(captured, whole)
    units = chain_of_units(whole, layers)
    if len(units) < len(found):
        raise InputError(
            f"{captured.name}: has {len(units)} layers that can be separated, which {len(found)} ranks cannot share: "
            "give fewer, or --granularity op",
            option="--ranks",
        )
    problem = whole if granularity == "layer" else problem_of(costs, granularity)
    say(f"placing {len(units)} layers on {len(found)} ranks …")
    solution = search(problem)
    if refine and cluster is None and costs is not None and solution.stopped != "interrupted":
        for _ in range(3):
            stage_of = _stage_of_nodes(captured, problem, solution.placement)
            count = max(stage_of) + 1
            cut = cut_stages(captured, stage_of, count)
            taken = measure_stages(captured, cut, loss=source.loss, target=source.target, device=device)
            costs = corrected(costs, cut, taken)
            before = solution.placement.device
            problem = problem_of(costs, granularity)
            solution = search(problem)
            if np.array_equal(before, solution.placement.device) or solution.stopped == "interrupted":
                break
    rules: dict[str, tuple[Placement, Evaluation] | str] = {}
    for rule in RULES:
        try:
            placement = place_by_rule(problem, units, rule)
            rules[rule] = placement, evaluate(problem, placement)
        except RuleError as error:
            rules[rule] = str(error)
    return Split(
        captured,
        problem,
        solution,
        evaluate(problem, solution.placement),
        tuple(layers),
        tuple(units),
        rules,
        costs,
    )


def _first_devices(cluster: Cluster, ranks: int) -> Cluster:
    if ranks > len(cluster):
        raise InputError(
            f"{ranks} ranks are asked for, but the cluster {cluster.name} has {len(cluster)} devices",
            option="--ranks",
        )
    links = tuple(tuple(row[:ranks]) for row in cluster.links[:ranks])
    return replace(cluster, devices=cluster.devices[:ranks], links=links, host=min(cluster.host, ranks - 1))


def _layers(capture: Capture, problem: Problem) -> list[str]:
    """(ops of the problem,) the layer of each; the twin of a backward op has the same."""
    layer = dict(zip(capture.names, capture.layers, strict=True))
    return [layer.get(name.removesuffix("/backward"), "") for name in problem.graph.names]


def _stage_of_nodes(capture: Capture, problem: Problem, placement: Placement) -> list[int]:
    """(ops of the capture,) the stage of each, in the order of the pipeline."""
    found = evaluate(problem, placement)
    stage_of = {v: s for s, stage in enumerate(found.stages) for v in stage.ops}
    if not stage_of:
        raise InputError(f"{capture.name}: the placement has no stages: {found.violations[0].text}")
    return [stage_of[problem.graph.index[name]] for name in capture.names]
