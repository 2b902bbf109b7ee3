"""The options that commands share, and what they make together: a problem to place."""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, get_type_hints

import typer

from loadmaster.cli._startup import announce_compiling, start_numba
from loadmaster.errors import InputError

if TYPE_CHECKING:
    from loadmaster import Placement, Problem

__all__ = [
    "Asked",
    "Coarsen",
    "Evaluations",
    "Forbid",
    "Json",
    "On",
    "Pin",
    "PlanFile",
    "ReportFile",
    "Seed",
    "Shapes",
    "Time",
    "Values",
    "read_parameters",
    "read_seconds",
    "takes_problem",
]

LONGEST = 1e9
"""Seconds (30 years) that can be asked for; beyond, operating systems refuse to wait."""

File = Annotated[
    str,
    typer.Argument(
        metavar="FILE",
        help="ONNX, OpenVINO or PyTorch (.pt2) model, workload, graph or problem file, plan, or zoo:NAME.",
        show_default=False,
    ),
]
PlanFile = Annotated[
    str, typer.Argument(metavar="PLAN", help="Plan file written by 'place -o'.", show_default=False)
]
Shape = Annotated[
    list[str] | None,
    typer.Option(
        "--shape",
        metavar="X=1x3x…",
        help="Shape of a model input; for ONNX also the size of a named dimension.",
    ),
]
Values = Annotated[
    list[str] | None,
    typer.Option(
        "--value", metavar="X=NUMBER", help="Value of a model's input that is the same in every run."
    ),
]
ClusterName = Annotated[
    str | None,
    typer.Option(
        "--cluster",
        metavar="C",
        help="Cluster to place a graph on: a preset (default 2acc+1cpu) or a TOML file.",
    ),
]
CostsFile = Annotated[
    str | None,
    typer.Option(
        "--costs", metavar="FILE", help="Op times for a graph: CSV or JSON table, per op and device."
    ),
]
ScaleTo = Annotated[
    str | None,
    typer.Option(
        "--scale-to", metavar="D=T,…", help="Scale a graph's op times so that they add up to T on device D."
    ),
]
Precision = Annotated[
    str | None,
    typer.Option(metavar="fp32|fp16|…", help="Precision for estimated op times; default: fp32."),
]
ModelName = Annotated[
    str | None,
    typer.Option(
        "--model",
        metavar="serial|concurrent|pipeline|offload",
        help="Execution model; default: pipeline for workload files, else concurrent.",
    ),
]
Contiguity = Annotated[
    str | None,
    typer.Option(metavar="none|device|chain", help="pipeline: contiguity required of each device's ops."),
]
Comm = Annotated[
    str | None,
    typer.Option(metavar="sum|overlap", help="pipeline: transfers add to compute time or overlap with it."),
]
Objective = Annotated[
    str | None, typer.Option(metavar="sum|fw+bw", help="pipeline: 1F1B (sum) or flush (fw+bw) schedule.")
]
Schedule = Annotated[
    str | None,
    typer.Option(
        metavar="event|static|1f1b|gpipe",
        help="concurrent: ops as they become ready (event) or in a fixed order; pipeline: order of microbatches.",
    ),
]
Microbatches = Annotated[
    int | None,
    typer.Option(metavar="M", help="pipeline: the cost is the time of one step of M microbatches."),
]
StagesPerRank = Annotated[
    int | None,
    typer.Option("--stages-per-rank", metavar="V", help="pipeline with microbatches: interleaved stages."),
]
Checkpoint = Annotated[
    str | None,
    typer.Option(
        metavar="never|auto", help="pipeline with microbatches: recompute activations where memory is short."
    ),
]
MaxCalls = Annotated[
    int | None, typer.Option(metavar="Q", help="offload: maximum number of calls per accelerator.")
]
Memory = Annotated[
    str | None,
    typer.Option(metavar="sum|peak", help="concurrent: which memory use must fit: sum of all ops, or peak."),
]
Pin = Annotated[
    list[str] | None,
    typer.Option("--pin", metavar="OPS=DEVICE", help="Pin ops (name or regular expression) to a device."),
]
Forbid = Annotated[
    list[str] | None,
    typer.Option(
        "--forbid", metavar="OPS=DEVICE", help="Keep ops (name or regular expression) off a device."
    ),
]
PinOutputs = Annotated[
    bool, typer.Option("--pin-outputs", help="A model's outputs must go to the host, as its inputs do.")
]
Time = Annotated[
    str | None,
    typer.Option(
        "--budget",
        metavar="TIME",
        help="Search time: 500ms, 60s, 2m, 1h; default: 30s.",
        show_default=False,
    ),
]
Evaluations = Annotated[
    int | None,
    typer.Option(metavar="N", help="Maximum number of evaluations; without --budget there is no time limit."),
]
Coarsen = Annotated[
    str | None,
    typer.Option(
        "--coarsen",
        metavar="RULE,…",
        help="Group ops before placing: colour, chain, constants, zero, scope:N, fused:FILE, matching:N.",
    ),
]
Seed = Annotated[int, typer.Option(help="Random seed.")]
ReportFile = Annotated[
    str | None, typer.Option("--report", metavar="HTML", help="Write an HTML report to this file.")
]
Shapes = Annotated[
    list[str] | None,
    typer.Option(
        "--shape", metavar="X=1x3x…", help="Shape of a model's input; ONNX: or size of a named dimension."
    ),
]
On = Annotated[
    str | None,
    typer.Option(
        "--on",
        metavar="HOST:PORT|local",
        help="Ray cluster: its address, auto, local (this machine), or local:N (N nodes of it).",
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]


@dataclass(frozen=True)
class Asked:
    """What a command was asked to place: a file, and all that makes a problem of it."""

    file: str
    settings: dict[str, Any]

    @property
    def values(self) -> dict[str, Any]:
        """Values of inputs that never change, as given."""
        from loadmaster.graph import Given

        return Given((), self.settings["values"]).constants

    def problem(self) -> Problem:
        """The problem."""
        start_numba()
        announce_compiling()
        from loadmaster import api

        return api.problem(self.file, **self.settings)

    def shapes(self) -> dict[str, tuple[int, ...]]:
        """The sizes given for what a model leaves open."""
        from loadmaster.graph.onnx import parse_shapes

        return parse_shapes(self.settings["shapes"])

    def placement(self, path: str) -> tuple[Problem, Placement]:
        """A placement from a file, and the problem that it refers to."""
        start_numba()
        announce_compiling()
        from loadmaster import api

        return api.read_placement(path, self.file, **self.settings)


def _asked(
    file: File,
    shape: Shape = None,
    value: Values = None,
    cluster: ClusterName = None,
    costs: CostsFile = None,
    scale_to: ScaleTo = None,
    precision: Precision = None,
    model: ModelName = None,
    contiguity: Contiguity = None,
    comm: Comm = None,
    objective: Objective = None,
    schedule: Schedule = None,
    microbatches: Microbatches = None,
    stages_per_rank: StagesPerRank = None,
    checkpoint: Checkpoint = None,
    max_calls: MaxCalls = None,
    memory: Memory = None,
    pin: Pin = None,
    forbid: Forbid = None,
    pin_outputs: PinOutputs = False,
) -> Asked:
    return Asked(
        file,
        {
            "cluster": cluster,
            "model": model,
            "shapes": shape or (),
            "values": value or (),
            "pins": pin or (),
            "forbids": forbid or (),
            "pin_outputs": pin_outputs,
            "costs": costs,
            "scale_to": scale_to,
            "precision": precision,
            "contiguity": contiguity,
            "comm": comm,
            "objective": objective,
            "schedule": schedule,
            "microbatches": microbatches,
            "stages_per_rank": stages_per_rank,
            "checkpoint": checkpoint,
            "max_calls": max_calls,
            "memory": memory,
        },
    )


def takes_problem(command: Callable[..., None]) -> Callable[..., None]:
    """A command whose first parameter is an :class:`Asked`, with the options of a problem in its place."""
    shared = inspect.signature(_asked).parameters
    own = list(inspect.signature(command).parameters.values())[1:]
    hints = get_type_hints(_asked, include_extras=True) | get_type_hints(
        command, localns={"Asked": Asked}, include_extras=True
    )
    parameters = [
        parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY, annotation=hints[parameter.name])
        for parameter in (*shared.values(), *own)
    ]

    @functools.wraps(command)
    def run(**given: Any) -> None:
        command(_asked(**{name: given.pop(name) for name in shared}), **given)

    # Typer reads both.
    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return run


def read_seconds(text: str | None, option: str = "--budget") -> float | None:
    """A time such as ``500ms``, ``60s``, ``2m``, ``1h`` or ``1.5``, in seconds."""
    if text is None:
        return None
    from loadmaster.files import shown

    match = re.fullmatch(r"(\d+\.?\d*|\.\d+)(ms|s|m|h)?", text.strip())
    if not match:
        raise InputError(f"{option} {shown(text)} is not a time: give e.g. 500ms, 60s, 2m or 1h")
    seconds = float(match[1]) * {"ms": 1e-3, None: 1.0, "s": 1.0, "m": 60.0, "h": 3600.0}[match[2]]
    if seconds > LONGEST:
        raise InputError(f"{option} {shown(text)} is too long: give at most {LONGEST:g} seconds")
    return seconds


def read_parameters(assignments: list[str] | None) -> dict[str, str]:
    """What ``--set NAME=VALUE`` says."""
    parameters = {}
    for text in assignments or []:
        key, separator, value = text.partition("=")
        if not separator or not key:
            raise InputError(f"--set {text!r} must be written NAME=VALUE")
        parameters[key] = value
    return parameters
