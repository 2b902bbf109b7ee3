"""One search on the cores of a cluster: runs of a placer with different seeds that tell one another what they find.

Under a budget in seconds every core has a run, and one bulletin holds the best placement and bound of all; a run whose
process dies is begun again from there. Under a budget of evaluations each run has its share of them and a seed of its
own and hears nothing from the others, so that the answer follows from the seed and the number of runs alone.
"""

from __future__ import annotations

import math
import threading
import time
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from loadmaster.api._bulletin import PERIOD, Bulletin, Correspondent, Found, Proved
from loadmaster.api._machines import machines
from loadmaster.errors import InfeasibleError, InputError, LoadmasterError, NoPlacementError, RunError
from loadmaster.placers import parameters as parameters_of
from loadmaster.placers.auto import Auto
from loadmaster.placers.frame.board import Board, using
from loadmaster.placers.frame.placer import Placer
from loadmaster.placers.frame.search import Progress, ProgressCallback
from loadmaster.problem import OPTIMAL_GAP, Placement, Point, Problem, Solution, evaluate
from loadmaster.problem.bounds import Bound, lower_bound
from loadmaster.problem.coarsening import Coarsening

__all__ = ["Effort", "Job", "place_together", "seed_of"]

LOOK = 0.5
"""Seconds between two looks at what all runs have found so far."""
GRACE = 3.0
"""Seconds in which runs that were asked to end do so; their placements are known already."""
LATE = 0.1
"""Seconds below which it is not worth while to begin a run."""

Place = Callable[..., Solution]
"""``api.place``, with what a run is given."""


@dataclass(frozen=True)
class Job:
    """What is asked for."""

    problem: Problem
    placer: Placer
    groups: Coarsening | None
    start: Placement | None
    seconds: float | None
    evaluations: int | None
    seed: int
    runs: int

    @property
    def searched(self) -> Problem:
        """What the placer sees."""
        return self.problem if self.groups is None else self.groups.coarse


@dataclass
class Effort:
    """What the exchange took: how often, and seconds of work in the runs and in the process of the bulletin."""

    exchanges: int = 0
    told: float = 0.0
    kept: float = 0.0
    work: float = 0.0
    """Seconds of work of the runs, the exchange included."""
    rate: float = 0.0
    """Evaluations per second of all runs, each by its own time."""


def seed_of(seed: int, run: int) -> int:
    """The seed of a run: the first has the one that was given.

    >>> seed_of(7, 0), seed_of(7, 1) == seed_of(7, 2)
    (7, False)
    """
    if run == 0:
        return seed
    return int(np.random.SeedSequence([seed, run]).generate_state(1, np.uint64)[0] >> np.uint64(1))


def place_together(
    on: str,
    job: Job,
    *,
    place: Place,
    warm: Callable[[Placer, Problem], None],
    on_progress: ProgressCallback | None = None,
    effort: Effort | None = None,
) -> Solution:
    """The best of all runs.

    Parameters
    ----------
    place, warm : ``api.place``, and what compiles the kernels that it needs.
    effort : is told what the exchange took.

    Raises
    ------
    KeyboardInterrupt : nothing was known yet.
    """
    with machines(on) as by:
        cores = by.cores()
        if job.runs > cores and job.seconds is not None:
            raise InputError(
                f"{job.runs} workers: the cluster has {cores} core{'s' * (cores > 1)}, so give at most as many",
                option="--workers",
            )
        job = replace(job, runs=job.runs or cores)
        tell = on_progress or (lambda progress: None)
        if job.evaluations is not None:
            return _counted(by, job, place, tell)
        return _timed(by, job, place, warm, tell, effort or Effort())


# -- a budget in seconds -------------------------------------------------------------------------------------


def _timed(
    by: Any,
    job: Job,
    place: Place,
    warm: Callable[[Placer, Problem], None],
    tell: ProgressCallback,
    effort: Effort,
) -> Solution:
    began = time.perf_counter()
    assert job.seconds is not None
    gap = max(job.placer.gap, 0.0) if isinstance(job.placer, Auto) else OPTIMAL_GAP
    period = min(PERIOD, max(job.seconds / 10, 0.02))
    interrupted = False
    with by.shared_actor(Bulletin, gap, period) as bulletin, by.crew(job.runs) as crew:
        work = crew.scheduled(_run, [(run,) for run in range(job.runs)], shared=(job, bulletin, place, warm))

        def look() -> bool:
            state = bulletin("state")
            if state is not None:
                cost, bound, evaluations = state
                tell(Progress(job.placer.name, time.perf_counter() - began, evaluations, cost, bound))
            _raise_if_infeasible(work.results.values())
            return True

        try:
            work.run(tick=look, every=LOOK)
        except KeyboardInterrupt:
            interrupted = True
            bulletin("close")
            until = time.perf_counter() + GRACE
            while work.drain() and time.perf_counter() < until:
                pass
        found, proved = bulletin("best") or (None, None)
        evaluations = (bulletin("state") or (0, 0, 0))[2]
        effort.exchanges, effort.kept = bulletin("effort") or (0, 0.0)
    results = [work.results[run] for run in sorted(work.results)]
    _raise_if_infeasible(results)
    ended = [result for result in results if isinstance(result, _Ended)]
    for result in ended:
        effort.told += result.told
        effort.work += result.work
        if result.solution is not None and result.solution.seconds > 0:
            effort.rate += result.solution.evaluations / result.solution.seconds
    solutions = [result.solution for result in ended if result.solution is not None]
    left = _from_bulletin(job, found, proved)
    if left is not None and all(left.cost < solution.cost for solution in solutions):
        solutions.append(left)  # of a run that died, or was not waited for
    if not solutions:
        if interrupted:
            raise KeyboardInterrupt
        raise _first_error(results)
    history = _merged([solution.history for solution in solutions], key=lambda point: point.seconds)
    whole = _best(job, solutions, proved if job.groups is None else None)
    if left is not None and (left.cost, left.placement) == (whole.cost, whole.placement):
        whole = replace(whole, found_by=left.found_by)  # a run that only heard of it did not find it
    return replace(
        whole,
        evaluations=max(evaluations, sum(solution.evaluations for solution in solutions)),
        seconds=time.perf_counter() - began,
        history=history,
        stopped="interrupted" if interrupted else "finished" if whole.gap <= gap else whole.stopped,
    )


@dataclass(frozen=True)
class _Ended:
    solution: Solution | None
    told: float
    work: float


def _run(
    job: Job,
    bulletin: Callable[..., Any],
    place: Place,
    warm: Callable[[Placer, Problem], None],
    number: int,
) -> _Ended:
    """One run, in a process of its own."""
    name = f"{number}-{uuid.uuid4().hex}"  # the same number may have been begun before
    warm(job.placer, job.searched)
    assert job.seconds is not None
    left = job.seconds - (bulletin("begin", name) or 0.0)
    if left < min(LATE, job.seconds / 2):
        return _Ended(None, 0.0, 0.0)
    began = time.process_time()
    proved = isinstance(job.placer, Auto)  # it begins with the cheap bounds by itself
    bound = Bound(0.0, "nothing proved in the time") if proved else lower_bound(job.searched)
    gap = max(job.placer.gap, 0.0) if isinstance(job.placer, Auto) else OPTIMAL_GAP
    board = Board(job.searched, bound, gap)
    board.part = (number, job.runs)
    link = _Link(Correspondent(name, board), bulletin)
    with link, using(board):
        solution = place(
            job.problem,
            job.placer,
            budget=left,
            seed=seed_of(job.seed, number),
            start=job.start,
            coarsen=job.groups,
            on_progress=link.note,
        )
        link.evaluations = solution.evaluations
    return _Ended(solution, link.seconds, time.process_time() - began)


class _Link:
    """A thread that exchanges what a board and the bulletin know, again and again until its block ends."""

    def __init__(self, correspondent: Correspondent, bulletin: Callable[..., Any]) -> None:
        self.evaluations = 0
        self.seconds = 0.0
        """Of work."""
        self._correspondent, self._bulletin = correspondent, bulletin
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._go, name="bulletin", daemon=True)

    def note(self, progress: Progress) -> None:
        """How far the run is."""
        self.evaluations = max(self.evaluations, progress.evaluations)

    def __enter__(self) -> _Link:
        self._exchange()  # a run that is begun again begins with the best
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._over.set()
        self._thread.join()
        self._exchange()
        self._bulletin("end", self._correspondent.run)

    def _go(self) -> None:
        while not self._over.wait(self._correspondent.period):
            before = time.thread_time()
            self._exchange()
            self.seconds += time.thread_time() - before

    def _exchange(self) -> None:
        self._correspondent.evaluations = self.evaluations
        self._correspondent.hear(self._bulletin("exchange", self._correspondent.message()))


def _from_bulletin(job: Job, found: Found | None, proved: Proved | None) -> Solution | None:
    if found is None:
        return None
    placement = found.placement if job.groups is None else job.groups.expand(found.placement)
    checked = evaluate(job.problem, placement)
    if checked.violations:  # groups can meet what their ops break
        return None
    bound = lower_bound(job.problem)
    if proved is not None and job.groups is None and proved.bound.value > bound.value:
        bound = proved.bound
    return Solution(
        placement, checked.cost, min(bound.value, checked.cost), bound.name, job.placer.name,
        found_by=found.by, stopped="budget",
    )  # fmt: skip


# -- a budget of evaluations ---------------------------------------------------------------------------------


def _counted(by: Any, job: Job, place: Place, tell: ProgressCallback) -> Solution:
    began = time.perf_counter()
    assert job.evaluations is not None
    shares = [job.evaluations // job.runs + (run < job.evaluations % job.runs) for run in range(job.runs)]
    runs = [(seed_of(job.seed, run), share) for run, share in enumerate(shares) if share]
    ended: list[Solution] = []

    def note(_: int, result: Any) -> None:
        _raise_if_infeasible([result])
        if isinstance(result, Solution):
            ended.append(result)
            cost, bound = min(s.cost for s in ended), max(s.bound for s in ended)
            evaluations = sum(s.evaluations for s in ended)
            note = f"{len(ended)} of {len(runs)} runs"
            tell(Progress(job.placer.name, time.perf_counter() - began, evaluations, cost, bound, note))

    results = by.run_tasks(_share, runs, shared=(job, place), ended=note)
    found = [results[run] for run in sorted(results)]
    solutions = [result for result in found if isinstance(result, Solution)]
    if not solutions:
        if len(results) < len(runs):
            raise KeyboardInterrupt
        raise _first_error(found)
    whole = _best(job, solutions, None)
    return replace(
        whole,
        evaluations=sum(solution.evaluations for solution in solutions),
        seconds=time.perf_counter() - began,
        history=_merged([solution.history for solution in solutions], key=lambda point: point.evaluations),
        stopped="interrupted" if len(results) < len(runs) else whole.stopped,
    )


def _share(job: Job, place: Place, seed: int, evaluations: int) -> Solution:
    return place(
        job.problem,
        job.placer,
        budget=job.seconds,
        evaluations=evaluations,
        seed=seed,
        start=job.start,
        coarsen=job.groups,
    )


# -- the answer ----------------------------------------------------------------------------------------------


def _best(job: Job, solutions: Sequence[Solution], proved: Proved | None) -> Solution:
    """The cheapest, the first of equals, with the best bound of all."""
    best = min(solutions, key=lambda solution: solution.cost)
    tight = max(solutions, key=lambda solution: solution.bound)
    bound, bound_by = tight.bound, tight.bound_by
    if proved is not None and proved.bound.value > bound:
        bound, bound_by = proved.bound.value, proved.bound.name
        if proved.by and proved.by not in bound_by:
            bound_by = f"{bound_by} ({proved.by})"
    settings = {**parameters_of(job.placer), **best.parameters, "workers": job.runs}
    return replace(best, bound=min(bound, best.cost), bound_by=bound_by, seed=job.seed, parameters=settings)


def _merged(histories: Sequence[Sequence[Point]], key: Callable[[Point], float]) -> tuple[Point, ...]:
    """Improvements over the best of all runs so far, with the evaluations of all of them.

    >>> _merged([[Point(1.0, 10, 5.0), Point(3.0, 30, 2.0)], [Point(2.0, 20, 4.0)]], key=lambda p: p.seconds)
    (Point(seconds=1.0, evaluations=10, cost=5.0), Point(seconds=2.0, evaluations=30, cost=4.0), Point(seconds=3.0, evaluations=50, cost=2.0))
    """  # noqa: E501
    points = sorted(
        ((key(point), run, point) for run, history in enumerate(histories) for point in history),
        key=lambda entry: entry[:2],
    )
    made, best, merged = [0] * len(histories), math.inf, []
    for _, run, point in points:
        made[run] = max(made[run], point.evaluations)
        if point.cost < best:
            best = point.cost
            merged.append(Point(point.seconds, sum(made), best))
    return tuple(merged)


def _raise_if_infeasible(results: Any) -> None:
    for result in list(results):
        if isinstance(result, InfeasibleError):  # proved: no other run will find anything
            raise result
        if isinstance(result, LoadmasterError) and not isinstance(result, NoPlacementError):
            raise result


def _first_error(results: Sequence[Any]) -> LoadmasterError:
    errors = [result for result in results if isinstance(result, LoadmasterError)]
    return errors[0] if errors else RunError("no worker of the Ray cluster had time to begin")
