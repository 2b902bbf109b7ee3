"""Running a plan beside its baselines: what ``loadmaster run`` does."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from loadmaster.cores import allowed_cores
from loadmaster.errors import InputError, RunError
from loadmaster.graph import Network, load_onnx, load_openvino
from loadmaster.graph.openvino import openvino_model
from loadmaster.plan import Plan
from loadmaster.problem import Concurrent, ExecutionModel, Pipeline, Serial
from loadmaster.runtime._lint import Finding, lint
from loadmaster.runtime._plan_runs import Line, PlanRun, measuring, pieces_of
from loadmaster.runtime._session import SAMPLES, SECONDS
from loadmaster.runtime._tolerance import Tolerance
from loadmaster.runtime._verifying import Verification
from loadmaster.runtime.openvino._devices import DeviceSpec
from loadmaster.runtime.openvino._overlapped import cores_of
from loadmaster.runtime.openvino._session import OpenVinoSession
from loadmaster.runtime.openvino._translation import translated

__all__ = [
    "STREAM",
    "all_cores_lines",
    "devices_of",
    "fitted",
    "how_to_run",
    "overlapping_cores",
    "run_plan",
    "serial_lines",
    "verify_plan",
]

STREAM = 32
"""Requests of one run of a pipeline."""


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
                f"e.g. the device {device.name}=cpu",
                option="--device",
            )
        found.append(spec)
    return tuple(found)


def fitted(
    model: str | Path, plan: Plan, shapes: Mapping[str, Sequence[int]] | Iterable[str] = ()
) -> tuple[Network, Plan]:
    """The model in the counting that the plan was made for, and the plan in the names that OpenVINO's ops have.

    ``shapes`` are by default those of the plan. A plan for the graph that our own reader makes of an ONNX file is
    translated (:func:`loadmaster.runtime.openvino._translation.translated`); any other stays as it is.

    Raises
    ------
    InputError : the plan is for another model.
    """
    shapes = plan.given(shapes)
    network = load_openvino(model, shapes)
    if network.graph.digest == plan.graph_hash:
        return network, plan
    if str(model).lower().endswith(".onnx"):
        onnx = load_onnx(model, shapes)
        if onnx.graph.digest == plan.graph_hash:
            return network, translated(plan, onnx, network, openvino_model(model, shapes))
    with suppress(InputError):  # without folding, some shapes are not known
        layers = load_openvino(model, shapes, counting="layers")
        if layers.graph.digest == plan.graph_hash:
            return layers, plan
    raise InputError(
        f"{plan.source}: is a plan for a different model ({plan.graph_name}, {plan.graph_hash[:12]}) than "
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


def overlapping_cores(devices: Sequence[DeviceSpec]) -> list[int]:
    """The cores that a process needs in which the devices run at once."""
    cores = {core for core in cores_of(devices).values() if core is not None}
    return sorted(cores or allowed_cores())


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


def serial_lines(devices: Sequence[DeviceSpec]) -> list[tuple[str, str, dict[str, Any]]]:
    """The same of an engine that runs submodels one after another: what it would do with the devices by itself."""
    return [("HETERO's choice", "auto", {"order": [spec.name for spec in devices]})]


def _tolerance_of(plan: Plan) -> Tolerance | None:
    """What the plan was judged by when it was made."""
    text = plan.document.get("tolerance")
    try:
        return Tolerance.parse(text) if text else None
    except InputError as error:
        raise InputError(f"{plan.source}: {error}") from None


class _Ready(NamedTuple):
    """A plan that fits its model, and how it is run."""

    plan: Plan
    specs: tuple[DeviceSpec, ...]
    shapes: Any
    findings: list[Finding]
    how: str
    options: dict[str, Any]
    cores: list[int] | None


def _ready(
    model: str | Path,
    plan: Plan,
    devices: Sequence[DeviceSpec] | None,
    shapes: Mapping[str, Sequence[int]] | Iterable[str],
) -> _Ready:
    shapes = plan.given(shapes)
    network, plan = fitted(model, plan, shapes)
    specs = tuple(devices) if devices else devices_of(plan)
    names = plan.document["placement"]
    for device in sorted(set(names.values()) - {spec.name for spec in specs}):
        raise InputError(
            f"{plan.source}: uses device {device!r}: say what to run it on, e.g. the device {device}=cpu",
            option="--device",
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
    return _Ready(plan, specs, shapes, findings, how, options, cores)


def verify_plan(
    model: str | Path,
    plan: Plan,
    devices: Sequence[DeviceSpec] | None = None,
    shapes: Mapping[str, Sequence[int]] | Iterable[str] = (),
    *,
    tolerance: Tolerance | str | None = None,
) -> Verification:
    """Compare the outputs of a plan with those of the unplaced model, and nothing more.

    Raises
    ------
    InputError : the plan is for another model, or its devices are not there.
    RunError : it does not run, or gives other outputs than the unplaced model.
    """
    ready = _ready(model, plan, devices, shapes)
    tolerance = _tolerance_of(plan) if tolerance is None else tolerance
    with OpenVinoSession(
        model, ready.specs, ready.shapes, cores=ready.cores, clock="core", tolerance=tolerance
    ) as session:
        return session.load(ready.how, **ready.options).verify()


def run_plan(
    model: str | Path,
    plan: Plan,
    devices: Sequence[DeviceSpec] | None = None,
    shapes: Mapping[str, Sequence[int]] | Iterable[str] = (),
    *,
    samples: int = SAMPLES,
    baselines: bool = True,
    clock: str = "auto",
    tolerance: Tolerance | str | None = None,
    budget: float = SECONDS,
    say: Callable[[str], None] = lambda _: None,
) -> PlanRun:
    """Verify a plan, then measure it in turns with each single device and with what HETERO chooses itself.

    ``tolerance`` is by default the one that the plan was made with.

    Raises
    ------
    InputError : the plan is for another model, or its devices are not there.
    RunError : it does not run, or gives other outputs than the unplaced model.
    BusyError : other work disturbed all that was measured within the ``budget`` of seconds.
    """
    until = time.monotonic() + budget
    say("comparing outputs with those of the unplaced model")
    ready = _ready(model, plan, devices, shapes)
    specs, cores, findings, how = ready.specs, ready.cores, ready.findings, ready.how
    tolerance = _tolerance_of(plan) if tolerance is None else tolerance
    by = "wall" if clock == "auto" else clock
    with OpenVinoSession(model, specs, ready.shapes, cores=cores, clock=by, tolerance=tolerance) as session:
        placed = session.load(how, **ready.options)
        placed.verify()
        lines: list[tuple[str, Any, str]] = [("plan", placed, "")]
        wanted: list[tuple[str, str, dict[str, Any]]] = [
            (f"{spec.name} alone", "single", {"device": spec.name}) for spec in specs
        ]
        if cores is None:
            wanted += serial_lines(specs)
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
        say(measuring(len(running), until))
        found = session.measure_anyway(running, samples=samples, until=until, switch=clock == "auto", say=say)
        measured = dict(zip(running, found, strict=True))
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
            float(ready.plan.document["cost"]),
            tuple(findings),
            placed.trace(),
            session.engine,
            session.worker.cores,
        )
