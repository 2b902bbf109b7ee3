"""Commands that run models: ``devices``, ``profile``, ``run``, ``optimize``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from loadmaster.cli._options import Json, ReportFile, Shapes, Values, read_parameters, read_seconds
from loadmaster.cli._output import print_result, say
from loadmaster.cli._plans import write_report

if TYPE_CHECKING:
    from rich.console import RenderableType

__all__ = ["devices", "optimize", "profile", "run"]

Model = Annotated[
    str,
    typer.Argument(
        metavar="MODEL",
        help="A model: OpenVINO (.xml), ONNX or PyTorch (.pt2).",
        show_default=False,
    ),
]
DeviceList = Annotated[
    list[str] | None,
    typer.Option(
        "--device",
        "-d",
        metavar="NAME=cpu:…",
        help="A device, or a TOML file: 'B=cpu:core=1,precision=bf16'.",
    ),
]
CacheFile = Annotated[
    str | None,
    typer.Option(
        "--cache", metavar="FILE", help="Where measurements are kept; by default in the user's cache folder."
    ),
]
Clock = Annotated[
    str,
    typer.Option(
        metavar="wall|core", help="wall: drop disturbed samples. core: time on the core, for busy machines."
    ),
]


def devices(device: DeviceList = None, as_json: Json = False) -> None:
    """List what models can run on here; with --device also check these."""
    from loadmaster import api, report

    document = api.devices(device or ())
    print_result(document, as_json, lambda: report.devices_table(document))


def profile(
    model: Model,
    device: DeviceList = None,
    shape: Shapes = None,
    value: Values = None,
    cache: CacheFile = None,
    refresh: Annotated[bool, typer.Option("--refresh", help="Measure again what the cache knows.")] = False,
    cut_fused: Annotated[
        bool, typer.Option("--cut-fused", help="Let plans cut what a device runs as one.")
    ] = False,
    clock: Clock = "wall",
    output: Annotated[
        str | None,
        typer.Option(
            "--output", "-o", metavar="FILE", help="Write the problem, for 'place' and the other commands."
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Measure what every op takes on every device, and what a cut costs."""
    from loadmaster import api, report
    from loadmaster.files import check_writable, write_atomically
    from loadmaster.plan import problem_document

    specs = api.parse_devices(device or ())
    if output is not None:
        check_writable(output)
    kept = api.cache(cache)
    found = api.profile(
        model, specs, shape or (), values=value or (), cache=kept, refresh=refresh, clock=clock
    )
    document = report.profile_document(found)
    if output is not None:
        problem = found.problem(cut_fused=cut_fused)
        write_atomically(output, (report.to_json(problem_document(problem)) + "\n").encode())
    print_result(document, as_json, lambda: report.profile_tables(document))
    if kept.trouble:
        say(kept.trouble)


def run(
    model: Model,
    plan: Annotated[str, typer.Option("--plan", metavar="PLAN", help="What 'place -o' wrote.")],
    device: DeviceList = None,
    shape: Shapes = None,
    value: Values = None,
    samples: Annotated[int, typer.Option(min=3, help="Undisturbed runs of each.")] = 30,
    baselines: Annotated[
        bool, typer.Option(help="Also run each device alone, and HETERO's own choice.")
    ] = True,
    clock: Clock = "wall",
    output: Annotated[
        str | None,
        typer.Option("--output", "-o", metavar="PLAN", help="Write the plan with what was measured."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Run a plan: check its outputs against the unplaced model, then measure it beside its baselines."""
    from loadmaster import api, report
    from loadmaster.files import check_writable
    from loadmaster.plan import Plan

    loaded = Plan.load(plan)
    specs = api.parse_devices(device) if device else None
    if output is not None:
        check_writable(output)
    document = api.run(
        model,
        loaded,
        specs,
        shape or (),
        values=value or (),
        samples=samples,
        baselines=baselines,
        clock=clock,
    ).document()
    print_result(document, as_json, lambda: report.run_tables(document))
    if output is not None:
        Plan({**loaded.document, "measured": document["measured"]}).save(output)


def optimize(
    model: Model,
    device: Annotated[
        list[str] | None,
        typer.Option(
            "--devices",
            "--device",
            "-d",
            metavar="NAME=cpu:…",
            help="A device, or a TOML file; by default one per core.",
        ),
    ] = None,
    budget: Annotated[
        str, typer.Option(metavar="TIME", help="For everything: profile, place, run.")
    ] = "120s",
    execution: Annotated[
        str, typer.Option("--model", metavar="concurrent|pipeline", help="One request, or a stream.")
    ] = "concurrent",
    method: Annotated[
        str, typer.Option(metavar="NAME", help="What places, before anything is run; e.g. hsdag.")
    ] = "auto",
    set_: Annotated[
        list[str] | None, typer.Option("--set", metavar="NAME=VALUE", help="A parameter of the method.")
    ] = None,
    shape: Shapes = None,
    value: Values = None,
    samples: Annotated[int, typer.Option(min=3, help="Undisturbed runs of each.")] = 30,
    clock: Annotated[
        str,
        typer.Option(
            metavar="auto|wall|core",
            help="wall: drop disturbed samples. core: time on the cores. auto: core if the machine is too busy.",
        ),
    ] = "auto",
    cache: CacheFile = None,
    seed: Annotated[int, typer.Option(min=0)] = 0,
    output: Annotated[
        str, typer.Option("--output", "-o", metavar="PLAN", help="Write the plan to this file.")
    ] = "plan.json",
    report: ReportFile = None,
    as_json: Json = False,
) -> None:
    """Find the placement that is really fastest here: profile, place, run the best few, verify."""
    from loadmaster import api
    from loadmaster import optimize as main_job
    from loadmaster.files import check_writable
    from loadmaster.graph import Given

    specs = api.parse_devices(device) if device else api.one_device_per_core()
    seconds = read_seconds(budget, "--budget")
    assert seconds is not None
    check_writable(output)
    if report is not None:
        check_writable(report)
    kept = api.cache(cache)
    found = main_job.optimize(
        model,
        specs,
        Given(shape or (), value or ()),
        budget=seconds,
        model=execution,
        method=method,
        parameters=read_parameters(set_),
        samples=samples,
        clock=clock,
        cache=kept,
        seed=seed,
        say=say,
    )
    found.plan.save(output)
    if report is not None:
        write_report(
            report,
            found.plan.problem(),
            [found.plan.solution()],
            measured=found.plan.document.get("measured"),
        )
    document = {**found.document(), "plan": output}

    def tables() -> RenderableType:
        from loadmaster.report import optimized_tables

        return optimized_tables(document)

    print_result(document, as_json, tables)
    if kept.trouble:
        say(kept.trouble)
