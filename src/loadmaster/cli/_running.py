"""Commands that run models: ``devices``, ``profile``, ``run``, ``optimize``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from loadmaster.cli._options import (
    Forbid,
    Json,
    On,
    Pin,
    ReportFile,
    Shapes,
    Values,
    read_parameters,
    read_seconds,
)
from loadmaster.cli._output import print_result, say
from loadmaster.cli._plans import write_report
from loadmaster.cli._startup import began
from loadmaster.errors import InputError

if TYPE_CHECKING:
    from rich.console import RenderableType

__all__ = ["devices", "optimize", "profile", "run"]

Model = Annotated[
    str,
    typer.Argument(
        metavar="MODEL",
        help="OpenVINO IR (.xml), ONNX or PyTorch (.pt2) model.",
        show_default=False,
    ),
]
DeviceList = Annotated[
    list[str] | None,
    typer.Option(
        "--device",
        "-d",
        metavar="NAME=cpu:…",
        help="Device, e.g. 'B=cpu:core=1,precision=bf16', or a TOML file of devices.",
    ),
]
CacheFile = Annotated[
    str | None,
    typer.Option(
        "--cache", metavar="FILE", help="File that keeps measurements; default: in the user's cache folder."
    ),
]
Clock = Annotated[
    str,
    typer.Option(
        metavar="wall|core",
        help="wall: elapsed time, disturbed samples dropped. core: CPU time, for busy machines.",
    ),
]
AnyClock = Annotated[
    str,
    typer.Option(
        metavar="auto|wall|core",
        help="wall: elapsed time, disturbed samples dropped. core: CPU time. auto: core if wall is too noisy.",
    ),
]
Runtime = Annotated[
    str, typer.Option(metavar="openvino|onnxruntime", help="What runs it; onnxruntime: ONNX models alone.")
]
RunRuntime = Annotated[
    str,
    typer.Option(
        metavar="openvino|onnxruntime|torch",
        help="What runs it; torch: a pipeline of ranks, MODEL is FILE.py:FUNCTION or a .pt2 file.",
    ),
]
ToleranceText = Annotated[
    str | None,
    typer.Option(
        "--tolerance",
        metavar="3%|cosine=…|top1=…",
        help="How far a plan in lower precision may be from the f32 model.",
    ),
]


def devices(device: DeviceList = None, on: On = None, as_json: Json = False) -> None:
    """List the devices of this machine, or of a Ray cluster's nodes, that can run models.

    With --device, also check those given.
    """
    from loadmaster import api, report

    document = api.devices(device or (), on=on)
    print_result(document, as_json, lambda: report.devices_table(document))


def profile(
    model: Model,
    device: DeviceList = None,
    shape: Shapes = None,
    value: Values = None,
    cache: CacheFile = None,
    refresh: Annotated[bool, typer.Option("--refresh", help="Ignore cached measurements.")] = False,
    cut_fused: Annotated[bool, typer.Option("--cut-fused", help="Allow splitting fused ops.")] = False,
    clock: Clock = "wall",
    runtime: Runtime = "openvino",
    on: On = None,
    output: Annotated[
        str | None,
        typer.Option(
            "--output",
            "-o",
            metavar="FILE",
            help="Write the measured problem, as input for 'place' and other commands.",
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Measure op times on every device, and transfer times."""
    from loadmaster import api, report
    from loadmaster.files import check_writable, write_atomically
    from loadmaster.plan import problem_document

    specs = api.parse_devices(device or ())
    if output is not None:
        check_writable(output)
    kept = api.cache(cache)
    found = api.profile(
        model,
        specs,
        shape or (),
        values=value or (),
        cache=kept,
        refresh=refresh,
        clock=clock,
        runtime=runtime,
        on=on,
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
    plan: Annotated[str, typer.Option("--plan", metavar="PLAN", help="Plan file written by 'place -o'.")],
    device: DeviceList = None,
    shape: Shapes = None,
    value: Values = None,
    samples: Annotated[int, typer.Option(min=3, help="Clean samples per candidate.")] = 30,
    budget: Annotated[
        str | None,
        typer.Option(
            metavar="TIME",
            help="After this, three clean samples are enough; default: 60s.",
            show_default=False,
        ),
    ] = None,
    baselines: Annotated[
        bool, typer.Option(help="Also measure each device alone and OpenVINO HETERO's own placement.")
    ] = True,
    clock: AnyClock = "auto",
    runtime: RunRuntime = "openvino",
    nproc: Annotated[
        int | None, typer.Option(min=1, help="torch: ranks to start; default: as many as the plan uses.")
    ] = None,
    microbatches: Annotated[
        int | None, typer.Option(min=1, help="torch: microbatches of a step; default: as planned.")
    ] = None,
    schedule: Annotated[
        str | None,
        typer.Option(
            metavar="gpipe|1f1b|interleaved", help="torch: schedule of a step; default: as planned."
        ),
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="torch: seed of weights, dropout and data.")] = 0,
    tolerance: ToleranceText = None,
    on: On = None,
    replan: Annotated[
        bool, typer.Option("--replan", help="With --on: place the model anew when a node dies, and go on.")
    ] = False,
    live: Annotated[
        bool, typer.Option("--live", help="Run on until Ctrl-C, and show it in a page of this machine.")
    ] = False,
    port: Annotated[int, typer.Option(help="Of the page of --live; 0: any that is free.")] = 0,
    output: Annotated[
        str | None,
        typer.Option("--output", "-o", metavar="PLAN", help="Write the plan with the measurements added."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Run a plan, verify its outputs and measure it.

    Outputs are compared with those of the unplaced model; baselines are measured, too. With --runtime torch ranks are
    started by torchrun; losses, results and all gradients must equal the unsplit model's before a time is shown.
    """
    from loadmaster import api, report
    from loadmaster.files import check_writable
    from loadmaster.plan import Plan

    if runtime == "torch":
        if device or shape or value or tolerance or on or budget or replan or live:
            raise InputError(
                "--device, --shape, --value, --tolerance, --budget, --on, --replan and --live are not for "
                "--runtime torch: leave them out"
            )
        _run_torch(model, plan, nproc, samples, microbatches, schedule, seed, output, as_json)
        return
    if nproc is not None or microbatches is not None or schedule is not None:
        raise InputError(f"--nproc, --microbatches and --schedule are for --runtime torch, not {runtime}")
    seconds = read_seconds(budget)
    loaded = Plan.load(plan)
    specs = api.parse_devices(device) if device else None
    if live:
        if output is not None or runtime != "openvino":
            raise InputError("--live runs OpenVINO and writes no plan: leave --output and --runtime out")
        shown = api.watch(
            model,
            loaded,
            specs,
            shape or (),
            values=value or (),
            tolerance=tolerance,
            on=on,
            replan=replan,
            port=port,
            started=lambda url: say(f"see {url} (Ctrl-C ends it)"),
        )
        print_result(shown, as_json, lambda: report.live_tables(shown))
        return
    if output is not None:
        check_writable(output)
    found = api.run(
        model,
        loaded,
        specs,
        shape or (),
        values=value or (),
        samples=samples,
        baselines=baselines,
        clock=clock,
        runtime=runtime,
        tolerance=tolerance,
        budget=60.0 if seconds is None else seconds,
        on=on,
        say=say,
        replan=replan,
    )
    document = found.document()
    print_result(document, as_json, lambda: report.run_tables(document))
    if output is not None:
        stated = {} if tolerance is None else {"tolerance": tolerance}
        Plan({**(found.now or loaded).document, **stated, "measured": document["measured"]}).save(output)


def _run_torch(
    model: str,
    plan: str,
    nproc: int | None,
    steps: int,
    microbatches: int | None,
    schedule: str | None,
    seed: int,
    output: str | None,
    as_json: bool,
) -> None:
    from loadmaster import report
    from loadmaster import torch as pipelines
    from loadmaster.files import check_writable
    from loadmaster.plan import Plan

    if output is not None:
        check_writable(output)
    document = pipelines.run(
        model,
        plan,
        nproc=nproc,
        steps=steps,
        microbatches=microbatches,
        schedule=schedule,
        seed=seed,
        say=say,
    )
    print_result(document, as_json, lambda: report.torch_run_tables(document))
    if output is not None:
        measured = {key: document[key] for key in ("median", "low", "high", "memory")}
        Plan({**Plan.load(plan).document, "measured": measured}).save(output)


def optimize(
    model: Model,
    device: Annotated[
        list[str] | None,
        typer.Option(
            "--devices",
            "--device",
            "-d",
            metavar="NAME=cpu:…",
            help="Device, or a TOML file of devices; default: one per core.",
        ),
    ] = None,
    budget: Annotated[
        str, typer.Option(metavar="TIME", help="Total time to profile, place and run.")
    ] = "120s",
    execution: Annotated[
        str,
        typer.Option(
            "--model",
            metavar="concurrent|pipeline|serial",
            help="Execution model: one request, a stream of requests, or one submodel after another (HETERO).",
        ),
    ] = "concurrent",
    method: Annotated[
        str, typer.Option(metavar="NAME", help="Placement method, e.g. hsdag; see 'loadmaster methods'.")
    ] = "auto",
    set_: Annotated[
        list[str] | None, typer.Option("--set", metavar="NAME=VALUE", help="Set a parameter of the method.")
    ] = None,
    pin: Pin = None,
    forbid: Forbid = None,
    tolerance: ToleranceText = None,
    shape: Shapes = None,
    value: Values = None,
    samples: Annotated[int, typer.Option(min=3, help="Clean samples per candidate.")] = 30,
    clock: AnyClock = "auto",
    runtime: Runtime = "openvino",
    on: On = None,
    cache: CacheFile = None,
    seed: Annotated[int, typer.Option(min=0, help="Random seed.")] = 0,
    output: Annotated[
        str, typer.Option("--output", "-o", metavar="PLAN", help="Write the plan to this file.")
    ] = "plan.json",
    report: ReportFile = None,
    as_json: Json = False,
) -> None:
    """Find the placement that runs fastest on this machine.

    Profiles the model, places it, runs the best candidates, verifies their outputs and keeps the fastest.
    """
    from loadmaster import api
    from loadmaster import optimize as main_job
    from loadmaster.files import check_writable
    from loadmaster.graph import Given

    if on is not None and not device:
        raise InputError(
            "--on needs the devices: give --device NODE/cpu for each; 'loadmaster devices' lists them"
        )
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
        pins=pin or (),
        forbids=forbid or (),
        tolerance=tolerance,
        samples=samples,
        clock=clock,
        runtime=runtime,
        on=on,
        cache=kept,
        seed=seed,
        began=began(),
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
