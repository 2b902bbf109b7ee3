"""Pipelines of PyTorch: stages chosen by Loadmaster, run by ``torch.distributed.pipelining``.

Under torchrun, a training loop of your own::

    from loadmaster.torch import pipeline

    pipe = pipeline(model, "plan.json", example, loss=loss)  # this rank's stage and schedule
    optimizer = torch.optim.AdamW(pipe.parameters())
    for batch, target in data:
        pipe.step(batch, target=target)
        optimizer.step()
        optimizer.zero_grad()

The plan comes from :func:`problem` and :func:`loadmaster.place` (:func:`plan` adds what a run needs to know), or from
the command line. Importing this module imports PyTorch.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch as _torch

from loadmaster.errors import InputError
from loadmaster.graph.torch import Capture, Example, capture
from loadmaster.hardware import Cluster, Device, Link, estimate
from loadmaster.plan import Plan
from loadmaster.problem import ExecutionModel, Problem, Solution, named_model
from loadmaster.runtime.torch import (
    SCHEDULES,
    OpCosts,
    Pipeline,
    Source,
    check_source,
    held_memory,
    load_source,
    measure_links,
    measure_ops,
    open_pipeline,
    run_plan_on_ranks,
)

__all__ = [
    "Capture",
    "Example",
    "OpCosts",
    "Pipeline",
    "Source",
    "capture",
    "load_source",
    "measure",
    "measure_links",
    "pipeline",
    "plan",
    "problem",
    "ranks",
    "run",
]


def pipeline(
    model: Any,
    plan: str | Path | Plan,
    example: Any = None,
    *,
    loss: Callable[..., Any] | None = None,
    microbatches: int | None = None,
    schedule: str | None = None,
    scale_gradients: bool = True,
    seed: int = 0,
    device: Any = None,
) -> Pipeline:
    """This rank's stage of a model, and its schedule.

    Call it on every rank, under torchrun, with the same model. The process group is made if there is none. Weights of
    other ranks are free as soon as the model itself is deleted.

    Parameters
    ----------
    model : a module, an ``ExportedProgram``, a ``.pt2`` file, or a :class:`Capture`.
    plan : a plan for this model, or its file.
    example : for a module, inputs of one microbatch.
    loss : ``loss(result, target)``, or ``loss(result)`` where steps are given no target. With a loss the model is
        captured for training, without for inference.
    microbatches, schedule : by default what the plan says; ``gpipe``, ``1f1b`` or ``interleaved``.
    scale_gradients : divide gradients by the number of microbatches, as a loss that is a mean needs.
    seed : of dropout and other random ops, which draw the same numbers wherever they run.
    device : by default this rank's GPU, or the CPU.

    Raises
    ------
    InputError : the plan is for another model or another version of PyTorch, there are too few or too many ranks, or
        the model cannot be exported.
    """
    found = model if isinstance(model, Capture) else capture(model, example, training=loss is not None)
    return open_pipeline(
        found,
        plan if isinstance(plan, Plan) else Plan.load(plan),
        microbatches=microbatches,
        schedule=schedule,
        loss=loss,
        scale_gradients=scale_gradients,
        seed=seed,
        device=device,
        release=not isinstance(model, Capture),
    )


def ranks(
    count: int,
    *,
    speeds: Sequence[float] = (),
    link: Link | Sequence[Sequence[Link | None]] | None = None,
    memory: float = np.inf,
) -> Cluster:
    """A cluster of ranks, ``rank0`` and so on, for costs that are measured: alike, or of different speeds.

    ``link`` is what a message between two ranks takes: one for all, or a table (:func:`measure_links`); without,
    messages are free. ``memory`` is each rank's, in bytes. :func:`problem` divides measured times by the speeds.
    """
    if count < 1:
        raise InputError(f"there must be at least one rank, not {count}")
    if speeds and len(speeds) != count:
        raise InputError(f"{len(speeds)} speeds are given for {count} ranks")
    names = [f"rank{number}" for number in range(count)]
    devices = [
        Device(name, f"rank of speed {speeds[number]:g}" if speeds else "rank", capacity=memory)
        for number, name in enumerate(names)
    ]
    if link is None or isinstance(link, Link):
        one = link or Link(0.0, np.inf)
        link = [[None if a == b else one for b in range(count)] for a in range(count)]
    return Cluster(f"{count} ranks", tuple(devices), tuple(tuple(row) for row in link))


def problem(
    model: Capture,
    cluster: Cluster,
    execution: str | ExecutionModel = "pipeline:chain",
    *,
    time: Any = None,
    granularity: str = "layer",
    ties: str = "replicate",
    kept: Any = None,
    optimizer_state: float = 2.0,
) -> Problem:
    """The problem of splitting a captured model over ranks.

    Parameters
    ----------
    time : seconds of the ops, (ops,) where all ranks are alike and otherwise (ops, ranks); what :func:`measure`
        returns; or nothing, for the roofline of a cluster that need not be here.
    granularity, ties : see :meth:`Capture.network`.
    kept : (ops,) bytes that ops keep from the forward to the backward pass, per microbatch.
    optimizer_state : size of what the optimizer keeps, as a multiple of the trained parameters: 2 for Adam, 1 for
        momentum, 0 for plain SGD. A rank holds its parameters, their gradients and this, and the results of all
        microbatches of a step, if it makes them.
    """
    network = model.network(granularity, ties=ties)
    provenance = "given op by op"
    if time is None:
        known = estimate(network.graph, cluster)
        time, provenance = known.time, known.text
    elif isinstance(time, OpCosts):
        kept = time.kept_by(model, network.graph) if kept is None else kept
        time, provenance = time.time(model, network.graph), "measured op by op on this machine"
    given = np.asarray(time, np.float64)
    if given.ndim == 1:
        slow = np.array([_speed(device) for device in cluster.devices])
        given = given[:, None] / slow[None, :]
    engine = named_model(execution) if isinstance(execution, str) else execution
    step = int(getattr(engine, "microbatches", 0))  # only a pipeline has some
    held, shared = held_memory(model, network.graph, optimizer_state, step)
    return Problem.make(
        network.graph,
        cluster,
        engine,
        time=given,
        colocation=network.colocation,
        memory=held,
        kept=kept,
        ties=shared if model.training else (),
        provenance="; ".join((provenance, *network.notes)),
    )


def _speed(device: Device) -> float:
    """Of a rank that :func:`ranks` made."""
    _, found, speed = device.kind.partition("rank of speed ")
    return float(speed) if found else 1.0


def measure(
    model: Capture,
    *,
    loss: Callable[..., Any] | None = None,
    target: Any = None,
    device: Any = None,
    on_progress: Callable[[int, int], None] = lambda done, every: None,
) -> OpCosts:
    """What every op takes on this machine, forward and backward, and what it keeps in between; the loss, too.

    Each op runs alone, in CPU time, or by CUDA's events where ``device`` is a GPU.
    """
    return measure_ops(model, loss=loss, target=target, device=device, on_progress=on_progress)


def plan(
    model: Capture,
    problem: Problem,
    solution: Solution,
    *,
    microbatches: int | None = None,
    schedule: str | None = None,
    more: Mapping[str, Any] | None = None,
) -> Plan:
    """The plan of a solution, with the version of PyTorch, the schedule and the microbatches it is to be run with."""
    noted: dict[str, Any] = {"version": _torch.__version__, "training": model.training, **(more or {})}
    if microbatches is not None:
        noted["microbatches"] = int(microbatches)
    if schedule is not None:
        noted["schedule"] = schedule
    return Plan({**Plan.from_solution(problem, solution).document, "torch": noted})


def run(
    model: str,
    plan: str | Path,
    *,
    nproc: int | None = None,
    steps: int = 10,
    microbatches: int | None = None,
    schedule: str | None = None,
    seed: int = 0,
    timeout: float | None = None,
    say: Callable[[str], None] = lambda text: None,
) -> dict[str, Any]:
    """Start ranks with torchrun, verify a plan against the unsplit model, and measure its steps.

    Parameters
    ----------
    model : ``file.py:function`` (:func:`load_source`) or a ``.pt2`` file.
    nproc : ranks to start; by default, and at least, as many as the plan has stages.

    Raises
    ------
    InputError : the model or the plan is wrong, or there are too few ranks.
    WrongOutputError : the split model differs from the unsplit one; nothing was measured.
    WorkerError : a rank died.
    """
    loaded = Plan.load(plan)
    if schedule is not None and schedule not in SCHEDULES:
        raise InputError(f"the schedule {schedule!r} is unknown: choose one of {', '.join(SCHEDULES)}")
    check_source(model)
    graph = loaded.problem().graph
    used = len({int(d) for d in loaded.placement().device[~graph.boundary]})
    if nproc is not None and nproc != used:
        few = "too few" if nproc < used else "more than it needs"
        raise InputError(
            f"{plan}: uses {used} ranks, and {nproc} are {few}: give {used}, or place for {nproc} ranks",
            option="--nproc",
        )
    return run_plan_on_ranks(
        model,
        str(plan),
        used,
        steps=steps,
        microbatches=microbatches,
        schedule=schedule,
        seed=seed,
        timeout=timeout,
        say=say,
    )
