"""The command ``split``: stages of a PyTorch model for the ranks of a pipeline."""

from __future__ import annotations

import math
import re
import sys
from contextlib import redirect_stdout
from typing import TYPE_CHECKING, Annotated, Any

import typer

from loadmaster.cli._options import Json, ReportFile, Seed, read_seconds
from loadmaster.cli._output import print_result, say
from loadmaster.cli._plans import write_report
from loadmaster.cli._startup import announce_compiling, start_numba
from loadmaster.errors import InputError

if TYPE_CHECKING:
    from rich.console import RenderableType

    from loadmaster.hardware import Link

__all__ = ["read_link", "read_size", "read_speeds", "split"]

SIZES = {"": 1, "k": 1e3, "m": 1e6, "g": 1e9, "t": 1e12, "ki": 2**10, "mi": 2**20, "gi": 2**30, "ti": 2**40}


def split(
    model: Annotated[
        str,
        typer.Argument(
            metavar="FILE.py:FUNCTION",
            help="Function that returns the module, an example and maybe a loss and a target; or a .pt2 file.",
            show_default=False,
        ),
    ],
    ranks: Annotated[
        int | None, typer.Option(min=1, max=1024, metavar="N", help="Ranks; default: 2, or all of --cluster.")
    ] = None,
    microbatches: Annotated[
        int, typer.Option(min=1, max=4096, metavar="M", help="Microbatches of a step; the example is one.")
    ] = 8,
    schedule: Annotated[str, typer.Option(metavar="1f1b|gpipe", help="Schedule of the engine.")] = "1f1b",
    granularity: Annotated[
        str, typer.Option(metavar="layer|op", help="Keep layers whole, or divide them between ops.")
    ] = "layer",
    cluster: Annotated[
        str | None,
        typer.Option(
            metavar="C", help="Devices that are not here: a preset or a TOML file; times are estimated."
        ),
    ] = None,
    device: Annotated[
        str | None,
        typer.Option(metavar="cpu|cuda", help="PyTorch device to measure on; default: the model's."),
    ] = None,
    speeds: Annotated[
        str | None, typer.Option(metavar="1,2,…", help="Speeds of the ranks, relative to this machine.")
    ] = None,
    memory: Annotated[
        str | None, typer.Option(metavar="SIZE", help="Memory of each rank: 500MB, 16GiB; default: no limit.")
    ] = None,
    link: Annotated[
        str | None,
        typer.Option(
            metavar="RATE[,TIME]", help="Link between ranks: 100Mbit/s, 10GB/s,20us; default: free."
        ),
    ] = None,
    optimizer_state: Annotated[
        float,
        typer.Option(
            min=0.0, metavar="X", help="Optimizer state as a multiple of the parameters: 2 for Adam."
        ),
    ] = 2.0,
    method: Annotated[
        str, typer.Option(metavar="NAME", help="Placement method; see 'loadmaster methods'.")
    ] = "auto",
    budget: Annotated[str, typer.Option(metavar="TIME", help="Search time: 500ms, 60s, 2m.")] = "10s",
    seed: Seed = 0,
    output: Annotated[
        str | None, typer.Option("--output", "-o", metavar="PLAN", help="Write the plan to this file.")
    ] = None,
    report: ReportFile = None,
    as_json: Json = False,
) -> None:
    """Split a PyTorch model into stages for the ranks of a pipeline, and compare with the usual rules.

    Ops are measured on this machine, or estimated for --cluster.
    """
    seconds, known_speeds = read_seconds(budget), read_speeds(speeds)
    known_link = None if link == "measured" else read_link(link)
    limit = read_size(memory, "--memory")
    if not math.isfinite(optimizer_state):
        raise InputError(f"--optimizer-state must be a number, not {optimizer_state}")
    if cluster is not None and (known_speeds or link is not None or memory is not None):
        raise InputError(
            "--speeds, --memory and --link are for ranks like this machine: --cluster says them itself"
        )
    for name, value, choices in (
        ("--schedule", schedule, ("1f1b", "gpipe")),
        ("--granularity", granularity, ("layer", "op")),
    ):
        if value not in choices:
            raise InputError(f"{name} {value!r} is unknown: choose {' or '.join(choices)}")
    if schedule == "1f1b" and microbatches < (ranks or 2):
        raise InputError(
            f"--microbatches {microbatches} are fewer than the ranks ({ranks or 2}), which 1f1b cannot fill: give at "
            "least as many, or --schedule gpipe"
        )
    start_numba()
    announce_compiling()
    from loadmaster import api
    from loadmaster.files import check_writable
    from loadmaster.report import LiveProgress, describe_search
    from loadmaster.split import split as main_job
    from loadmaster.split import split_document
    from loadmaster.torch import load_source, measure_links

    for path in (output, report):
        if path is not None:
            check_writable(path)
    links: Any = known_link
    # What a model prints is no part of the answer.
    with redirect_stdout(sys.stderr), LiveProgress(describe_search) as progress:
        source = load_source(model)
        if link == "measured":
            say(f"measuring the links between {ranks or 2} ranks …")
            links = measure_links(ranks or 2)
        found = main_job(
            source,
            ranks,
            microbatches=microbatches,
            schedule=schedule,
            granularity=granularity,
            cluster=None if cluster is None else api.cluster(cluster),
            speeds=known_speeds,
            memory=limit,
            links=links,
            device=device,
            optimizer_state=optimizer_state,
            method=method,
            budget=seconds,
            seed=seed,
            say=say,
            on_progress=progress,
        )
    if found.solution.stopped == "interrupted":
        say("interrupted: this is the best split so far")
    if output is not None:
        found.plan().save(output)
    if report is not None:
        write_report(report, found.problem, [found.solution])
    document = split_document(found)

    def tables() -> RenderableType:
        from loadmaster.report import split_tables

        return split_tables(document)

    print_result(document, as_json, tables)


def read_size(text: str | None, option: str) -> float:
    """Bytes: ``500MB``, ``16GiB``, ``1000``; no limit for None."""
    if text is None:
        return float("inf")
    match = re.fullmatch(r"(\d+\.?\d*|\.\d+)\s*([kmgt]i?)?b?", text.strip(), re.IGNORECASE)
    if not match or float(match[1]) <= 0:
        raise InputError(f"{option} {text!r} is not a size: give e.g. 500MB or 16GiB")
    return float(match[1]) * SIZES[(match[2] or "").lower()]


def read_speeds(text: str | None) -> tuple[float, ...]:
    """Numbers above 0, separated by commas."""
    if text is None:
        return ()
    try:
        found = tuple(float(part) for part in text.split(","))
    except ValueError:
        found = ()
    if not found or not all(0 < speed < 1e9 for speed in found):
        raise InputError(f"--speeds {text!r} must be numbers above 0, one for each rank: 1,2")
    return found


def read_link(text: str | None) -> Link | None:
    """``100Mbit/s``, ``10GB/s``, and maybe a latency behind a comma: ``1Gbit/s,50us``."""
    if text is None:
        return None
    from loadmaster.hardware import Link

    rate, _, latency = text.partition(",")
    match = re.fullmatch(r"(\d+\.?\d*|\.\d+)\s*([kmgt]i?)?(bit|b)(/s|ps)?", rate.strip(), re.IGNORECASE)
    late = re.fullmatch(r"(\d+\.?\d*|\.\d+)\s*(us|ms|s)", latency.strip() or "0s")
    if not match or float(match[1]) <= 0 or not late:
        raise InputError(
            f"--link {text!r} is not a link: give e.g. 100Mbit/s, or 10GB/s,20us with its latency"
        )
    bits = match[3].lower() == "bit"
    bandwidth = float(match[1]) * SIZES[(match[2] or "").lower()] / (8 if bits else 1)
    return Link(float(late[1]) * {"us": 1e-6, "ms": 1e-3, "s": 1.0}[late[2]], bandwidth)
