"""The commands that run models: a thin layer over :mod:`loadmaster.runtime`, added to :mod:`loadmaster.cli`."""

from __future__ import annotations

from typing import Annotated

import typer

from loadmaster.cli._options import Json, ReportFile, read_parameters, read_seconds
from loadmaster.cli._reports import write_report

__all__ = ["register"]

Model = Annotated[
    str, typer.Argument(metavar="MODEL", help="An OpenVINO IR (.xml) or an ONNX model.", show_default=False)
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
Shapes = Annotated[
    list[str] | None,
    typer.Option("--shape", metavar="X=1x3x…", help="Shape of an input that the model leaves open."),
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

zoo_commands = typer.Typer(
    help="List the models of the zoo, or write one that runs.",
    rich_markup_mode=None,
    invoke_without_command=True,
)


def register(app: typer.Typer) -> None:
    """Add the commands to the command line."""
    app.add_typer(zoo_commands, name="zoo")
    for command in (devices, profile, run, lint, optimize):
        app.command()(command)


# -- the zoo -------------------------------------------------------------------------------------------------


@zoo_commands.callback()
def zoo(context: typer.Context, as_json: Json = False) -> None:
    """List the models of the zoo, or write one that runs ('zoo export')."""
    if context.invoked_subcommand is not None:
        return
    from loadmaster.report._documents import to_json
    from loadmaster.report._runtime import zoo_documents, zoo_table
    from loadmaster.report._tables import show

    documents = zoo_documents()
    if as_json:
        typer.echo(to_json(documents))
    else:
        show(zoo_table(documents))


@zoo_commands.command()
def export(
    name: Annotated[str, typer.Argument(metavar="NAME", help="e.g. resnet-50 or bert-base?seq=64")],
    path: Annotated[
        str, typer.Argument(metavar="FILE", help="The IR to write: model.xml (weights: model.bin).")
    ],
    seed: Annotated[int, typer.Option(help="Of the random weights.", min=0)] = 0,
    as_json: Json = False,
) -> None:
    """Write a model of the zoo as an OpenVINO IR that runs, with random weights."""
    from loadmaster.graph import load_openvino
    from loadmaster.report._documents import to_json
    from loadmaster.zoo import export_model

    export_model(name, path, seed=seed)
    layers, ops = load_openvino(path, counting="layers").graph, load_openvino(path).graph
    document = {
        "model": name,
        "file": path,
        "layers": layers.n,
        "layer_edges": len(layers.arcs[0]),
        "ops": ops.n,
        "edges": len(ops.arcs[0]),
        "hash": ops.digest,
    }
    if as_json:
        typer.echo(to_json(document))
    else:
        typer.echo(
            f"{path}: {layers.n} IR layers and {document['layer_edges']} edges; "
            f"{ops.n} ops and {document['edges']} edges that execute"
        )


# -- devices, profiles, runs ---------------------------------------------------------------------------------


def devices(device: DeviceList = None, as_json: Json = False) -> None:
    """List what models can run on here; with --device also check these."""
    from loadmaster import runtime
    from loadmaster.report._documents import to_json
    from loadmaster.report._runtime import devices_table
    from loadmaster.report._tables import show
    from loadmaster.runtime.openvino._devices import Devices

    document = {"available": runtime.available(), "virtual": []}
    if device:
        document["virtual"] = Devices(runtime.parse_devices(device)).document()
    if as_json:
        typer.echo(to_json(document))
    else:
        show(devices_table(document))


def profile(
    model: Model,
    device: DeviceList = None,
    shape: Shapes = None,
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
    from loadmaster import runtime
    from loadmaster.files import check_writable, write_atomically
    from loadmaster.plan import problem_document
    from loadmaster.report._documents import to_json
    from loadmaster.report._runtime import profile_document, profile_tables
    from loadmaster.report._tables import show

    specs = runtime.parse_devices(device or ())
    if output is not None:
        check_writable(output)
    kept = runtime.Cache(cache)
    found = runtime.profile_model(model, specs, shape or (), cache=kept, refresh=refresh, clock=clock)
    document = profile_document(found)
    if output is not None:
        problem = found.problem(cut_fused=cut_fused)
        write_atomically(output, (to_json(problem_document(problem)) + "\n").encode())
    if as_json:
        typer.echo(to_json(document))
    else:
        show(profile_tables(document))
    if kept.trouble:
        typer.echo(f"loadmaster: {kept.trouble}", err=True)


def run(
    model: Model,
    plan: Annotated[str, typer.Option("--plan", metavar="PLAN", help="What 'place -o' wrote.")],
    device: DeviceList = None,
    shape: Shapes = None,
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
    from loadmaster import runtime
    from loadmaster.files import check_writable
    from loadmaster.plan import Plan
    from loadmaster.report._documents import to_json
    from loadmaster.report._runtime import run_tables
    from loadmaster.report._tables import show

    loaded = Plan.load(plan)
    specs = runtime.parse_devices(device) if device else None
    if output is not None:
        check_writable(output)
    document = runtime.run_plan(
        model, loaded, specs, shape or (), samples=samples, baselines=baselines, clock=clock
    ).document()
    if as_json:
        typer.echo(to_json(document))
    else:
        show(run_tables(document))
    if output is not None:
        Plan({**loaded.document, "measured": document["measured"]}).save(output)


def lint(
    plan: Annotated[str, typer.Argument(metavar="PLAN", help="A plan.", show_default=False)],
    model: Annotated[
        str | None, typer.Option("--model", metavar="MODEL", help="The model that it should fit.")
    ] = None,
    shape: Shapes = None,
    as_json: Json = False,
) -> None:
    """Say what is wrong or foolish about a plan; exit code 1 where it must not be run."""
    from loadmaster import runtime
    from loadmaster.graph import load_openvino
    from loadmaster.plan import Plan
    from loadmaster.report._documents import to_json

    loaded = Plan.load(plan)
    network = None
    if model is not None:
        counting = "layers" if "Constant" in loaded.problem().graph.op_types else "ops"
        network = load_openvino(model, shape or (), counting=counting)
    findings = runtime.lint(loaded.problem(), loaded.placement(), network)
    if as_json:
        typer.echo(to_json([finding.document() for finding in findings]))
    else:
        for finding in findings:
            typer.echo(f"{finding.level}: {finding.text} [{finding.rule}]")
        if not findings:
            typer.echo("nothing to complain of")
    if any(finding.level == "error" for finding in findings):
        raise typer.Exit(1)


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
    import os

    from loadmaster import runtime
    from loadmaster.files import check_writable
    from loadmaster.report._documents import to_json
    from loadmaster.report._runtime import optimized_tables
    from loadmaster.report._tables import show

    each = [f"{chr(65 + i)}=cpu:core={core}" for i, core in enumerate(sorted(os.sched_getaffinity(0))[:26])]
    specs = runtime.parse_devices(device or each)
    seconds = read_seconds(budget, "--budget")
    assert seconds is not None
    check_writable(output)
    if report is not None:
        check_writable(report)
    kept = runtime.Cache(cache)
    found = runtime.optimize(
        model,
        specs,
        shape or (),
        budget=seconds,
        model=execution,
        method=method,
        parameters=read_parameters(set_),
        samples=samples,
        clock=clock,
        cache=kept,
        seed=seed,
        say=lambda text: typer.echo(f"loadmaster: {text}", err=True),
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
    if as_json:
        typer.echo(to_json(document))
    else:
        show(optimized_tables(document))
    if kept.trouble:
        typer.echo(f"loadmaster: {kept.trouble}", err=True)
