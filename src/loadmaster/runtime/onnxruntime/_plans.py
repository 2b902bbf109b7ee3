"""Running a plan by ONNX Runtime beside its baselines, and opening one to call."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from loadmaster.errors import InputError, RunError
from loadmaster.graph import Network, load_onnx
from loadmaster.plan import Plan
from loadmaster.problem import Concurrent, ExecutionModel, Pipeline, Serial
from loadmaster.runtime._lint import lint
from loadmaster.runtime._plan_runs import Line, PlanRun, measuring, pieces_of
from loadmaster.runtime._session import SAMPLES, SECONDS
from loadmaster.runtime._tolerance import Tolerance
from loadmaster.runtime.onnxruntime._executors import OverlappedSessions
from loadmaster.runtime.onnxruntime._library import check_devices, spec_of
from loadmaster.runtime.onnxruntime._model import FlatModel
from loadmaster.runtime.onnxruntime._session import OnnxRuntimeSession
from loadmaster.runtime.openvino._devices import DeviceSpec
from loadmaster.runtime.openvino._net import Net
from loadmaster.runtime.openvino._plans import STREAM, overlapping_cores

__all__ = ["all_cores_lines", "how_to_run", "open_plan", "run_plan", "serial_lines"]

Shapes = Mapping[str, Sequence[int]] | Iterable[str]


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
        return "serial", {}
    raise InputError(f"there is no runtime for plans of the {model.name} model")


def all_cores_lines(
    cores: Sequence[int], precision: str, *, stream: bool
) -> list[tuple[str, str, dict[str, Any]]]:
    """The baselines without a placement: their labels, how they are run, and the options."""
    options = {"threads": len(cores)}
    found: list[tuple[str, str, dict[str, Any]]] = [
        (f"ONNX Runtime on {len(cores)} cores", "all-cores", options)
    ]
    if stream:
        found.append((f"ONNX Runtime, {len(cores)} streams", "streams", {**options, "items": STREAM}))
    return found


def serial_lines(devices: Sequence[DeviceSpec]) -> list[tuple[str, str, dict[str, Any]]]:
    """What ONNX Runtime would do with several devices of one CPU by itself: nothing."""
    return []


def fitting_network(model: str | Path, plan: Plan, shapes: Shapes = ()) -> Network:
    """The model as the plan knows it.

    Raises
    ------
    InputError : it is no ONNX model, or the plan is for another one.
    """
    if Path(model).suffix == ".xml":
        raise InputError(f"{model}: ONNX Runtime runs ONNX models: give one, or --runtime openvino")
    network = load_onnx(model, shapes)
    if network.graph.digest != plan.graph_hash:
        raise InputError(
            f"{plan.source}: is a plan for another model ({plan.graph_name}, {plan.graph_hash[:12]}) than "
            f"{model} ({network.graph.digest[:12]})"
        )
    return network


def specs_of(plan: Plan, devices: Sequence[DeviceSpec] | None) -> tuple[DeviceSpec, ...]:
    """The devices that were given, or those that the plan was profiled on.

    Raises
    ------
    InputError : somebody has to say what a device of the plan is.
    """
    specs = tuple(devices or ())
    if not specs:
        found = [spec_of(device) for device in plan.problem().cluster.devices]
        specs = tuple(spec for spec in found if spec is not None)
    used = set(plan.document["placement"].values())
    for device in sorted(used - {spec.name for spec in specs}):
        raise InputError(
            f"{plan.source}: uses device {device!r}: say what to run it on, e.g. --device {device}=cpu"
        )
    check_devices(specs)
    return specs


def run_plan(
    model: str | Path,
    plan: Plan,
    devices: Sequence[DeviceSpec] | None = None,
    shapes: Shapes = (),
    *,
    samples: int = SAMPLES,
    baselines: bool = True,
    clock: str = "auto",
    tolerance: Tolerance | str | None = None,
    budget: float = SECONDS,
    say: Callable[[str], None] = lambda _: None,
) -> PlanRun:
    """Verify a plan against the file run by ONNX Runtime itself, then measure it in turns with each single device.

    Raises
    ------
    InputError : the plan is for another model, or its devices are not there.
    RunError : it does not run, or gives other outputs than the unplaced model.
    BusyError : other work disturbed all that was measured within the ``budget`` of seconds.
    """
    until = time.monotonic() + budget
    say("comparing outputs with those of the unplaced model")
    shapes = plan.given(shapes)
    network = fitting_network(model, plan, shapes)
    specs = specs_of(plan, devices)
    problem = plan.problem()
    findings = lint(problem, plan.placement(), network)
    errors = [finding for finding in findings if finding.level == "error"]
    if errors:
        raise RunError(f"{plan.source}: {errors[0].text}")
    how, options = how_to_run(problem.model)
    cores = None
    if how == "serial":
        options["placement"] = plan.document["placement"]
    else:
        options["pieces"] = pieces_of(plan)
        cores = overlapping_cores(specs)
    with OnnxRuntimeSession(
        model, specs, shapes, cores=cores, clock="wall" if clock == "auto" else clock, tolerance=tolerance
    ) as session:
        placed = session.load(how, **options)
        placed.verify()
        wanted: list[tuple[str, str, dict[str, Any]]] = [
            (f"{spec.name} alone", "single", {"device": spec.name}) for spec in specs
        ]
        if cores is not None and all(spec.plugin == "cpu" for spec in specs):
            wanted += all_cores_lines(cores, "f32", stream=how == "pipeline")
        running = [("plan", placed)]
        for label, way, more in wanted if baselines else []:
            running.append((label, session.load(way, **more)))
        say(measuring(len(running), until))
        measured = session.measure_anyway(
            [candidate for _, candidate in running],
            samples=samples,
            until=until,
            switch=clock == "auto",
            say=say,
        )
        return PlanRun(
            tuple(
                Line(label, found, candidate.verification, latency=candidate.latency())
                for (label, candidate), found in zip(running, measured, strict=True)
            ),
            float(plan.document["cost"]),
            tuple(findings),
            placed.trace(),
            session.engine,
            tuple(session.worker.cores),
        )


class OnnxRuntimeNet(Net):
    """A model that runs by a plan, in this process."""

    def __init__(self, model: FlatModel, running: OverlappedSessions) -> None:
        self._running, self._after = running, []
        self._ports = list(model.inputs)
        self.submodels = running.submodels


def open_plan(
    model: str | Path,
    plan: str | Path | Plan,
    devices: Sequence[DeviceSpec] | None = None,
    shapes: Shapes = (),
    *,
    slots: int | None = None,
) -> Net:
    """An ONNX model ready to run by a plan, in this process; a plan of ``serial`` runs one submodel at a time.

    Raises
    ------
    InputError : the plan is for another model, or its devices are not there.
    RunError : a submodel cannot be loaded.
    """
    loaded = plan if isinstance(plan, Plan) else Plan.load(plan)
    how_to_run(loaded.problem().model)
    shapes = loaded.given(shapes)
    fitting_network(model, loaded, shapes)
    specs = {spec.name: spec for spec in specs_of(loaded, devices)}
    flat = FlatModel(model, shapes)
    serial = isinstance(loaded.problem().model, Serial)
    pieces = flat.pieces(loaded.document["placement"]) if serial else pieces_of(loaded)
    slots = slots or (1 if serial else len({piece.device for piece in pieces}) + 1)
    return OnnxRuntimeNet(flat, OverlappedSessions(flat, specs, pieces, slots=slots))
