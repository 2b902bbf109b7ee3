"""The options that commands share, and what they make together: a problem to place."""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, get_type_hints

import typer

from loadmaster.cli._startup import start_numba
from loadmaster.errors import InputError

if TYPE_CHECKING:
    from loadmaster import Placement, Problem

__all__ = [
    "Asked",
    "Coarsen",
    "Evaluations",
    "Json",
    "PlanFile",
    "ReportFile",
    "Seed",
    "Shapes",
    "Time",
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
        help="An ONNX or OpenVINO model, a workload, graph or problem file, a plan, or zoo:NAME.",
        show_default=False,
    ),
]
PlanFile = Annotated[
    str, typer.Argument(metavar="PLAN", help="A plan that 'place -o' wrote.", show_default=False)
]
Shape = Annotated[
    list[str] | None,
    typer.Option(
        "--shape", metavar="X=1x3x…", help="Shape of a model's input; ONNX: or size of a named dimension."
    ),
]
ClusterName = Annotated[
    str | None,
    typer.Option(
        "--cluster", metavar="C", help="Devices for a graph: a preset (default 2acc+1cpu) or a TOML file."
    ),
]
CostsFile = Annotated[
    str | None,
    typer.Option(
        "--costs", metavar="FILE", help="Op times for a graph: a CSV or JSON table by op and device."
    ),
]
ScaleTo = Annotated[
    str | None,
    typer.Option(
        "--scale-to", metavar="D=T,…", help="Scale a graph's op times so that all ops take T on device D."
    ),
]
Precision = Annotated[
    str | None,
    typer.Option(metavar="fp32|fp16|…", help="Number format whose peak speed counts; default fp32."),
]
ModelName = Annotated[
    str | None,
    typer.Option(
        "--model",
        metavar="serial|concurrent|pipeline|offload",
        help="Execution model; by default pipeline for workload files, else concurrent.",
    ),
]
Contiguity = Annotated[
    str | None, typer.Option(metavar="none|device|chain", help="pipeline: what a device's ops must form.")
]
Comm = Annotated[
    str | None, typer.Option(metavar="sum|overlap", help="pipeline: communication adds or overlaps.")
]
Objective = Annotated[str | None, typer.Option(metavar="sum|fw+bw", help="pipeline: 1F1B or flush.")]
Schedule = Annotated[
    str | None, typer.Option(metavar="event|static", help="concurrent: ready ops first, or the fixed order.")
]
MaxCalls = Annotated[
    int | None, typer.Option(metavar="Q", help="offload: calls that an accelerator may take.")
]
Memory = Annotated[
    str | None, typer.Option(metavar="sum|peak", help="concurrent: what must fit into a device.")
]
Pin = Annotated[
    list[str] | None,
    typer.Option("--pin", metavar="OPS=DEVICE", help="Ops (name or regular expression) that must go there."),
]
Forbid = Annotated[
    list[str] | None,
    typer.Option(
        "--forbid", metavar="OPS=DEVICE", help="Ops (name or regular expression) that must not go there."
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
        help="Time to search: 500ms, 60s, 2m, 1h. Default 10s.",
        show_default=False,
    ),
]
Evaluations = Annotated[
    int | None,
    typer.Option(
        metavar="N", help="Placements to evaluate at most; without --budget there is no time limit."
    ),
]
Coarsen = Annotated[
    str | None,
    typer.Option(
        "--coarsen",
        metavar="RULE,…",
        help="Place groups of ops: colour, chain, constants, zero, scope:N, fused:FILE, matching:N.",
    ),
]
Seed = Annotated[int, typer.Option(help="Makes a search repeat.")]
ReportFile = Annotated[
    str | None, typer.Option("--report", metavar="HTML", help="Write a report to look at to this file.")
]
Shapes = Annotated[
    list[str] | None,
    typer.Option(
        "--shape", metavar="X=1x3x…", help="Shape of a model's input; ONNX: or size of a named dimension."
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON, for scripts.")]


@dataclass(frozen=True)
class Asked:
    """What a command was asked to place: a file, and all that makes a problem of it."""

    file: str
    settings: dict[str, Any]

    def problem(self) -> Problem:
        """The problem."""
        start_numba()
        from loadmaster import api

        return api.problem(self.file, **self.settings)

    def shapes(self) -> dict[str, tuple[int, ...]]:
        """The sizes given for what a model leaves open."""
        from loadmaster.graph.onnx import parse_shapes

        return parse_shapes(self.settings["shapes"])

    def placement(self, path: str) -> tuple[Problem, Placement]:
        """A placement from a file, and the problem that it refers to."""
        start_numba()
        from loadmaster import api

        return api.read_placement(path, self.file, **self.settings)


def _asked(
    file: File,
    shape: Shape = None,
    cluster: ClusterName = None,
    costs: CostsFile = None,
    scale_to: ScaleTo = None,
    precision: Precision = None,
    model: ModelName = None,
    contiguity: Contiguity = None,
    comm: Comm = None,
    objective: Objective = None,
    schedule: Schedule = None,
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
