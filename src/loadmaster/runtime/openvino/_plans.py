"""Running a plan beside its baselines: what ``loadmaster run`` does."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from loadmaster.errors import InputError, RunError
from loadmaster.graph import Network, load_openvino
from loadmaster.plan import Plan
from loadmaster.problem import Concurrent, Pipeline, Serial
from loadmaster.problem._model import ExecutionModel
from loadmaster.runtime._lint import Finding, lint
from loadmaster.runtime._measuring import Latency, Measurement
from loadmaster.runtime._pieces import DATA, JOINS, Piece, cut
from loadmaster.runtime._verifying import Verification
from loadmaster.runtime.openvino._devices import DeviceSpec
from loadmaster.runtime.openvino._overlap import cores_of
from loadmaster.runtime.openvino._session import SAMPLES, Session

__all__ = [
    "Line",
    "PlanRun",
    "all_cores_lines",
    "devices_of",
    "fitting_network",
    "how_to_run",
    "overlapping_cores",
    "pieces_of",
    "run_plan",
]

STREAM = 32
"""Requests of one run of a pipeline."""


@dataclass(frozen=True)
class Line:
    """One thing that was run: the plan, or a baseline."""

    name: str
    measurement: Measurement | None
    verification: Verification | None
    why: str = ""
    """Why there is no measurement, for a baseline that cannot run."""
    latency: Latency | None = None
    """Of single requests, where a run is a stream of them."""

    def document(self) -> dict[str, Any]:
        """As plain values."""
        return {
            "name": self.name,
            "measured": None if self.measurement is None else self.measurement.document(),
            "verified": None if self.verification is None else self.verification.document(),
            "why": self.why,
            "latency": None if self.latency is None else self.latency._asdict(),
        }


@dataclass(frozen=True)
class PlanRun:
    """What running a plan showed; the plan is the first line."""

    lines: tuple[Line, ...]
    predicted: float
    findings: tuple[Finding, ...]
    spans: Sequence[Mapping[str, Any]]
    openvino: str
    core: int

    @property
    def plan(self) -> Measurement:
        """The plan's own measurement."""
        found = self.lines[0].measurement
        assert found is not None
        return found

    def document(self) -> dict[str, Any]:
        """As plain values."""
        return {
            "predicted": self.predicted,
            "measured": self.plan.document(),
            "error": (self.predicted - self.plan.median) / self.plan.median,
            "lines": [line.document() for line in self.lines],
            "findings": [finding.document() for finding in self.findings],
            "trace": list(self.spans),
            "openvino": self.openvino,
            "core": self.core,
        }


def devices_of(plan: Plan) -> tuple[DeviceSpec, ...]:
    """The devices that a plan was made for.

    Raises
    ------
    InputError : they are no devices of OpenVINO's, so that somebody has to say what they are.
    """
    found = []
    for device in plan.problem().cluster.devices:
        spec = DeviceSpec.of(device)
        if spec is None:
            raise InputError(
                f"{plan.source}: device {device.name!r} is not one that was profiled: say what to run it on, "
                f"e.g. --device {device.name}=cpu"
            )
        found.append(spec)
    return tuple(found)


def fitting_network(
    model: str | Path, plan: Plan, shapes: Mapping[str, Sequence[int]] | Iterable[str] = ()
) -> Network:
    """The model in the counting that the plan was made for.

    Raises
    ------
    InputError : the plan is for another model.
    """
    network = load_openvino(model, shapes)
    if network.graph.digest == plan.graph_hash:
        return network
    layers = load_openvino(model, shapes, counting="layers")
    if layers.graph.digest == plan.graph_hash:
        return layers
    raise InputError(
        f"{plan.source}: is a plan for another model ({plan.graph_name}, {plan.graph_hash[:12]}) than "
        f"{model} ({network.graph.digest[:12]})"
    )


def how_to_run(model: ExecutionModel) -> tuple[str, dict[str, Any]]:
    """How the worker runs plans of an execution model, and with which options.

    Raises
    ------
    InputError : there is no runtime for it.
    """
    if isinstance(model, Concurrent):
        return "concurrent", {}
    if isinstance(model, Pipeline):
        return "pipeline", {"items": STREAM}
    if isinstance(model, Serial):
        return "hetero", {}
    raise InputError(f"there is no runtime for plans of the {model.name} model")


def pieces_of(plan: Plan) -> list[Piece]:
    """The submodels that a plan was measured with, or, where it was not measured, those that its costs suggest.

    Raises
    ------
    InputError : the pieces in the plan do not fit its placement.
    """
    placement = plan.document["placement"]
    if "pieces" not in plan.document:
        return cut(plan.problem(), plan.placement())
    try:
        pieces = [Piece(str(device), tuple(map(_op_name, ops))) for device, ops in plan.document["pieces"]]
    except (TypeError, ValueError):
        raise InputError(f"{plan.source}: pieces must be a list of [device, [ops]]") from None
    devices = {op: {piece.device for piece in pieces if op in piece.ops} for op in placement}
    for op, device in placement.items():
        kind = plan.problem().graph.op_types[plan.problem().graph.index[op]]
        if kind not in DATA | JOINS and devices[op] != {device}:
            raise InputError(f"{plan.source}: pieces: op {op!r} is not on its device {device!r} alone")
    return pieces


def _op_name(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError("an op is given by its name")
    return value


def overlapping_cores(devices: Sequence[DeviceSpec]) -> list[int]:
    """The cores that a process needs in which the devices run at once."""
    cores = {core for core in cores_of(devices).values() if core is not None}
    return sorted(cores or os.sched_getaffinity(0))


def all_cores_lines(
    cores: Sequence[int], precision: str, *, stream: bool
) -> list[tuple[str, str, dict[str, Any]]]:
    """The baselines without a placement: their labels, how they are run, and the options.

    All cores on one request, and, beside a stream, one request at a time on each core.
    """
    options = {"threads": len(cores), "precision": precision}
    found: list[tuple[str, str, dict[str, Any]]] = [(f"OpenVINO on {len(cores)} cores", "all-cores", options)]
    if stream:
        found.append((f"OpenVINO, {len(cores)} streams", "streams", {**options, "items": STREAM}))
    return found


def run_plan(
    model: str | Path,
    plan: Plan,
    devices: Sequence[DeviceSpec] | None = None,
    shapes: Mapping[str, Sequence[int]] | Iterable[str] = (),
    *,
    samples: int = SAMPLES,
    baselines: bool = True,
    clock: str = "wall",
) -> PlanRun:
    """Verify a plan, then measure it in turns with each single device and with what HETERO chooses itself.

    Raises
    ------
    InputError : the plan is for another model, or its devices are not there.
    RunError : it does not run, or gives other outputs than the unplaced model.
    """
    network = fitting_network(model, plan, shapes)
    specs = tuple(devices) if devices else devices_of(plan)
    names = plan.document["placement"]
    for device in sorted(set(names.values()) - {spec.name for spec in specs}):
        raise InputError(
            f"{plan.source}: uses device {device!r}: say what to run it on, e.g. --device {device}=cpu"
        )
    findings = lint(plan.problem(), plan.placement(), network)
    errors = [finding for finding in findings if finding.level == "error"]
    if errors:
        raise RunError(f"{plan.source}: {errors[0].text}")
    problem = plan.problem()
    how, options = how_to_run(problem.model)
    cores = None
    if how == "hetero":
        options["placement"] = names
    else:
        options["pieces"] = pieces_of(plan)
        cores = overlapping_cores(specs)
    with Session(model, specs, shapes, cores=cores, clock=clock) as session:
        placed = session.load(how, **options)
        placed.verify()
        lines: list[tuple[str, Any, str]] = [("plan", placed, "")]
        wanted: list[tuple[str, str, dict[str, Any]]] = [
            (f"{spec.name} alone", "single", {"device": spec.name}) for spec in specs
        ]
        if cores is None:
            wanted.append(("HETERO's choice", "auto", {"order": [spec.name for spec in specs]}))
        elif all(spec.plugin.startswith("cpu") for spec in specs):
            wanted += all_cores_lines(cores, specs[0].precision, stream=how == "pipeline")
        for label, how, options in wanted if baselines else []:
            try:
                candidate = session.load(how, **options)
                candidate.verify()
                lines.append((label, candidate, ""))
            except RunError as error:  # a device that cannot run all of the model is no baseline
                if not session.worker.alive:
                    raise
                lines.append((label, None, str(error)))
        running = [candidate for _, candidate, _ in lines if candidate is not None]
        measured = dict(zip(running, session.measure(running, samples=samples), strict=True))
        return PlanRun(
            tuple(
                Line(
                    label,
                    None if candidate is None else measured[candidate],
                    None if candidate is None else candidate.verification,
                    why,
                    None if candidate is None else candidate.latency(),
                )
                for label, candidate, why in lines
            ),
            float(plan.document["cost"]),
            tuple(findings),
            placed.trace(),
            session.openvino,
            session.worker.cores[0],
        )
