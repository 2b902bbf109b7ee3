"""The main job: profile a model, place it, run the best few placements for real, and keep what is measured best."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from loadmaster import api
from loadmaster.errors import BusyError, InputError, RunError
from loadmaster.graph.onnx import parse_shapes
from loadmaster.optimize._refine import refine
from loadmaster.placers import Placer
from loadmaster.plan import Plan
from loadmaster.problem import Concurrent, ExecutionModel, Pipeline, Placement, Problem, Solution, evaluate
from loadmaster.runtime import (
    SAMPLES,
    Cache,
    Candidate,
    Line,
    Measurement,
    OverlapFit,
    Piece,
    Traced,
    corrected,
    cut,
    fit_overlap,
    predict,
)
from loadmaster.runtime.openvino import (
    DeviceSpec,
    ModelProfile,
    OpenVinoSession,
    all_cores_lines,
    how_to_run,
    overlapping_cores,
    profile_model,
)

__all__ = ["MODELS", "Optimized", "optimize"]

MODELS: dict[str, ExecutionModel] = {
    "concurrent": Concurrent(),
    "pipeline": Pipeline(contiguity="chain"),
}
"""What can be optimised for: the latency of one request, the time per request of a stream."""
PRICES = (1.0, 4.0)
"""What a cut is taken to cost, against what is known of it: dearer cuts give plans with fewer of them."""
SEARCHING = {"concurrent": 0.5, "pipeline": 0.25}
"""Share of what profiling leaves of the budget that is for placing; the rest is for running, which takes longer for
streams."""
LEAST = 1.0
"""Seconds for every one of the placements, however small the budget is."""
SCREENING, FEWEST_SCREENING = 7, 3
"""Samples of every candidate before the winner is measured afresh; and where there is no time for them."""
SCREENING_SHARE = 0.3
"""Of the time that is left, for them."""
FEWEST, FEWEST_STREAMS = 10, 5
"""Samples of the last measurement where there is no time for more: of one request, of a whole stream."""
TRACES = 5


@dataclass(frozen=True)
class _Tried:
    """A placement that was run."""

    name: str
    placement: Placement
    pieces: Sequence[Piece]
    candidate: Candidate


@dataclass(frozen=True)
class Optimized:
    """What :func:`optimize` found."""

    plan: Plan
    lines: tuple[Line, ...]
    """Measured side by side: the best single device, OpenVINO's own use of all cores, the others, the best plan."""
    alone: str
    """Name of the best single device."""
    pays: bool
    """Whether the plan is faster than the best single device beyond the noise; if not, the plan is that device."""
    predicted: float | None
    fit: OverlapFit
    screened: Mapping[str, float]
    """Seconds of every candidate when the winner was chosen."""
    left_out: Mapping[str, str]
    """The placements that were found but did not run, with the reason."""
    model: str
    cores: tuple[int, ...]
    engine: Mapping[str, str]
    """Its name and version."""
    seconds: float

    def line(self, name: str) -> Line:
        """One of the lines."""
        return next(line for line in self.lines if line.name == name)

    def document(self) -> dict[str, Any]:
        """As plain values."""
        alone = self.line(f"{self.alone} alone").measurement
        assert alone is not None
        return {
            "model": self.model,
            "pays": self.pays,
            "alone": self.alone,
            "predicted": self.predicted,
            "fit": self.fit.document(),
            "screened": dict(self.screened),
            "left_out": dict(self.left_out),
            "lines": [
                {
                    **line.document(),
                    "speedup": None if line.measurement is None else alone.median / line.measurement.median,
                }
                for line in self.lines
            ],
            "cores": list(self.cores),
            **self.engine,
            "seconds": self.seconds,
        }


def optimize(
    path: str | Path,
    devices: Sequence[DeviceSpec],
    shapes: Mapping[str, Sequence[int]] | Iterable[str] = (),
    *,
    budget: float = 120.0,
    model: str = "concurrent",
    method: str = "auto",
    parameters: Mapping[str, Any] | None = None,
    samples: int = SAMPLES,
    clock: str = "auto",
    cache: Cache | None = None,
    seed: int = 0,
    say: Callable[[str], None] = lambda _: None,
) -> Optimized:
    """:func:`optimize_by` the clock ``wall``, or where the machine is too busy for that, by ``core``.

    ``method``, with ``parameters``, is what searches on the model of costs; what it finds is run. ``clock`` may also be
    one of the two; ``wall`` then ends with an error on a busy machine.
    """
    placer = api.configured(method, parameters)
    end = time.monotonic() + budget
    for by in ("wall", "core") if clock == "auto" else (clock,):
        try:
            return optimize_by(
                by,
                path,
                devices,
                shapes,
                end=end,
                model=model,
                placer=placer,
                samples=samples,
                cache=cache,
                seed=seed,
                say=say,
            )
        except BusyError as error:
            if clock != "auto" or by == "core":
                raise
            say(f"{error}; going on by the time on the cores (--clock core), which other work disturbs less")
    raise AssertionError("one of the clocks returns or raises")


def optimize_by(
    clock: str,
    path: str | Path,
    devices: Sequence[DeviceSpec],
    shapes: Mapping[str, Sequence[int]] | Iterable[str],
    *,
    end: float,
    model: str,
    placer: Placer,
    samples: int,
    cache: Cache | None,
    seed: int,
    say: Callable[[str], None],
) -> Optimized:
    """Profile, place, run, choose by measurement, verify.

    Two rounds: the first plans are traced, what a cut really costs is fitted to the traces, and the second round is
    placed with that. All candidates are then measured in turns, and the winner once more, afresh, beside every single
    device and OpenVINO's own use of all the cores. Everything is to be done at the time ``end`` of
    ``time.monotonic``: of what profiling leaves a :data:`SEARCHING` share is for placing, the rest for running. Less
    than the profile, four placements of :data:`LEAST` seconds and :data:`FEWEST` samples cannot be done, and takes what
    it takes. Ctrl-C while placing goes on with what there is.

    Raises
    ------
    InputError : the model or a device is wrong.
    RunError : nothing runs, or no placement that was found, or the machine is too busy to measure.
    """
    began = time.monotonic()
    if model not in MODELS:
        raise InputError(f"--model {model!r}: there is a runtime for {', '.join(MODELS)}")
    if len(devices) < 2:
        raise InputError("there is nothing to place on one device: give at least two, e.g. --device B=cpu")
    say("profiling: what every op takes on every device")
    profile = profile_model(path, devices, shapes, cache=cache, clock=clock, links_too=False)
    plain = profile.problem(model=MODELS[model])
    cores = overlapping_cores(devices)
    with OpenVinoSession(path, devices, shapes, cores=cores, clock=clock) as session:
        alone = _alone(session, profile)
        work = _Search(session, plain, model, placer, end - time.monotonic(), seed, say)
        fit = OverlapFit()
        bounded = work.round(fit, 1)
        if not work.interrupted:
            fit = work.fitted(fit)
            bounded = work.round(fit, 2)
        if work.left_out and not work.tried:
            name, why = next(iter(work.left_out.items()))
            raise RunError(
                f"none of the {len(work.left_out)} placements that were found could be run, so that nothing is known "
                f"of them: {name}: {why}"
            )
        screened, best, first = _screen(session, work.tried, alone, end, say)
        say("measuring the winner afresh, beside each device alone and all cores")
        lines = _final(session, alone, first, best, devices, cores, samples, end)
        engine, used = session.engine, session.worker.cores
    found = next(line.measurement for line in lines if line.name == "best plan") if best else None
    single = next(line.measurement for line in lines if line.name == f"{first} alone")
    assert single is not None
    pays = found is not None and found.faster_than(single)
    problem = fit.applied(work.plain)
    if best is not None and pays:
        chosen = best.placement
        predicted: float | None = predict(work.plain, best.pieces, fit, items=best.candidate.items)
    else:
        chosen, predicted = _everything_on(problem, first), None
    solution = replace(
        bounded,
        placement=chosen,
        cost=evaluate(problem, chosen).cost,
        found_by=best.name if best is not None and pays else "single",
    )
    solution = replace(solution, bound=min(solution.bound, solution.cost))
    measured = found if pays and found is not None else single
    known: dict[str, Any] = {"cost": measured.median, **measured.document()}
    if pays and lines[-1].latency is not None:
        known["latency"] = lines[-1].latency._asdict()
    plan = Plan.from_solution(problem, solution, measured=known, shapes=parse_shapes(shapes))
    if best is not None and pays:  # run it later as it was measured
        plan = Plan({**plan.document, "pieces": [[piece.device, list(piece.ops)] for piece in best.pieces]})
    return Optimized(
        plan,
        lines,
        first,
        pays,
        predicted,
        fit,
        screened,
        work.left_out,
        model,
        used,
        engine,
        time.monotonic() - began,
    )


def _everything_on(problem: Problem, device: str) -> Placement:
    import numpy as np

    return Placement(np.full(problem.n, problem.cluster.index[device], np.int32))


def _alone(session: OpenVinoSession, profile: ModelProfile) -> dict[str, Candidate]:
    """Every device alone that can run the whole model; of equal ones the first."""
    found: dict[str, Candidate] = {}
    seen = set()
    for spec in session.devices:
        kind = (spec.plugin, spec.precision, spec.threads)
        if kind in seen or profile.profiles[spec.name].unsupported:
            continue
        seen.add(kind)
        found[spec.name] = session.alone(spec.name)
    if not found:
        raise RunError("no device can run the whole model alone, so that there is nothing to compare with")
    return found


class _Search:
    """Placements found, loaded and verified so far."""

    def __init__(
        self,
        session: OpenVinoSession,
        plain: Problem,
        model: str,
        placer: Placer,
        left: float,
        seed: int,
        say: Callable[[str], None],
    ) -> None:
        self.session, self.plain, self.model, self.seed, self.say = session, plain, model, seed, say
        self.placer = placer
        self.share = max(LEAST, left * SEARCHING[model] / (2 * len(PRICES)))
        self.tried: list[_Tried] = []
        self.left_out: dict[str, str] = {}
        self.interrupted = False

    def round(self, fit: OverlapFit, number: int) -> Solution:
        """Place with every price of a cut; the solution at the price that is believed."""
        first: Solution | None = None
        for price in PRICES:
            self.say(f"placing, round {number}: a cut taken {price:g}x as dear, {self.share:.0f} s")
            problem = fit.applied(self.plain, price=price)
            # The portfolio's answer is refined by what its pieces would take; another method is on its own.
            alone = self.placer.name != "auto"
            seconds = self.share if alone else self.share / 2
            solution = api.place(problem, self.placer, budget=seconds, seed=self.seed)
            first = first or solution
            refined = solution.placement
            if solution.stopped != "interrupted" and not alone:
                refined = refine(self.plain, refined, fit, seconds=self.share / 2, seed=self.seed)
            self._load(f"round {number}, cuts {price:g}x", refined, fit)
            if solution.stopped == "interrupted":  # go on with what there is
                self.interrupted = True
                break
        assert first is not None
        return first

    def _load(self, name: str, placement: Placement, fit: OverlapFit) -> None:
        if len(set(placement.device.tolist())) == 1:
            return
        pieces = cut(self.plain, placement, piece=fit.piece, wait=fit.wait)
        if any(list(tried.pieces) == pieces for tried in self.tried):
            return
        how, options = how_to_run(self.plain.model)
        try:
            candidate = self.session.load(how, pieces=pieces, **options)
            candidate.verify()
        except BusyError:
            raise
        except RunError as error:  # one that does not run is no candidate; the others may be
            if not self.session.worker.alive:
                raise
            self.say(f"{name} is left out: {error}")
            self.left_out[name] = str(error)
            return
        self.tried.append(_Tried(name, placement, pieces, candidate))

    def fitted(self, start: OverlapFit) -> OverlapFit:
        """What the traces of the candidates so far say about costs; the times of ops are corrected by them, too."""
        traced: list[Traced] = []
        for tried in self.tried:
            taken: dict[int, list[float]] = {}
            for _ in range(TRACES):
                for span in tried.candidate.trace():
                    taken.setdefault(span["submodel"], []).append(span["core"])
            # Other work slows the caches down, too: by the clock that drops nothing the quickest run had least of it.
            typical = min if self.session.clock == "core" else statistics.median
            traced.append((tried.pieces, {n: float(typical(values)) for n, values in taken.items()}))
        fit = fit_overlap(self.plain, traced, start)
        self.plain = corrected(self.plain, traced, fit)
        return fit


def _screen(
    session: OpenVinoSession,
    tried: Sequence[_Tried],
    alone: Mapping[str, Candidate],
    end: float,
    say: Callable[[str], None],
) -> tuple[dict[str, float], _Tried | None, str]:
    """A few samples of everything, in turns: the best placement and the best single device."""
    say(f"running {len(tried)} placements")
    stream = bool(tried) and tried[0].candidate.items > 1
    now = time.monotonic()
    found = session.measure(
        [*alone.values(), *(t.candidate for t in tried)],
        samples=FEWEST_SCREENING if stream else SCREENING,
        until=now + SCREENING_SHARE * (end - now),
        fewest=2 if stream else FEWEST_SCREENING,
    )
    medians = [m.median for m in found]
    screened = dict(zip([f"{name} alone" for name in alone], medians[: len(alone)], strict=True))
    screened |= dict(zip([t.name for t in tried], medians[len(alone) :], strict=True))
    best = min(tried, key=lambda t: screened[t.name]) if tried else None
    return screened, best, min(alone, key=lambda name: screened[f"{name} alone"])


def _final(
    session: OpenVinoSession,
    alone: Mapping[str, Candidate],
    first: str,
    best: _Tried | None,
    devices: Sequence[DeviceSpec],
    cores: Sequence[int],
    samples: int,
    end: float,
) -> tuple[Line, ...]:
    order = [first, *(name for name in alone if name != first)]
    running: list[tuple[str, Candidate]] = [(f"{name} alone", alone[name]) for name in order]
    if all(spec.plugin.startswith("cpu") for spec in devices):
        precision = next(spec.precision for spec in devices if spec.name == first)
        stream = best is not None and best.candidate.items > 1
        for name, how, options in all_cores_lines(cores, precision, stream=stream):
            running.append((name, session.load(how, **options)))
    if best is not None:
        running.append(("best plan", best.candidate))
    stream = any(candidate.items > 1 for _, candidate in running)
    fewest = min(FEWEST_STREAMS if stream else FEWEST, samples)
    measured: list[Measurement] = session.measure(
        [c for _, c in running], samples=samples, until=end, fewest=fewest
    )
    return tuple(
        Line(name, found, candidate.verification, latency=candidate.latency())
        for (name, candidate), found in zip(running, measured, strict=True)
    )
