"""Profiling a model on the devices of several machines, and running plans there: what the commands call."""

from __future__ import annotations

import math
import platform
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from loadmaster.cores import allowed_cores
from loadmaster.errors import InputError, RunError, WorkerError
from loadmaster.graph import Given
from loadmaster.plan import Plan
from loadmaster.problem import Concurrent, ExecutionModel, Pipeline
from loadmaster.runtime._cache import Cache
from loadmaster.runtime._lint import Finding, lint
from loadmaster.runtime._pieces import Piece, cut
from loadmaster.runtime._plan_runs import Change, Line, PlanRun, measuring, pieces_of
from loadmaster.runtime._session import SAMPLES, SECONDS, Candidate
from loadmaster.runtime._tolerance import Tolerance
from loadmaster.runtime._verifying import Verification
from loadmaster.runtime.openvino import STREAM, DeviceSpec, ModelProfile, devices_of, fitted
from loadmaster.runtime.openvino import profile_model as profile_devices
from loadmaster.runtime.ray._connection import current
from loadmaster.runtime.ray._host import RayWorker
from loadmaster.runtime.ray._links import measure_calls, measure_links
from loadmaster.runtime.ray._replanning import Placing, place_on
from loadmaster.runtime.ray._session import RaySession
from loadmaster.runtime.ray._slow import better_plan, slow_devices, slow_factors

__all__ = [
    "all_cores_lines",
    "how_to_run",
    "open_session",
    "profile_model",
    "run_plan",
    "serial_lines",
    "verify_plan",
]

SHARE = 0.9
"""Of a node's free memory that a plan may fill: tensors on their way need some."""
PROVENANCE = "measured by OpenVINO's counters on each node; links and calls fitted to arrays sent through Ray"


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
        worker = opened.worker
        assert isinstance(worker, RayWorker)
        assert worker.host.actors is not None
        # Of the actors that run the model: a process that only looks takes tens of megabytes itself.
        places = worker.host.actors.all(lambda handle: handle.place.remote())
        free = {spec.node: float(places[spec.name]["free"]) for spec in devices}
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
        links = measure_links(worker.host.actors, cache=cache, refresh=refresh, until=until)
        calls = measure_calls(worker.host.actors, cache=cache, refresh=refresh, until=until)
        return replace(
            found,
            links=links,
            capacity=capacities(devices, found, free),
            provenance=PROVENANCE,
            calls=None
            if calls is None
            else calls.fit(
                len(devices), _given_bytes(found), sharing([places[spec.name]["host"] for spec in devices])
            ),
        )
    finally:
        if session is None:
            opened.close()


def _given_bytes(profile: ModelProfile) -> float:
    """Bytes of a request."""
    graph = profile.network.graph
    given = np.isin(graph.tensor_producer, profile.network.inputs)
    return float(graph.tensor_bytes[given].sum())


def sharing(hosts: Sequence[str]) -> int:
    """Devices on whose cores this process runs, too, of devices on such machines: all of this one, if they leave no
    core to it."""
    mine = sum(host == platform.node() for host in hosts)
    return mine if mine >= len(allowed_cores()) else 0


def capacities(
    devices: Sequence[DeviceSpec], profile: ModelProfile, free: Mapping[str, float]
) -> dict[str, float]:
    """Device -> bytes of weights and outputs that a plan may put there.

    A node has what is ``free`` of its memory when nothing of the model is there, and some of that is left alone. What a
    compiled model takes is more, or less, than its weights and outputs: they are counted at the rate that was measured
    when the model was profiled on the device.
    """
    count = Counter(spec.node for spec in devices)
    graph = profile.network.graph
    counted = float((graph.param_bytes + graph.bytes_written).sum())
    found = {}
    for spec in devices:
        taken = profile.profiles[spec.name].memory
        room = SHARE * free[spec.node] / count[spec.node]
        found[spec.name] = room * (counted / taken if taken and counted else 1.0)
    return found


def _ready(
    model: str | Path,
    plan: Plan,
    devices: Sequence[DeviceSpec] | None,
    shapes: Mapping[str, Sequence[int]] | Iterable[str],
) -> tuple[Plan, tuple[DeviceSpec, ...], Given, list[Finding]]:
    """A plan that fits its model, its devices, the shapes of its inputs, and what is foolish about it."""
    given = plan.given(shapes)
    network, plan = fitted(model, plan, given)
    specs = tuple(devices) if devices else devices_of(plan)
    for device in sorted(set(plan.document["placement"].values()) - {spec.name for spec in specs}):
        raise InputError(
            f"{plan.source}: uses device {device!r}, which is not among those given", option="--device"
        )
    findings = lint(plan.problem(), plan.placement(), network)
    for finding in findings:
        if finding.level == "error":
            raise RunError(f"{plan.source}: {finding.text}")
    return plan, specs, given, findings


def verify_plan(
    model: str | Path,
    plan: Plan,
    devices: Sequence[DeviceSpec] | None = None,
    shapes: Mapping[str, Sequence[int]] | Iterable[str] = (),
    *,
    tolerance: Tolerance | str | None = None,
) -> Verification:
    """Compare the outputs of a plan on its machines with those of the unplaced model here, and nothing more.

    Raises
    ------
    InputError : the plan is for another model, or its nodes are not there.
    RunError : it does not run, or gives other outputs than the unplaced model.
    """
    plan, specs, given, _ = _ready(model, plan, devices, shapes)
    how, options = how_to_run(plan.problem().model)
    with open_session(model, specs, given, clock="core", tolerance=tolerance) as session:
        return session.load(how, **options, pieces=pieces_of(plan)).verify()


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
    place: Placing | None = None,
    replan: bool = False,
) -> PlanRun:
    """Verify a plan on its machines, then measure it in turns with each single device.

    With ``place`` a slow node is reported with the plan that would be better; with ``replan``, too, the model is placed
    anew when a node dies, and measured there.

    Raises
    ------
    InputError : the plan is for another model, or its nodes are not there.
    WorkerError : a node died; the message names it.
    RunError : it does not run, or gives other outputs than the unplaced model.
    BusyError : other work disturbed all that was measured within the ``budget`` of seconds.
    """
    until, clock = time.monotonic() + budget, "wall" if clock == "auto" else clock
    say("comparing outputs with those of the unplaced model")
    plan, specs, given, findings = _ready(model, plan, devices, shapes)
    read = {"shapes": dict(given), "values": given.constants}
    how, options = how_to_run(plan.problem().model)
    with open_session(model, specs, given, clock=clock, tolerance=tolerance) as session:
        session.stream = how == "pipeline"
        worker = session.worker
        assert isinstance(worker, RayWorker)
        pieces, now = pieces_of(plan), None
        changes: list[Change] = []
        lost: list[str] = []
        began = 0.0
        while True:
            try:
                placed = session.load(how, **options, pieces=pieces)
                if lost:
                    assert now is not None
                    changes.append(_changed(lost, pieces, time.perf_counter() - began, now, specs))
                    lost = []
                alone = list(_there(worker)) if baselines else []
                lines, measured = _measured(session, placed, alone, samples, until, say)
                spans = placed.trace()
                break
            except WorkerError as error:
                if place is None or not replan:
                    raise
                began = began if lost else time.perf_counter()
                lost += worker.host.go_on()
                if not _there(worker):
                    raise WorkerError(f"{error}, and no device is left") from None
                rest, solution = place_on(plan.problem(), list(_there(worker)), place)
                pieces, now = cut(rest, solution.placement), Plan.from_solution(rest, solution, **read)
        shown = now or plan
        where = {spec.name: spec.node for spec in specs}
        factors, better, advice = slow_factors(shown.problem(), pieces, spans), None, None
        if factors and place is not None:
            better, advice = better_plan(shown.problem(), shown.placement(), factors, place, **read)
        findings += slow_devices(
            shown.problem(), pieces, spans, where, **({} if advice is None else {"advice": advice})
        )
        return PlanRun(
            tuple(
                Line(label, measured.get(c), c and c.verification, why, c and c.latency())
                for label, c, why in lines
            ),
            float(shown.document["cost"]),
            tuple(findings),
            spans,
            session.engine,
            (0,),
            tuple(changes),
            now,
            better,
        )


def _there(worker: RayWorker) -> Mapping[str, DeviceSpec]:
    assert worker.host.actors is not None
    return worker.host.actors.specs


def _changed(
    lost: Sequence[str], pieces: Sequence[Piece], seconds: float, now: Plan, specs: Sequence[DeviceSpec]
) -> Change:
    node = {spec.name: spec.node for spec in specs}
    used = {piece.device for piece in pieces}
    return Change(
        tuple(dict.fromkeys(node[name] for name in lost)),
        tuple(lost),
        (),
        tuple(spec.name for spec in specs if spec.name in used),
        seconds,
        float(now.document["cost"]),
    )


def _measured(
    session: RaySession,
    placed: Candidate,
    alone: Sequence[str],
    samples: int,
    until: float,
    say: Callable[[str], None],
) -> tuple[list[tuple[str, Any, str]], dict[Any, Any]]:
    """A plan verified and measured beside devices on their own: the lines, and the measurements of those that run."""
    placed.verify()
    lines: list[tuple[str, Any, str]] = [("plan", placed, "")]
    for name in alone:
        try:
            candidate = session.alone(name)
            candidate.verify()
            lines.append((f"{name} alone", candidate, ""))
        except RunError as error:  # a device that cannot run all of the model is no baseline
            if not session.worker.alive:
                raise
            lines.append((f"{name} alone", None, str(error)))
    running = [candidate for _, candidate, _ in lines if candidate is not None]
    say(measuring(len(running), until))
    return lines, dict(zip(running, session.measure(running, samples=samples, until=until), strict=True))
