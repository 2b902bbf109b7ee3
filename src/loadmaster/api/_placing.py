"""Placers run on problems: one, several side by side, and their kernels compiled ahead of time."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import fields, replace
from itertools import count
from typing import Any, NamedTuple, cast, get_type_hints

import msgspec
import numpy as np

from loadmaster.api._machines import machines
from loadmaster.api._models import problem
from loadmaster.compiling import compilations, interruptible
from loadmaster.errors import InputError, NoPlacementError, UnsupportedError
from loadmaster.files import shown
from loadmaster.graph import layered
from loadmaster.hardware import Cluster
from loadmaster.placers import get_placer
from loadmaster.placers import parameters as parameters_of
from loadmaster.placers.frame.coarsened import place_coarse
from loadmaster.placers.frame.placer import Placer, Portfolio
from loadmaster.placers.frame.search import Budget, ProgressCallback
from loadmaster.placers.frame.searcher import Searcher
from loadmaster.problem import Evaluator, ExecutionModel, Placement, Problem, Solution, evaluate
from loadmaster.problem.coarsening import Coarsening
from loadmaster.problem.coarsening import coarsen as make_groups

DEFAULT_METHOD = "auto"
DEFAULT_SECONDS = 30.0
SAMPLE = 1000
"""Ops by which it is seen which devices are alike, where that is no more than a warm-up."""


def place(
    problem: Problem,
    method: str | Placer = DEFAULT_METHOD,
    *,
    budget: float | None = None,
    evaluations: int | None = None,
    seed: int = 0,
    start: Placement | None = None,
    parameters: Mapping[str, Any] | None = None,
    coarsen: str | Coarsening | None = None,
    evaluator: Evaluator | None = None,
    on_progress: ProgressCallback | None = None,
    on: str | None = None,
    workers: int | None = None,
) -> Solution:
    """The best placement that a method finds.

    Parameters
    ----------
    budget : seconds; 30 if nothing is given, no limit if only ``evaluations`` is.
    evaluations : the maximum number of evaluations; such a run repeats exactly for a seed.
    start : a placement to start from.
    parameters : hyper-parameters of the method, by name.
    coarsen : rules that put ops into groups, e.g. ``"constants,chain,matching:1000"``, or the groups
        themselves: the method places groups; cost and bound are those of the full problem
        (:mod:`loadmaster.problem.coarsening`).
    evaluator : what determines costs instead of the simulation, e.g. a
        :class:`~loadmaster.runtime.MeasuredEvaluator`; not with ``coarsen``.
    on_progress : called with the state of the search about ten times a second.
    on : a Ray cluster (:func:`machines`): as many runs as it has cores, with different seeds, that tell one another
        what they find; under a limit of evaluations each has its share and hears nothing, so that the result depends
        on the seed and the number of runs alone. Not with ``evaluator``.
    workers : the number of these runs, if not one per core.

    Raises
    ------
    UnsupportedError : the method cannot handle the problem; the message says why.
    InfeasibleError : no placement satisfies the constraints.
    UndecidedError : the budget was used up before a feasible placement was known.
    """
    placer = configured(method, parameters or {})
    if not 0 <= seed < 2**63:
        raise InputError(f"a seed must be a whole number >= 0 and < 2**63, not {shown(seed)}")
    if coarsen is not None and evaluator is not None:
        raise InputError("an evaluator learns the costs of ops, so it cannot be used with coarsen")
    groups = make_groups(problem, coarsen) if isinstance(coarsen, str) else coarsen
    _require_support(placer, groups.coarse if groups else problem)
    if budget is None and evaluations is None:
        budget = DEFAULT_SECONDS
    limits = Budget(budget, evaluations)
    if workers is not None and on is None:
        raise InputError(
            f"{workers} workers: they are those of a cluster, so give its address", option="--on"
        )
    try:
        if on is not None:
            if evaluator is not None:
                raise InputError("what measures costs cannot be sent to a cluster: place without on")
            from loadmaster.api._together import Job, place_together

            job = Job(problem, placer, groups, start, budget, evaluations, seed, workers or 0)
            return place_together(on, job, place=place, warm=warm_for, on_progress=on_progress)
        if budget is not None:
            # What an interrupt is answered with comes first, and is waited for.
            interruptible(lambda left: _warm_answer(problem), finish=True)
            interruptible(lambda left: _warm_up(placer, problem, left))
        if groups is not None:
            return place_coarse(
                placer, groups, budget=limits, seed=seed, start=start, on_progress=on_progress
            )
        return placer.place(
            problem, budget=limits, seed=seed, start=start, evaluator=evaluator, on_progress=on_progress
        )
    except KeyboardInterrupt:
        # Nothing was known yet (kernels were being compiled, say): the best single device is known at once.
        found = get_placer("single").place(
            problem, budget=Budget(seconds=1.0), seed=seed, start=start, evaluator=evaluator
        )
        return replace(found, method=placer.name, parameters=parameters_of(placer), stopped="interrupted")


def warm_for(placer: Placer, problem: Problem) -> None:
    """Load or compile all that placing a problem needs."""
    _warm_answer(problem)
    _warm_up(placer, problem)


def _warm_answer(problem: Problem) -> None:
    """Compile what the best single device takes, and its evaluation."""
    _warm_up(get_placer("single"), problem)
    key = ("evaluate", problem.model, problem.devices)
    if key not in _warm:
        tiny = _tiny(problem)
        evaluate(tiny, get_placer("single").place(tiny, budget=Budget(evaluations=1)).placement)
        # Where memory is short, what does not fit is moved.
        room = np.full(tiny.devices, max(tiny.n / tiny.devices + 4.0, tiny.n / 2 + 2.0))
        with suppress(NoPlacementError):
            short = replace(tiny, memory=np.ones(tiny.n), capacity=room)
            get_placer("single").place(short, budget=Budget(evaluations=1))
        _warm.add(key)


def _warm_up(placer: Placer, problem: Problem, left: Callable[[], bool] = lambda: False) -> None:
    """Place a tiny problem of the same kind, so that loading or compiling kernels does not count against the budget.

    left : whether nobody needs it any more.
    """
    if isinstance(placer, Portfolio):
        for member in placer.members(problem):
            _warm_up(member, problem, left)
        return
    key = (placer.name, problem.model, problem.devices)
    if key in _warm or left():
        return
    tiny = _tiny(problem, placer.warm_up_ops if isinstance(placer, Searcher) else Searcher.warm_up_ops)
    # Training on it must leave no files behind.
    files = {field.name: "" for field in fields(cast(Any, placer)) if field.name in ("checkpoint", "log_dir")}
    placer = cast(Placer, replace(cast(Any, placer), **files))
    if placer.supports(tiny) is None:
        enough = placer.warm_up if isinstance(placer, Searcher) else None
        placer.place(tiny, budget=Budget(evaluations=enough))
    _warm.add(key)


def _tiny(problem: Problem, ops: int = Searcher.warm_up_ops) -> Problem:
    """A problem of a few ops on the same devices, alike where they are alike, under the same model."""
    graph = layered(ops, width=4)
    rng = np.random.default_rng(0)
    _, kind = np.unique(problem.time[:SAMPLE], axis=1, return_inverse=True)
    kind = kind.reshape(-1)
    between = np.ix_(kind, kind)
    # Numbers without pattern, so that no bound is met at once and every part of the method has its turn.
    return Problem.make(
        graph,
        problem.cluster,
        problem.model,
        time=(0.5 + rng.random((graph.n, problem.devices)))[:, kind],
        memory=np.zeros(graph.n),
        size=rng.random(graph.tensors),
        latency=rng.random((problem.devices, problem.devices))[between],
        rate=rng.random((problem.devices, problem.devices))[between],
    )


_warm: set[tuple[str, ExecutionModel, int]] = set()


class Warmed(NamedTuple):
    """What was made ready for an execution model: its text, kernels that had to be compiled, and seconds."""

    model: str
    kernels: int
    seconds: float


def warm(
    method: str | Placer = DEFAULT_METHOD,
    models: Iterable[str] = (
        "serial",
        "concurrent",
        "pipeline",
        "pipeline:chain",
        "pipeline:device",
        "offload",
    ),
    *,
    cluster: str | Cluster | None = None,
    on_start: Callable[[str], None] = lambda model: None,
) -> list[Warmed]:
    """Compile ahead of time what a method needs, for each of some execution models that it supports.

    The kernels are kept beside the modules (or where ``NUMBA_CACHE_DIR`` says), for all later processes. A tiny
    problem is placed and evaluated on the cluster (by default ``2acc+1cpu``); nothing else is done. Some kernels are
    made for a number of devices, so that it matters how many the cluster has.

    Raises
    ------
    UnsupportedError : the method supports none of the models.
    """
    placer, done, reason = configured(method), list[Warmed](), ""
    for text in models:
        example = problem("zoo:layered-240?width=4", cluster, model=text)
        why = placer.supports(example)
        if why is not None:
            reason = reason or why
            continue
        on_start(text)
        began = time.perf_counter()
        with compilations() as compiled:
            _warm_answer(example)
            _warm_up(placer, example)
        done.append(Warmed(text, compiled.count, time.perf_counter() - began))
    if not done:
        raise UnsupportedError(f"the method {placer.name} supports none of these models: {reason}")
    return done


def compare(
    problem: Problem,
    methods: Sequence[str | Placer],
    *,
    budget: float | None = None,
    evaluations: int | None = None,
    seed: int = 0,
    coarsen: str | Coarsening | None = None,
    on_progress: ProgressCallback | None = None,
    on: str | None = None,
    on_done: Callable[[int], None] = lambda count: None,
) -> list[Solution | NoPlacementError]:
    """What each method finds within the same budget, in the order of the methods.

    A method that finds no feasible placement gives its error in place of a solution; if none finds any, the
    first error is raised. An interrupt ends the comparison after the method that it stopped. ``on`` is a Ray cluster
    (:func:`machines`): each method has a core of it to itself, and ``on_done`` is told how many have ended.
    """
    placers = [configured(method) for method in methods]
    if not placers:
        raise InputError("there is no method to compare")
    groups = make_groups(problem, coarsen) if isinstance(coarsen, str) else coarsen
    for placer in placers:
        _require_support(placer, groups.coarse if groups else problem)
    results: list[Solution | NoPlacementError] = []
    if on is not None:
        with machines(on) as by:
            ended = count(1)
            found = by.run_tasks(
                _compared,
                [(placer,) for placer in placers],
                shared=(problem, budget, evaluations, seed, groups),
                ended=lambda task, result: on_done(next(ended)),
            )
        for number in range(len(placers)):
            if number not in found:  # interrupted
                break
            if not isinstance(found[number], Solution | NoPlacementError):
                raise found[number]
            results.append(found[number])
        if not results:
            raise KeyboardInterrupt
        placers = []
    for placer in placers:
        try:
            solution = place(
                problem,
                placer,
                budget=budget,
                evaluations=evaluations,
                seed=seed,
                coarsen=groups,
                on_progress=on_progress,
            )
        except NoPlacementError as error:
            results.append(error)
            continue
        results.append(solution)
        if solution.stopped == "interrupted":
            break
    errors = [result for result in results if isinstance(result, NoPlacementError)]
    if len(errors) == len(results):
        raise errors[0]
    return results


def _compared(
    problem: Problem,
    budget: float | None,
    evaluations: int | None,
    seed: int,
    groups: Coarsening | None,
    placer: Placer,
) -> Solution:
    """One row of a comparison, on whatever machine."""
    return place(problem, placer, budget=budget, evaluations=evaluations, seed=seed, coarsen=groups)


def configured(method: str | Placer, parameters: Mapping[str, Any] | None = None) -> Placer:
    """The placer called ``method`` with some hyper-parameters changed; strings are parsed as the field's type.

    Raises
    ------
    InputError : the method or a parameter is unknown, or a value has the wrong type.
    """
    placer = get_placer(method) if isinstance(method, str) else method
    instance = cast(Any, placer)
    hints = get_type_hints(type(placer))
    known = [field.name for field in fields(instance)]
    changes = {}
    for key, value in (parameters or {}).items():
        if key not in known:
            its = f"its parameters are {', '.join(known)}" if known else "it has none"
            raise InputError(f"the method {placer.name} has no parameter {key!r}: {its}")
        try:
            changes[key] = msgspec.convert(value, hints[key], strict=not isinstance(value, str))
        except msgspec.ValidationError as error:
            raise InputError(
                f"the parameter {key}={value!r} of the method {placer.name} is invalid: {error}"
            ) from None
    return cast(Placer, replace(instance, **changes))


def _require_support(placer: Placer, problem: Problem) -> None:
    reason = placer.supports(problem)
    if reason is not None:
        raise UnsupportedError(f"the method {placer.name} cannot place this problem: {reason}")
