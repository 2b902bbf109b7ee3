"""One call of the main job, step by step: profile, place, screen, measure afresh, and choose."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from loadmaster import api
from loadmaster.compiling import compilations
from loadmaster.errors import BusyError, RunError, UnsupportedError
from loadmaster.graph import Given
from loadmaster.graph.onnx import parse_shapes
from loadmaster.optimize._budget import Spending, monotonic
from loadmaster.optimize._clock import FEWEST_AT_ALL, WARMED, Clock
from loadmaster.optimize._result import Optimized
from loadmaster.optimize._search import Search, Tried
from loadmaster.placers import Placer
from loadmaster.plan import Plan
from loadmaster.problem import (
    ExecutionModel,
    Pipeline,
    Placement,
    Problem,
    Serial,
    Solution,
    evaluate,
)
from loadmaster.runtime import (
    Cache,
    Candidate,
    Line,
    OverlapFit,
    Session,
    Tolerance,
    predict,
)
from loadmaster.runtime.openvino import STREAM, DeviceSpec, ModelProfile, overlapping_cores

__all__ = ["Job"]

PROFILING, PROFILING_BUSY = 0.25, 0.4
"""Share of the budget after which ops are measured in as few runs as will do; and on a busy machine, begun anew."""
SCREENING, FEWEST_SCREENING = 7, 3
"""Samples of every candidate before the winner is measured afresh; and where there is no time for them."""
SCREENING_SHARE = 0.3
"""Of the time that is left, for them."""
FEWEST, FEWEST_STREAMS = 5, 3
"""Samples of the last measurement where there is no time for more: of one request, of a whole stream."""
ALL_CORES = 0.3
"""Of the time that is left under ``serial``, for the process that uses all cores."""
LOADING = 2.0
"""Seconds to load a model that no device holds, before any placement of it was."""
NO_ROOM, DISTURBED = "the budget has no room for it", "other work disturbed every run of it"
STREAM_SHARE, SHORTEST_STREAM = 0.02, 8
"""Of the budget, for one stream on one device; and the fewest requests of one, however slow the model is."""


@dataclass
class _Alone:
    """Single devices that run the whole model: those that are allowed to, and those that pins forbid."""

    allowed: dict[str, Candidate] = field(default_factory=dict)
    forbidden: dict[str, Candidate] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)

    @property
    def all(self) -> dict[str, Candidate]:
        return {**self.allowed, **self.forbidden}


class Job:
    """One call of :func:`optimize`."""

    def __init__(
        self,
        path: str | Path,
        devices: tuple[DeviceSpec, ...],
        shapes: Mapping[str, Sequence[int]] | Iterable[str],
        spending: Spending,
        model: ExecutionModel,
        clock: str,
        tolerance: Tolerance | None,
        samples: int,
        seed: int,
        say: Callable[[str], None],
        by: Any,
    ) -> None:
        self.path, self.devices, self.shapes, self.model, self.by = path, devices, shapes, model, by
        self.spending, self.tolerance, self.samples, self.seed, self.say = (
            spending,
            tolerance,
            samples,
            seed,
            say,
        )
        self.clock = Clock(clock, spending, say)
        self.serial = isinstance(model, Serial)
        self.stream = isinstance(model, Pipeline)

    def run(
        self,
        method: str,
        parameters: Mapping[str, Any] | None,
        cache: Cache | None,
        pins: Sequence[str],
        forbids: Sequence[str],
    ) -> Optimized:
        self.clock.look()
        self.say("profiling: what every op takes on every device")
        cores = overlapping_cores(self.devices)
        session, placer = self._begin(None if self.serial else cores, method, parameters)
        with session:
            with self.spending.phase("profiling"):
                profile = self._profile(cache, session)
            plain = profile.problem(model=self.model).constrained(pins=pins, forbids=forbids)
            with self.spending.phase("loading devices"):
                alone = self._alone(session, profile, plain)
            loading = max((candidate.seconds_to_load for candidate in alone.all.values()), default=LOADING)
            with self.spending.phase("loading devices"):
                run_seconds = self._elapsed(session, profile, alone)
            known = run_seconds or {spec.name: profile.profiles[spec.name].wall for spec in self.devices}
            self.clock.run_seconds = min(known.values())
            items = self._items(self.clock.run_seconds)
            self._say_what_is_needed(run_seconds, loading)
            work = Search(
                self.by,
                session,
                plain,
                placer,
                self.spending,
                reserved=partial(self._reserved, run_seconds, items),
                loading=loading,
                items=items,
                most=1 if alone.failed and not alone.all else math.inf,
                seed=self.seed,
                say=self.say,
            )
            apart = any(spec.node for spec in self.devices)
            fit = OverlapFit(wait=0.0) if self.serial else (profile.calls or OverlapFit(links=apart))
            bounded = work.round(fit, 1)
            if not work.interrupted and work.tried and work.has_time:
                fit = work.fitted(fit)
                bounded = work.round(fit, 2) or bounded
            if work.broken and not work.tried:
                raise RunError(
                    f"none of the {len(work.broken)} placements that were found could be run, so that nothing is known "
                    f"of them: {work.broken[0]}"
                )
            with self.spending.phase("screening"):
                screened, best, first = self._screen(session, work.tried, alone, run_seconds)
            self.say("measuring the best plan again, along with each device alone and all cores")
            with self.spending.phase("measuring"):
                reserved = self._reserved(run_seconds, items, 1 if best else 0)
                lines = self._final(session, alone, first, best, cores, items, loading, reserved)
            engine, used = session.engine, session.worker.cores
        return self._result(alone, work, fit, bounded, screened, best, first, lines, engine, used)

    def _profile(self, cache: Cache | None, session: Session) -> ModelProfile:
        given = {"cache": cache, "links_too": False, "session": session}
        for share in (PROFILING, PROFILING_BUSY):
            try:
                return self.by.profile_model(
                    self.path,
                    self.devices,
                    self.shapes,
                    clock=self.clock.name,
                    until=self.spending.at(share),
                    **given,
                )
            except BusyError as error:
                self.clock.switch(session, error)
        raise AssertionError

    # -- the steps ---------------------------------------------------------------------------------------------

    def _open(self, cores: Sequence[int] | None) -> Session:
        session: Session = self.by.open_session(
            self.path, self.devices, self.shapes, cores=cores, clock=self.clock.name, tolerance=self.tolerance
        )
        session.stream = self.stream
        return session

    def _begin(
        self, cores: Sequence[int] | None, method: str, parameters: Mapping[str, Any] | None
    ) -> tuple[Session, Placer]:
        """The worker opened, and meanwhile, in this process, what the placer needs imported and made ready."""

        def warm() -> tuple[Placer, int, float]:
            began = monotonic()
            import scipy.optimize  # noqa: F401 - the fit of costs needs it, and there its import is not in the plan

            placer = api.configured(method, parameters)
            chosen = f":{self.model.contiguity}" if isinstance(self.model, Pipeline) else ""
            with compilations() as compiled, contextlib.suppress(UnsupportedError):
                api.warm(placer, [f"{self.model.name}{chosen}"], cluster=f"{len(self.devices)}acc")
            return placer, compiled.count, monotonic() - began

        # The worker is this thread's: it ends with the thread that started it.
        with self.spending.phase("opening"), ThreadPoolExecutor(1) as pool:
            warming = pool.submit(warm)
            session = self._open(cores)
            try:
                placer, compiled, seconds = warming.result()
            except BaseException:
                session.close()
                raise
            if compiled:  # once for a machine, and said: no part of the budget
                self.spending.free(seconds)
        if any(spec.node for spec in self.devices):  # nor is waiting for other machines to start processes
            self.spending.free(self.spending.phases["opening"])
        return session, placer

    def _alone(self, session: Session, profile: ModelProfile, plain: Problem) -> _Alone:
        """Every device alone that can run the whole model, and rightly; of equal ones the first. There may be none."""
        found, seen = _Alone(), set()
        for d, spec in enumerate(self.devices):
            if spec.kind in seen or profile.profiles[spec.name].unsupported:
                continue
            seen.add(spec.kind)
            try:
                candidate = session.alone(spec.name)
                candidate.verify()
            except BusyError:
                raise
            except RunError as error:
                if not session.worker.alive:
                    raise
                found.failed[spec.name] = str(error)
                self.say(str(error))
                continue
            within = bool(plain.allowed[:, d].all())
            (found.allowed if within else found.forbidden)[spec.name] = candidate
        if not found.all:
            self.say(
                "no device can run the whole model alone, so that there is nothing to compare a plan with"
            )
        return found

    def _elapsed(self, session: Session, profile: ModelProfile, alone: _Alone) -> dict[str, float]:
        """Seconds on the clock of a run on each device: on a busy machine they are more than those on the core."""
        found = {name: profile.profiles[name].wall for name in alone.all}
        if self.clock.name == "core":
            for name, candidate in alone.all.items():
                began = monotonic()
                session.measure([candidate], samples=1, until=began, fewest=1)
                found[name] = max(found[name], (monotonic() - began) / WARMED)
        return found

    def _items(self, run_seconds: float) -> int:
        """Requests of a stream: fewer of a slow model, so that the budget has room for streams."""
        if not self.stream:
            return 1
        room = int(STREAM_SHARE * self.spending.budget / max(run_seconds, 1e-9))
        return max(SHORTEST_STREAM, min(STREAM, room))

    def _say_what_is_needed(self, run_seconds: Mapping[str, float], loading: float) -> None:
        """Where even to measure the devices alone is more than the budget has."""
        needed = self.spending.seconds + FEWEST_AT_ALL * WARMED * sum(run_seconds.values())
        if needed > self.spending.budget:
            self.spending.needed = needed
            self.say(
                f"this model needs at least {needed:.0f} s here (it takes {loading:.1f} s to compile, "
                f"{self.clock.run_seconds:.2g} s to run), more than the budget of {self.spending.budget:g} s"
            )

    def _reserved(self, run_seconds: Mapping[str, float], items: int, placements: int) -> float:
        """Seconds for measuring so many placements in the end: all of them a few times, the best one again."""
        alone, placed = WARMED * sum(run_seconds.values()), WARMED * self.clock.run_seconds * items
        final = FEWEST_AT_ALL * (alone + (placed if placements else 0.0))
        return final + (FEWEST_SCREENING * (alone + placements * placed) if placements > 1 else 0.0)

    def _screen(
        self,
        session: Session,
        tried: Sequence[Tried],
        alone: _Alone,
        run_seconds: Mapping[str, float],
    ) -> tuple[dict[str, float], Tried | None, str]:
        """A few samples of everything, in turns: the best placement and the best single device, if there is one.

        Where there is nothing to choose from, or no time, what is known of the devices will do.
        """
        if not alone.all:
            return {}, tried[0] if tried else None, ""
        short = self.spending.left < 2 * FEWEST_SCREENING * WARMED * sum(run_seconds.values())
        if not tried or (len(tried) == 1 and short):
            first = min(alone.allowed or alone.all, key=lambda name: run_seconds[name])
            return {}, tried[0] if tried else None, first
        self.say(f"running {len(tried)} placement{'s' * (len(tried) > 1)}")
        found = self.clock.measure(
            session,
            [*alone.all.values(), *(t.candidate for t in tried)],
            samples=FEWEST_SCREENING if self.stream else SCREENING,
            until=self.spending.at(SCREENING_SHARE),
            fewest=2 if self.stream else FEWEST_SCREENING,
        )
        medians = [m.median for m in found if m is not None]
        count = len(alone.all)
        screened = dict(zip([f"{name} alone" for name in alone.all], medians[:count], strict=True))
        screened |= dict(zip([t.name for t in tried], medians[count:], strict=True))
        best = min(tried, key=lambda t: screened[t.name]) if tried else None
        return screened, best, min(alone.allowed or alone.all, key=lambda name: screened[f"{name} alone"])

    def _final(
        self,
        session: Session,
        alone: _Alone,
        first: str,
        best: Tried | None,
        cores: Sequence[int],
        items: int,
        loading: float,
        reserved: float,
    ) -> tuple[Line, ...]:
        order = sorted(alone.all, key=lambda name: name != first)
        running: list[tuple[str, Candidate]] = []
        for name in order:
            against = " (against the pins)" if name in alone.forbidden and name != first else ""
            running.append((f"{name} alone{against}", alone.all[name]))
        missing = [Line(f"{name} alone", None, None, why) for name, why in alone.failed.items()]
        precision = next(spec.precision for spec in self.devices if first in ("", spec.name))
        wanted: list[tuple[str, str, dict[str, Any]]] = []
        extra: list[Candidate] = []
        if self.serial:
            wanted += self.by.serial_lines(self.devices)
        elif first and all(spec.plugin.startswith("cpu") for spec in self.devices):
            wanted += self.by.all_cores_lines(cores, precision, stream=self.stream)
        for name, how, options in wanted:
            if "items" in options:
                options["items"] = items
            runs = (1 + FEWEST_AT_ALL) * WARMED * self.clock.run_seconds * options.get("items", 1)
            if self.spending.left < loading + reserved + runs:
                missing.append(Line(name, None, None, NO_ROOM))
                continue
            try:
                candidate = session.load(how, **options)
                candidate.verify()
                running.append((name, candidate))
                extra.append(candidate)
                reserved += runs
            except BusyError:
                raise
            except RunError as error:
                if not session.worker.alive:
                    raise
                missing.append(Line(name, None, None, str(error)))
        if best is not None:
            running.append(("best plan", best.candidate))
        if self.serial and first:
            missing += self._all_cores(cores, precision, loading, reserved)
        measured = self.clock.measure(
            session,
            [c for _, c in running],
            samples=self.samples,
            until=self.spending.end,
            fewest=FEWEST_STREAMS if self.stream else FEWEST,
            optional=extra,
        )
        found = [
            Line(name, taken, candidate.verification, "" if taken else DISTURBED, candidate.latency())
            for (name, candidate), taken in zip(running, measured, strict=True)
        ]
        return (*found[: len(alone.all)], *missing, *found[len(alone.all) :])

    def _all_cores(self, cores: Sequence[int], precision: str, loading: float, reserved: float) -> list[Line]:
        """Under ``serial`` all runs on one core: OpenVINO on all of them needs a process of its own."""
        if len(cores) < 2 or not all(spec.plugin.startswith("cpu") for spec in self.devices):
            return []
        ((name, how, options),) = self.by.all_cores_lines(cores, precision, stream=False)
        runs = (1 + FEWEST_AT_ALL) * WARMED * self.clock.run_seconds + reserved
        if self.spending.left < self.spending.phases.get("opening", 0.0) + 2 * loading + runs:
            return [Line(name, None, None, NO_ROOM)]
        with self._open(cores) as session:
            candidate = session.load(how, **options)
            until = self.spending.at(ALL_CORES)
            (measured,) = self.clock.measure(
                session, [candidate], samples=self.samples, until=until, fewest=FEWEST_AT_ALL
            )
            return [Line(name, measured, candidate.verification)]

    def _result(
        self,
        alone: _Alone,
        work: Search,
        fit: OverlapFit,
        bounded: Solution | None,
        screened: Mapping[str, float],
        best: Tried | None,
        first: str,
        lines: tuple[Line, ...],
        engine: Mapping[str, str],
        used: tuple[int, ...],
    ) -> Optimized:
        found = next((line.measurement for line in lines if line.name == "best plan"), None)
        single = next((line.measurement for line in lines if line.name == f"{first} alone"), None)
        pays = found is not None and (single is None or found.faster_than(single))
        problem = fit.applied(work.plain)
        if first not in alone.allowed and best is None:
            reason = f" ({work.left_out[0]})" if work.left_out else ""
            which = "that keeps to the pins " if first else ""
            raise RunError(
                f"no placement {which}was run{reason}"
                + ("" if first else ", and no device runs the model alone")
            )
        placed = best is not None and (pays or first not in alone.allowed)
        predicted: float | None = None
        if placed:
            assert best is not None
            chosen = best.placement
            predicted = predict(work.plain, best.pieces, fit, items=best.candidate.items)
        else:
            chosen = _everything_on(problem, first)
        cost = evaluate(problem, chosen).cost
        if bounded is None:
            bounded = Solution(chosen, cost, 0.0, "nothing", work.placer.name)
        solution = replace(
            bounded,
            placement=chosen,
            cost=cost,
            bound=min(bounded.bound, cost),
            found_by=best.name if best is not None and placed else "single",
        )
        measured = found if placed and found is not None else single
        if measured is None:
            raise RunError("other work disturbed every run of the plan: stop it, or try later")
        known: dict[str, Any] = {"cost": measured.median, **measured.document()}
        latency = next((line.latency for line in lines if line.name == "best plan"), None)
        if placed and latency is not None:
            known["latency"] = latency._asdict()
        known["lines"] = [
            {"name": line.name, "why": line.why}
            | ({} if line.measurement is None else line.measurement.document())
            for line in lines
        ]
        plan = Plan.from_solution(
            problem,
            solution,
            measured=known,
            shapes=parse_shapes(self.shapes),
            values=Given(self.shapes).constants,
        )
        more: dict[str, Any] = {} if self.tolerance is None else {"tolerance": self.tolerance.text}
        if placed and best is not None and not self.serial:  # run it later as it was measured
            more["pieces"] = [[piece.device, list(piece.ops)] for piece in best.pieces]
        return Optimized(
            Plan({**plan.document, **more}),
            lines,
            first,
            pays,
            predicted,
            fit,
            screened,
            self.model.name,
            used,
            engine,
            self.spending.seconds,
            self.spending.budget,
            dict(self.spending.phases),
            tuple(work.left_out),
            "" if self.tolerance is None else self.tolerance.text,
        )


def _everything_on(problem: Problem, device: str) -> Placement:
    import numpy as np

    return Placement(np.full(problem.n, problem.cluster.index[device], np.int32))
