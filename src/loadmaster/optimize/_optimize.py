"""The main job: profile a model, place it, run the best few placements for real, and keep what is measured best."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from loadmaster import api
from loadmaster.errors import InputError
from loadmaster.graph import Given
from loadmaster.graph.openvino import model_file
from loadmaster.optimize._budget import Spending
from loadmaster.optimize._job import Job
from loadmaster.optimize._result import Optimized
from loadmaster.problem import Concurrent, ExecutionModel, Pipeline, Serial
from loadmaster.runtime import SAMPLES, Cache, Tolerance
from loadmaster.runtime.openvino import DeviceSpec

__all__ = ["MODELS", "optimize"]

MODELS: dict[str, ExecutionModel] = {
    "concurrent": Concurrent(),
    "pipeline": Pipeline(contiguity="chain"),
    "serial": Serial(),
}
"""What can be optimised for: the latency of one request on devices that overlap, the time per request of a stream, the
latency where submodels run one after another, as HETERO has it."""


def optimize(
    path: Any,
    devices: Sequence[DeviceSpec],
    shapes: Mapping[str, Sequence[int]] | Iterable[str] = (),
    *,
    budget: float = 120.0,
    model: str = "concurrent",
    method: str = "auto",
    parameters: Mapping[str, Any] | None = None,
    pins: Iterable[str] = (),
    forbids: Iterable[str] = (),
    tolerance: Tolerance | str | None = None,
    samples: int = SAMPLES,
    clock: str = "auto",
    runtime: str = "openvino",
    on: str | None = None,
    cache: Cache | None = None,
    seed: int = 0,
    example: Any = None,
    began: float | None = None,
    say: Callable[[str], None] = lambda _: None,
) -> Optimized:
    """Profile, place, run, choose by measurement, verify.

    Two rounds: the first plans are traced, what a cut really costs is fitted to the traces, and the second round is
    placed with that. All candidates are then measured in turns, and the winner once more, afresh, beside every single
    device and OpenVINO's own use of all the cores. Ctrl-C while placing goes on with what there is.

    Everything is to be done in ``budget`` seconds: of what profiling leaves a share is for placing, the rest for
    running; what there is no time for is left out, and said. Where compiling alone takes longer than the budget, it
    says how long it needs as soon as it knows.

    Parameters
    ----------
    path : a file, or a model that is in memory, as :func:`loadmaster.load` takes them.
    model : ``concurrent``, ``pipeline`` or ``serial``, OpenVINO's HETERO (a chain of our own where devices are of
        unlike speed).
    method, parameters : what searches on the model of costs; what it finds is run.
    pins, forbids : rules ``"ops=device"``; ops by name or regular expression.
    tolerance : how far what computes in less than f32 may be from the f32 model (:class:`Tolerance`).
    clock : ``wall``, which ends with an error on a busy machine, ``core``, or ``auto``: ``core`` where the machine is
        too busy for ``wall``.
    runtime : one of :data:`loadmaster.runtime.ENGINES`.
    on : the Ray cluster that the devices are in (:func:`loadmaster.api.machines`).
    example : for a ``torch.nn.Module``, an example of its inputs.
    began : the time of ``time.monotonic`` at which the budget began; by default now.

    Raises
    ------
    InputError : the model, a device or a rule is wrong.
    RunError : nothing runs, or the machine is too busy to measure.
    """
    if model not in MODELS:
        raise InputError(
            f"the model {model!r} cannot be run: choose one of {', '.join(MODELS)}", option="--model"
        )
    if len(devices) < 2:
        raise InputError(
            "there is nothing to place on one device: give at least two, e.g. B=cpu", option="--device"
        )
    stated = None if tolerance is None else Tolerance.parse(tolerance)
    execution = MODELS[model]
    if on is not None and isinstance(execution, Pipeline):
        execution = replace(execution, comm="overlap")  # links work while devices do
    spending = Spending(budget, began)
    with model_file(path, Given(shapes), example) as (file, given), api.machines(on, runtime) as by:
        if on is not None:  # starting and finding machines is no part of the budget
            spending.free(spending.seconds)
            by.how_to_run(execution)
        job = Job(
            file,
            tuple(devices),
            given,
            spending,
            execution,
            clock,
            stated,
            samples,
            seed,
            say,
            by,
        )
        return job.run(method, parameters, cache, tuple(pins), tuple(forbids))
