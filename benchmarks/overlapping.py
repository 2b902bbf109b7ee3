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
from pathlib import Path

import numpy as np

import loadmaster
from benchmarks.openvino_runs import (
    EQUALITY_HEAD,
    PREDICTION_HEAD,
    Guess,
    Options,
    equality_of,
    interval,
    model_file,
    prediction_row,
    profiled,
    short,
    spread,
    varied,
    wait_for_calm,
)
from benchmarks.resumable import Log
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
    Measurement,
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
)

DEVICES = ["A=cpu:core=0", "B=cpu:core=1"]


def cache(options: Options) -> Cache:
    return Cache(options.folder / "measured.sqlite")


def speed(options: Options, execution: str, budget: float) -> None:
    """What ``optimize`` finds, beside one core and OpenVINO's own two threads."""
    spread(
        [
            f"clock {options.clock}, {execution}, at least {options.samples} samples each",
            "| model | one core | OpenVINO on 2 cores | OpenVINO, 2 streams | best plan | submodels | speed-up | "
            "predicted | latency (median, p95) |",
            "|---|---|---|---|---|---|---|---|---|",
        ]
    )
    for name in options.models:
        found = optimize(
            model_file(name, options),
            parse_devices(DEVICES),
            budget=budget,
            model=execution,
            samples=options.samples,
            clock=options.clock,
            cache=cache(options),
        )
        found.plan.save(options.folder / f"plan-{short(name)}-{execution}.json")
        lines = {line.name: line for line in found.lines}
        alone = lines["A alone"].measurement
        assert alone is not None

        def against(line: Line | None, alone: Measurement = alone) -> str:
            if line is None or line.measurement is None:
                return "–"
            return f"{interval(line.measurement)} ({alone.median / line.measurement.median:.2f}x)"

        best = lines.get("best plan")
        cells = [
            name,
            interval(alone),
            against(lines.get("OpenVINO on 2 cores")),
            against(lines.get("OpenVINO, 2 streams")),
        ]
        if best is None or best.measurement is None:
            spread([f"| {' | '.join(cells)} | none | – | – | – | – |"])
            continue
        took = best.measurement
        noise = "" if found.pays else " (noise: the plan is one core)"
        predicted = "–" if found.predicted is None else f"{found.predicted / took.median - 1:+.1%}"
        latency = best.latency
        cells += [
            interval(took),
            str(took.submodels),
            f"{alone.median / took.median:.2f}x{noise}",
            predicted,
            "–" if latency is None else f"{latency.median * 1e3:.0f}, {latency.p95 * 1e3:.0f} ms",
        ]
        spread([f"| {' | '.join(cells)} |", f"  screened: {found.screened}, {took.kept} samples"])


def equality(options: Options) -> None:
    """Random placements of co-location groups, against the unplaced model, with the changed-input control."""
    spread([EQUALITY_HEAD, "|---|---|---|---|---|---|---|---|"])
    specs = parse_devices(DEVICES)
    for name in options.models:
        path, profile = profiled(name, DEVICES, options, links_too=False)
        with OpenVinoSession(path, specs, cores=overlapping_cores(specs), clock=options.clock) as session:
            for how, more in (("concurrent", {}), ("pipeline", {"items": 4})):
                problem = profile.problem(model=MODELS[how])

                def load(
                    placement: Placement,
                    session: OpenVinoSession = session,
                    problem: Problem = problem,
                    how: str = how,
                    more: dict[str, int] = more,
                ) -> Candidate:
                    return session.load(how, pieces=cut(problem, placement), **more)

                equality_of(name, how, problem, profile, options, load)


def prediction(options: Options, execution: str) -> None:
    """The calibrated model against runs, on placements that it was not calibrated on."""
    spread([f"clock {options.clock}, {execution}", *PREDICTION_HEAD])
    specs = parse_devices(DEVICES)
    for name in options.models:
        path, profile = profiled(name, DEVICES, options, links_too=False)
        problem = profile.problem(model=MODELS[execution])
        more = {"items": STREAM // 2} if execution == "pipeline" else {}
        log = Log(
            options.folder / f"prediction-{short(name)}-{execution}-{options.clock}.jsonl",
            {"graph": problem.graph.digest, "classes": problem.classes, "seed": options.seed},
        )
        with OpenVinoSession(path, specs, cores=overlapping_cores(specs), clock=options.clock) as session:
            wait_for_calm(options.patience)
            fit = fitted(session, problem, execution, options.seed + 1)
            guesses = []
            for placement in overlapping(problem, options.count, options.seed):
                pieces = cut(problem, placement)
                guesses.append(
                    Guess(
                        execution,
                        {"pieces": pieces, **more},
                        predict(problem, pieces, fit, **more) / profile.profiles["A"].wall,
                        len(pieces),
                    )
                )
            prediction_row(name, log, session, guesses, options)
        spread([f"  fit: {fit.document()}"])


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


def endurance(options: Options) -> None:
    """Many inferences in a row: memory and threads after a tenth of them, and at the end."""
    from loadmaster.graph.openvino import openvino_model

    for name in options.models:
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
        spread(
            [
                f"{name}: {options.count} inferences in {net.submodels} submodels, "
                f"{time.perf_counter() - began:.0f} s: memory {at[0] / 1e6:.1f} -> {at[1] / 1e6:.1f} MB, "
                f"threads {threads[0]} -> {threads[1]}, "
                f"{differing} outputs differed"
            ]
        )


# -- faults --------------------------------------------------------------------------------------------------


def fail() -> None:
    raise RuntimeError("injected")


def faults(options: Options) -> None:
    """A failing submodel, a slow device, Ctrl-C."""
    before = threading.active_count()
    flow = Flow([[Job("one", "A", fail, (1,), 0), Job("two", "B", lambda: None, (), 1)]], {"A": 0, "B": 1})
    began = time.perf_counter()
    try:
        flow.wait(flow.submit(flow.reserve()))
    except RunError as error:
        spread([f"failing submodel: {error} ({(time.perf_counter() - began) * 1e3:.1f} ms)"])
    flow.close()

    def slow() -> None:
        time.sleep(0.02)

    slots = 3
    flow = Flow(
        [[Job("one", "A", lambda: None, (1,), 0), Job("two", "B", slow, (), 1)] for _ in range(slots)],
        {"A": 0, "B": 1},
    )
    began, requests, most = time.perf_counter(), [], 0
    for _ in range(50):
        while len(requests) >= slots:
            flow.wait(requests[0])
            flow.release(requests.pop(0))
        requests.append(flow.submit(flow.reserve()))
        most = max(most, len(requests))
    for request in requests:
        flow.wait(request)
    flow.close()
    spread(
        [
            f"slow device: 50 requests in {time.perf_counter() - began:.2f} s (20 ms each), at most {most} in flight"
        ]
    )
    spread([f"threads left: {threading.active_count() - before}"])
    interrupt(options)


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


def interrupt(options: Options) -> None:
    """Ctrl-C in the middle of a stream ends it, with no thread and no process left."""
    name = options.models[0]
    plans = sorted(options.folder.glob(f"plan-{short(name)}-*.json"))
    if not plans:
        spread([f"Ctrl-C: run 'speed --models {name}' first, for a plan"])
        return
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
        spread(
            [
                f"Ctrl-C: ended after {(time.perf_counter() - began) * 1e3:.0f} ms, "
                f"exit code {started.returncode}, {said}"
            ]
        )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", choices=("speed", "equality", "prediction", "endurance", "faults"))
    parser.add_argument("--folder", type=Path, default=Path("build/openvino"))
    parser.add_argument("--models", default="inception-v3")
    parser.add_argument("--execution", default="concurrent", choices=tuple(MODELS))
    parser.add_argument("--count", type=int, default=60)
    parser.add_argument("--samples", type=int, default=30)
    parser.add_argument("--budget", type=float, default=60.0)
    parser.add_argument("--clock", default="wall", choices=("wall", "core"))
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--batch", type=int, default=10, help="prediction: placements measured in turns")
    parser.add_argument(
        "--patience", type=float, default=0.0, help="prediction: seconds to wait for a calm machine"
    )
    given = parser.parse_args()
    given.folder.mkdir(parents=True, exist_ok=True)
    options = Options(
        given.folder,
        given.models.split(","),
        given.count,
        given.samples,
        given.clock,
        given.seed,
        given.batch,
        given.patience,
    )
    began = time.perf_counter()
    if given.what == "speed":
        speed(options, given.execution, given.budget)
    elif given.what == "prediction":
        prediction(options, given.execution)
    else:
        {"equality": equality, "endurance": endurance, "faults": faults}[given.what](options)
    print(f"\nOpenVINO through loadmaster {loadmaster.__version__}, in {time.perf_counter() - began:.0f} s")


if __name__ == "__main__":
    main()
