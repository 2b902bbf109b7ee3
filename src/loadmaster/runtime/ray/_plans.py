"""Profiling a model on the devices of several machines, and running plans there: what the commands call."""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from loadmaster.errors import InputError, RunError
from loadmaster.graph import Given
from loadmaster.plan import Plan
from loadmaster.problem import Concurrent, ExecutionModel, Pipeline
from loadmaster.runtime._cache import Cache
from loadmaster.runtime._lint import lint
from loadmaster.runtime._plan_runs import Line, PlanRun, measuring, pieces_of
from loadmaster.runtime._session import SAMPLES, SECONDS
from loadmaster.runtime._tolerance import Tolerance
from loadmaster.runtime.openvino import STREAM, DeviceSpec, ModelProfile, devices_of, fitted
from loadmaster.runtime.openvino import profile_model as profile_devices
from loadmaster.runtime.ray._actors import see
from loadmaster.runtime.ray._connection import current
from loadmaster.runtime.ray._host import RayWorker
from loadmaster.runtime.ray._links import measure_links
from loadmaster.runtime.ray._session import RaySession
from loadmaster.runtime.ray._slow import slow_devices

__all__ = [
    "all_cores_lines",
    "how_to_run",
    "open_session",
    "profile_model",
    "run_plan",
    "serial_lines",
]

SHARE = 0.9
"""Of a node's memory that a plan may fill: Ray and the interpreter need some."""
PROVENANCE = "measured by OpenVINO's counters on each node; links fitted to arrays sent through Ray"


def open_session(model: str | Path, devices: Sequence[DeviceSpec], *more: Any, **options: Any) -> RaySession:
    """The model on the cluster that this process is connected to."""
    return RaySession(current(), model, devices, *more, **options)


def how_to_run(model: ExecutionModel) -> tuple[str, dict[str, Any]]:
    """How plans of an execution model are run, and with which options.

    Raises
    ------
    InputError : there is no runtime for it.
    """
    if isinstance(model, Concurrent):
        return "concurrent", {}
    if isinstance(model, Pipeline):
        return "pipeline", {"items": STREAM}
    raise InputError(
        f"plans of the {model.name} model do not run on several machines: use concurrent or pipeline"
    )


def all_cores_lines(
    cores: Sequence[int], precision: str, *, stream: bool
) -> list[tuple[str, str, dict[str, Any]]]:
    """None: the cores of several machines are not one."""
    return []


def serial_lines(devices: Sequence[DeviceSpec]) -> list[tuple[str, str, dict[str, Any]]]:
    """None: nothing runs submodels one after another here."""
    return []


def profile_model(
    path: str | Path,
    devices: Sequence[DeviceSpec],
    shapes: Mapping[str, Sequence[int]] | Iterable[str] = (),
    *,
    cache: Cache | None = None,
    refresh: bool = False,
    clock: str = "wall",
    links_too: bool = True,
    until: float = math.inf,
    session: RaySession | None = None,
) -> ModelProfile:
    """Profile a model on each device by the actor there, and the links between their nodes, always.

    Memory is what the nodes say; devices of one node share it in equal parts.
    """
    opened = session or open_session(path, devices, shapes, clock=clock)
    try:
        found = profile_devices(
            path,
            devices,
            Given(shapes),
            cache=cache,
            refresh=refresh,
            clock=clock,
            links_too=False,
            until=until,
            session=opened,
        )
        worker = opened.worker
        assert isinstance(worker, RayWorker)
        assert worker.host.actors is not None
        links = measure_links(worker.host.actors, cache=cache, refresh=refresh)
        return replace(found, links=links, capacity=capacities(devices), provenance=PROVENANCE)
    finally:
        if session is None:
            opened.close()


def capacities(devices: Sequence[DeviceSpec]) -> dict[str, float]:
    """Device -> bytes that a plan may fill."""
    seen = see(current())
    count = Counter(spec.node for spec in devices)
    return {spec.name: SHARE * seen[spec.node]["memory"] / count[spec.node] for spec in devices}


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
    """Verify a plan on its machines, then measure it in turns with each single device.

    Raises
    ------
    InputError : the plan is for another model, or its nodes are not there.
    RunError : it does not run, or gives other outputs than the unplaced model.
    BusyError : other work disturbed all that was measured within the ``budget`` of seconds.
    """
    until, clock = time.monotonic() + budget, "wall" if clock == "auto" else clock
    say("comparing outputs with those of the unplaced model")
    shapes = plan.given(shapes)
    network, plan = fitted(model, plan, shapes)
    specs = tuple(devices) if devices else devices_of(plan)
    for device in sorted(set(plan.document["placement"].values()) - {spec.name for spec in specs}):
        raise InputError(
            f"{plan.source}: uses device {device!r}, which is not among those given", option="--device"
        )
    findings = lint(plan.problem(), plan.placement(), network)
    for finding in findings:
        if finding.level == "error":
            raise RunError(f"{plan.source}: {finding.text}")
    how, options = how_to_run(plan.problem().model)
    with open_session(model, specs, shapes, clock=clock, tolerance=tolerance) as session:
        session.stream = how == "pipeline"
        pieces = pieces_of(plan)
        placed = session.load(how, **options, pieces=pieces)
        placed.verify()
        lines: list[tuple[str, Any, str]] = [("plan", placed, "")]
        for spec in specs if baselines else ():
            try:
                candidate = session.alone(spec.name)
                candidate.verify()
                lines.append((f"{spec.name} alone", candidate, ""))
            except RunError as error:  # a device that cannot run all of the model is no baseline
                if not session.worker.alive:
                    raise
                lines.append((f"{spec.name} alone", None, str(error)))
        running = [candidate for _, candidate, _ in lines if candidate is not None]
        say(measuring(len(running), until))
        measured = dict(zip(running, session.measure(running, samples=samples, until=until), strict=True))
        spans = placed.trace()
        findings += slow_devices(plan.problem(), pieces, spans, {spec.name: spec.node for spec in specs})
        return PlanRun(
            tuple(
                Line(label, measured.get(c), c and c.verification, why, c and c.latency())
                for label, c, why in lines
            ),
            float(plan.document["cost"]),
            tuple(findings),
            spans,
            session.engine,
            (0,),
        )
