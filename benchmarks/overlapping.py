"""Devices at once: speed against one core, equal outputs, long runs and faults.

    python -m benchmarks.overlapping speed --models inception-v3,two-tower,resnet-50 --execution concurrent
    python -m benchmarks.overlapping speed --models inception-v3,resnet-50,bert-base --execution pipeline
    python -m benchmarks.overlapping equality --models inception-v3 --count 60
    python -m benchmarks.overlapping prediction --models inception-v3 --count 12
    python -m benchmarks.overlapping endurance --models resnet-50 --count 10000
    python -m benchmarks.overlapping faults

Two devices of one core each. On a machine that others use, too, ``--clock core`` (see docs/openvino.md).
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.openvino_runs import (
    Guess,
    Options,
    common,
    equality_of,
    interval,
    model_file,
    prediction_row,
    profiled,
    short,
    varied,
    wait_for_calm,
)
from loadmaster import api
from loadmaster.errors import RunError
from loadmaster.optimize import MODELS, chains, optimize
from loadmaster.problem import Pipeline, Placement, Problem
from loadmaster.runtime import (
    Cache,
    Candidate,
    Flow,
    Job,
    Line,
    OverlapFit,
    cut,
    fit_overlap,
    predict,
)
from loadmaster.runtime.openvino import (
    STREAM,
    Devices,
    OpenVinoSession,
    Overlapped,
    draw_inputs,
    overlapping_cores,
    parse_devices,
    profile_model,
    run_plan,
)
from loadmaster.studies import Case, Row, Scope, Study

__all__ = ["STUDY"]

DEVICES = ["A=cpu:core=0", "B=cpu:core=1"]


def cache(options: Options) -> Cache:
    return Cache(options.folder / "measured.sqlite")


def speed(name: str, scope: Scope, options: Options) -> Row:
    """What ``optimize`` finds, beside one core and OpenVINO's own two threads; ``--again`` runs its plan once more."""
    execution = scope["execution"]
    path = model_file(name, options)
    found = optimize(
        path,
        parse_devices(DEVICES),
        budget=scope["budget"],
        model=execution,
        method=scope["method"],
        parameters=dict(text.split("=", 1) for text in scope["set"]),
        samples=options.samples,
        clock=options.clock,
        cache=cache(options),
        seed=scope["search_seed"],
    )
    found.plan.save(options.folder / f"plan-{short(name)}-{execution}.json")
    lines = {line.name: line for line in found.lines}
    alone = lines["A alone"].measurement
    assert alone is not None

    def against(line: Line | None) -> str | None:
        if line is None or line.measurement is None:
            return None
        return f"{interval(line.measurement)} ({alone.median / line.measurement.median:.2f}x)"

    row: Row = {
        "one core": interval(alone),
        "OpenVINO on 2 cores": against(lines.get("OpenVINO on 2 cores")),
        "OpenVINO, 2 streams": against(lines.get("OpenVINO, 2 streams")),
        "best plan": against(lines.get("best plan")),
        "beyond the noise": found.pays,
        "screened": ", ".join(f"{n}: {1e3 * t:.1f} ms" for n, t in found.screened.items()),
    }
    best = lines.get("best plan")
    if best is not None and best.measurement is not None:
        took, latency = best.measurement, best.latency
        row |= {
            "submodels": took.submodels,
            "samples kept": took.kept,
            "predicted %": None if found.predicted is None else 100 * (found.predicted / took.median - 1),
            "latency (median, p95)": None
            if latency is None
            else f"{latency.median * 1e3:.0f}, {latency.p95 * 1e3:.0f} ms",
        }
    if scope["again"] and found.pays:
        again = run_plan(path, found.plan, samples=options.samples, clock=alone.clock)
        row["afresh"] = "; ".join(
            f"{line.name} {interval(line.measurement)}"
            for line in again.lines
            if line.measurement is not None
        )
    return row


def equality(name: str, how: str, options: Options) -> Row:
    """Random placements of co-location groups, against the unplaced model, with the changed-input control."""
    specs, more = parse_devices(DEVICES), {"items": 4} if how == "pipeline" else {}
    path, profile = profiled(name, DEVICES, options, links_too=False)
    problem = profile.problem(model=MODELS[how])
    with OpenVinoSession(path, specs, cores=overlapping_cores(specs), clock=options.clock) as session:

        def load(placement: Placement) -> Candidate:
            return session.load(how, pieces=cut(problem, placement), **more)

        return equality_of(name, how, problem, profile, options, load)


def prediction(name: str, execution: str, options: Options) -> Row:
    """The calibrated model against runs, on placements that it was not calibrated on."""
    specs = parse_devices(DEVICES)
    path, profile = profiled(name, DEVICES, options, links_too=False)
    problem = profile.problem(model=MODELS[execution])
    more = {"items": STREAM // 2} if execution == "pipeline" else {}
    with OpenVinoSession(path, specs, cores=overlapping_cores(specs), clock=options.clock) as session:
        wait_for_calm(options.patience)
        fit = fitted(session, problem, execution, options.seed + 1)
        guesses = []
        for placement in overlapping(problem, options.count, options.seed):
            pieces = cut(problem, placement)
            predicted = predict(problem, pieces, fit, **more) / profile.profiles["A"].wall
            guesses.append(Guess(execution, {"pieces": pieces, **more}, predicted, len(pieces)))
        row = prediction_row(name, execution, problem, session, guesses, options)
    return row | {"fit": str(fit.document())}


def overlapping(problem: Problem, count: int, seed: int) -> list[Placement]:
    """Placements with much to do at once, with little, and with nothing.

    Every third is one of :func:`varied`. The others begin with a good placement (HEFT's, or for a stream one cut
    at a random place) of which a share of the chains of groups, drawn between 0.02 and 1 (uniform in the logarithm; for
    a stream up to 0.2), is then drawn anew.
    """
    generator = np.random.default_rng(seed)
    found = varied(problem, (count + 2) // 3, seed)
    linked = chains(problem)
    stream = isinstance(problem.model, Pipeline)
    good = api.place(problem, "single" if stream else "heft", budget=5.0).placement.device
    while len(found) < count:
        device = good.copy()
        if stream:
            device = (problem.graph.position >= generator.uniform(0.1, 0.9) * problem.n).astype(np.int32)
            device = device[np.unique(problem.class_of, return_index=True)[1]][problem.class_of]
        share = np.exp(generator.uniform(np.log(0.02), np.log(0.2 if stream else 1.0)))
        for chain in linked:
            if generator.random() < share:
                device[np.isin(problem.class_of, chain)] = generator.integers(problem.devices)
        if len(np.unique(device)) > 1:
            found.append(Placement(device))
    return found


def fitted(session: OpenVinoSession, problem: Problem, execution: str, seed: int) -> OverlapFit:
    """Costs fitted to traces of four varied placements."""
    traced = []
    for placement in overlapping(problem, 6, seed):
        pieces = cut(problem, placement)
        candidate = session.load(
            execution, pieces=pieces, **({"items": 4} if execution == "pipeline" else {})
        )
        traces = [candidate.trace() for _ in range(3)]
        taken = {n: [s["core"] for t in traces for s in t if s["submodel"] == n] for n in range(len(pieces))}
        traced.append((pieces, {n: float(np.median(v)) for n, v in taken.items()}))
        candidate.close()
    return fit_overlap(problem, traced, OverlapFit())


def memory() -> float:
    """Bytes of this process in memory."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def endurance(name: str, options: Options) -> Row:
    """Many inferences in a row: memory and threads after a tenth of them, and at the end."""
    from loadmaster.graph.openvino import openvino_model

    path, specs = model_file(name, options), parse_devices(DEVICES)
    profile = profile_model(path, specs, cache=cache(options), clock=options.clock, links_too=False)
    problem = profile.problem(model=MODELS["concurrent"])
    model = openvino_model(path)
    net = Overlapped(model, Devices(specs), cut(problem, varied(problem, 2, options.seed)[1]), slots=3)
    inputs = draw_inputs(model, 1)
    expected = net.run(inputs)
    at, threads, differing = [], [], 0
    began = time.perf_counter()
    for i, outputs in enumerate(net.stream(inputs for _ in range(options.count))):
        differing += any(not np.array_equal(a, b) for a, b in zip(outputs, expected, strict=True))
        if i + 1 in (options.count // 10, options.count):
            at.append(memory())
            threads.append(len(list(Path("/proc/self/task").iterdir())))
    net.close()
    return {
        "submodels": net.submodels,
        "s": time.perf_counter() - began,
        "MB after a tenth": at[0] / 1e6,
        "MB at the end": at[-1] / 1e6,
        "threads": f"{threads[0]} -> {threads[-1]}",
        "outputs that differed": differing,
    }


# -- faults --------------------------------------------------------------------------------------------------


def fail() -> None:
    raise RuntimeError("injected")


def failing() -> Row:
    """A submodel that fails ends the request with its error."""
    before = threading.active_count()
    flow = Flow([[Job("one", "A", fail, (1,), 0), Job("two", "B", lambda: None, (), 1)]], {"A": 0, "B": 1})
    began = time.perf_counter()
    try:
        flow.wait(flow.submit(flow.reserve()))
        found = "no error"
    except RunError as error:
        found = f"{error} ({(time.perf_counter() - began) * 1e3:.1f} ms)"
    flow.close()
    return {"found": found, "threads left": threading.active_count() - before}


def slow(requests: int = 50, slots: int = 3, seconds: float = 0.02) -> Row:
    """A slow device holds the others back: no more requests are in flight than there are slots."""
    before = threading.active_count()
    flow = Flow(
        [
            [Job("one", "A", lambda: None, (1,), 0), Job("two", "B", lambda: time.sleep(seconds), (), 1)]
            for _ in range(slots)
        ],
        {"A": 0, "B": 1},
    )
    waiting: list[Any] = []
    began, most = time.perf_counter(), 0
    for _ in range(requests):
        while len(waiting) >= slots:
            flow.wait(waiting[0])
            flow.release(waiting.pop(0))
        waiting.append(flow.submit(flow.reserve()))
        most = max(most, len(waiting))
    for request in waiting:
        flow.wait(request)
    flow.close()
    took = time.perf_counter() - began
    found = f"{requests} requests in {took:.2f} s ({1e3 * seconds:.0f} ms each), at most {most} in flight"
    return {"found": found, "threads left": threading.active_count() - before}


LOOP = """
import sys, itertools, numpy as np, loadmaster, signal, threading
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs begin without it
from loadmaster.graph.openvino import openvino_model
from loadmaster.runtime.openvino import draw_inputs
x = tuple(draw_inputs(openvino_model(sys.argv[1]), 0))
try:
    with loadmaster.open(sys.argv[1], sys.argv[2]) as net:
        print("running", flush=True)
        for _ in net.stream(itertools.repeat(x)):
            pass
except KeyboardInterrupt:
    print("threads left:", sum(t.name.startswith("loadmaster") for t in threading.enumerate()), flush=True)
"""


def interrupt(name: str, options: Options) -> Row:
    """Ctrl-C in the middle of a stream ends it, with no thread and no process left."""
    plans = sorted(options.folder.glob(f"plan-{short(name)}-*.json"))
    if not plans:
        return {"found": f"run 'speed --models {name}' first, for a plan"}
    with tempfile.NamedTemporaryFile("w", suffix=".py") as file:
        file.write(LOOP)
        file.flush()
        started = subprocess.Popen(
            [sys.executable, file.name, str(model_file(name, options)), str(plans[0])],
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        )
        assert started.stdout is not None
        assert started.stdout.readline().strip() == "running"
        time.sleep(1.0)
        began = time.perf_counter()
        started.send_signal(signal.SIGINT)
        try:
            said = started.communicate(timeout=30)[0].strip()
        finally:
            started.kill()
    took = (time.perf_counter() - began) * 1e3
    return {"found": f"ended after {took:.0f} ms, exit code {started.returncode}, {said}"}


def options(parser: argparse.ArgumentParser) -> None:
    """What is shown, and how it is searched for."""
    parser.add_argument("what", choices=("speed", "equality", "prediction", "endurance", "faults"))
    common(parser, "inception-v3", 30)
    parser.add_argument("--execution", default="concurrent", choices=tuple(MODELS))
    parser.add_argument("--budget", type=float, default=60.0, help="speed: seconds for optimize")
    parser.add_argument("--method", default="auto", help="speed: the placer")
    parser.add_argument(
        "--set", action="append", default=[], metavar="NAME=VALUE", help="speed: of the placer"
    )
    parser.add_argument("--search-seed", type=int, default=0, help="speed: of the placer")
    parser.add_argument("--again", action="store_true", help="speed: measure the plan once more, afresh")


def cases(scope: Scope) -> list[Case]:
    """A case per model; faults need one for Ctrl-C only."""
    what, execution = scope["what"], scope["execution"]
    given = Options.of(scope, 10_000 if what == "endurance" else 60)
    key: Row = {"part": what, "clock": given.clock}
    models = scope["models"].split(",")
    if what == "faults":
        return [
            Case({**key, "fault": "failing submodel"}, failing),
            Case({**key, "fault": "slow device"}, slow),
            Case({**key, "fault": "Ctrl-C", "model": models[0]}, partial(interrupt, models[0], given)),
        ]
    found = []
    for name in models:
        mine: Row = {**key, "model": name}
        if what == "speed":
            names = ("execution", "budget", "method", "set", "search_seed", "samples", "again")
            found.append(Case({**mine, **{n: scope[n] for n in names}}, partial(speed, name, scope, given)))
            continue
        mine |= {"count": given.count, "seed": given.seed}
        if what == "equality":
            for how in ("concurrent", "pipeline"):
                found.append(Case({**mine, "runtime": how}, partial(equality, name, how, given)))
        elif what == "prediction":
            found.append(Case({**mine, "runtime": execution}, partial(prediction, name, execution, given)))
        else:
            found.append(Case(mine, partial(endurance, name, given)))
    return found


STUDY = Study("overlapping", "Devices at once", cases, options=options, here=True)

if __name__ == "__main__":
    raise SystemExit(STUDY.main())
