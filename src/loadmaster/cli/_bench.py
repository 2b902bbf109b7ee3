"""The commands of the benchmark: a thin layer over :mod:`loadmaster.bench`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from loadmaster.cli._options import Evaluations, Json, On, read_seconds
from loadmaster.cli._output import say
from loadmaster.cli._startup import announce_compiling, start_numba
from loadmaster.errors import InputError

__all__ = ["bench_commands"]

bench_commands = typer.Typer(
    help="Compare placement methods on fixed instances with best known values.",
    rich_markup_mode=None,
    no_args_is_help=True,
)

Suites = Annotated[
    str, typer.Option("--suite", metavar="S,…", help="tiny, hsdag, gdp, msr, scale, memory; default: all.")
]
Name = Annotated[str, typer.Argument(metavar="INSTANCE", help="See 'bench list'.", show_default=False)]
Names = Annotated[
    list[str] | None,
    typer.Argument(metavar="[INSTANCE]…", help="Names or parts of names; default: all.", show_default=False),
]
Workloads = Annotated[
    str | None,
    typer.Option(
        metavar="FOLDER", help="msr: folder of the published workloads; default: $LOADMASTER_WORKLOADS."
    ),
]
KnownFolder = Annotated[
    str | None,
    typer.Option("--known", metavar="FOLDER", help="Best known values; default: those of this package."),
]


def _folder(known: str | None) -> Path:
    from loadmaster.bench import FOLDER

    return Path(known) if known else FOLDER


@bench_commands.command("list")
def list_(suite: Suites = "", as_json: Json = False) -> None:
    """List the instances with their best known values."""
    from loadmaster import bench
    from loadmaster.report import to_json
    from loadmaster.units import percent, seconds_text

    documents: list[dict[str, Any]] = []
    for entry in bench.find_instances(suite):
        known = bench.read_known(entry.name)
        documents.append(
            {
                **{key: getattr(entry, key) for key in ("name", "suite", "model", "ops", "devices", "why")},
                "origin": entry.origin,
                "hash": entry.hash,
                "cost": known and known.cost,
                "bound": known and known.bound,
                "gap": known and known.gap,
            }
        )
    if as_json:
        typer.echo(to_json(documents))
        return
    last = ""
    for document in documents:
        if document["suite"] != last:
            last = document["suite"]
            typer.echo(f"\n{last}: {bench.suites()[last].title}")
        cost = "–" if document["cost"] is None else seconds_text(document["cost"])
        gap = (
            ""
            if document["cost"] is None
            else "optimal"
            if document["gap"] <= 1e-6
            else percent(document["gap"])
        )
        typer.echo(
            f"  {document['name']:<42} {document['ops']:>9,} ops {document['devices']:>2} devices {cost:>10} {gap:>8}"
        )


@bench_commands.command()
def show(
    name: Name,
    report: Annotated[
        str | None,
        typer.Option("--report", metavar="HTML", help="Write the report of the best known placement."),
    ] = None,
    workloads: Workloads = None,
    as_json: Json = False,
) -> None:
    """Show an instance: where it comes from, what is known about it, and what proves it."""
    from loadmaster import bench
    from loadmaster.report import to_json
    from loadmaster.units import percent, seconds_text

    entry = _one(name)
    known = bench.read_known(entry.name)
    if report is not None:
        _write_report(entry, report, workloads)
    document: dict[str, Any] = {**vars(entry), "origin": entry.origin}
    if known is not None:
        document["known"] = {
            key: value for key, value in vars(known).items() if key not in ("placement", "certificate")
        } | {"gap": known.gap, "certificate": (known.certificate or {}).get("kind")}
    if as_json:
        typer.echo(to_json(document))
        return
    typer.echo(f"{entry.name} ({entry.suite}): {entry.origin}, {entry.model}")
    typer.echo(f"  why it is in   {entry.why}")
    typer.echo(f"  size           {entry.ops:,} ops, {entry.edges:,} edges, {entry.devices} devices")
    typer.echo(f"  hash           {entry.hash}")
    if known is None:
        typer.echo("  best known     nothing yet")
        return
    typer.echo(f"  best known     {seconds_text(known.cost)} by {known.found_by}, {known.found_on}")
    typer.echo(f"  proven bound   {seconds_text(known.bound)} by {known.bound_by}, gap {percent(known.gap)}")
    if known.certificate is not None:
        typer.echo(f"  checked again  {seconds_text(known.checked)} by {known.certificate.get('kind')}")


def _one(name: str) -> Any:
    from loadmaster import bench

    if name not in bench.instances():
        near = [other for other in bench.instances() if name in other][:3]
        hint = f": did you mean {', '.join(near)}?" if near else ": 'loadmaster bench list' shows them"
        raise InputError(f"there is no instance {name!r}{hint}")
    return bench.instances()[name]


def _write_report(entry: Any, path: str, workloads: str | None) -> None:
    from loadmaster import bench
    from loadmaster.files import write_atomically
    from loadmaster.problem import Solution, evaluate
    from loadmaster.report import html_report

    known = bench.read_known(entry.name)
    if known is None:
        raise InputError(f"{entry.name} has no best known placement yet, so there is nothing to report")
    problem = entry.problem(workloads)
    placement = known.unpacked(problem)
    cost = evaluate(problem, placement).cost
    solution = Solution(placement, cost, min(known.bound, cost), known.bound_by, known.found_by)
    target = Path(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(target, html_report(problem, [solution]).encode())


@bench_commands.command()
def export(
    name: Name,
    out: Annotated[str, typer.Option("-o", "--out", metavar="FILE", help="The problem file.")],
    workloads: Workloads = None,
) -> None:
    """Write an instance as one self-contained problem file (loadmaster-problem/1)."""
    from loadmaster import bench
    from loadmaster.files import check_writable, write_atomically

    entry = _one(name)
    check_writable(out)
    write_atomically(out, json.dumps(bench.exported(entry, entry.problem(workloads))).encode())
    typer.echo(f"{out}: {entry.name}, hash {entry.hash[:12]}")


@bench_commands.command()
def run(
    suite: Suites = "",
    only: Annotated[
        list[str] | None, typer.Option("--instances", metavar="TEXT", help="Names, or parts of names.")
    ] = None,
    methods: Annotated[
        str, typer.Option(metavar="A,B,…", help="Methods; default: those that each suite states.")
    ] = "",
    budget: Annotated[
        str | None, typer.Option("--budget", metavar="TIME", help="For each run: 500ms, 10s, 2m.")
    ] = None,
    evaluations: Evaluations = None,
    seeds: Annotated[int, typer.Option(help="Seeds of methods that are random.", min=1, max=100)] = 3,
    out: Annotated[
        str, typer.Option("-o", "--out", metavar="FILE", help="Rows, one JSON line each.")
    ] = "results.jsonl",
    program: Annotated[
        list[str] | None,
        typer.Option("--program", metavar="NAME=COMMAND", help="A method in any language; see the docs."),
    ] = None,
    placements: Annotated[
        str | None,
        typer.Option(metavar="FOLDER", help="Write a submission for each value better than the best known."),
    ] = None,
    fresh: Annotated[bool, typer.Option("--fresh", help="Discard the rows of an earlier run.")] = False,
    on: On = None,
    workloads: Workloads = None,
    as_json: Json = False,
) -> None:
    """Run methods on instances; a stopped run resumes where it stopped."""
    from loadmaster import bench
    from loadmaster.report import to_json

    programs: dict[str, str] = {}
    for text in program or []:
        key, separator, command = text.partition("=")
        if not separator or not key or not command:
            raise InputError(f"--program {text!r} must be written NAME=COMMAND")
        programs[key] = command
    chosen = tuple(filter(None, methods.split(","))) or tuple(programs)
    seconds = read_seconds(budget)
    if seconds is None and evaluations is None:
        seconds = 10.0
    plan = bench.Plan(
        suite=suite, names=tuple(only or ()), methods=chosen, seconds=seconds, evaluations=evaluations, seeds=seeds,
        programs=programs, workloads=workloads, placements=placements,
    )  # fmt: skip
    start_numba()
    announce_compiling()
    rows, cases = bench.run_bench(
        plan, Path(out), fresh=fresh, on=on,
        on_case=lambda number, count, title: typer.echo(f"{number}/{count} {title}", err=True),
    )  # fmt: skip
    if as_json:
        typer.echo(to_json({"rows": rows, "cases": cases}))
    else:
        typer.echo(f"{out}: {len(rows)} of {cases} cases")
    if len(rows) < cases:
        raise typer.Exit(130)


@bench_commands.command()
def verify(
    names: Names = None,
    suite: Suites = "",
    only_instances: Annotated[bool, typer.Option("--instances", help="Hashes alone.")] = False,
    known: KnownFolder = None,
    workloads: Workloads = None,
    as_json: Json = False,
) -> None:
    """Check hashes, best known placements and certificates again, independently of what made them."""
    from loadmaster import bench
    from loadmaster.report import to_json

    start_numba()
    checks = bench.verify(
        bench.find_instances(suite, names or ()), folder=_folder(known), workloads=workloads,
        only_hashes=only_instances, on_instance=lambda entry: typer.echo(entry.name, err=True),
    )  # fmt: skip
    wrong = [check for check in checks if check.wrong]
    if as_json:
        typer.echo(to_json([vars(check) for check in checks]))
    else:
        for check in wrong:
            typer.echo(f"{check.instance}: {'; '.join(check.wrong)}")
        parts = ("hash", "placement", "certificate")
        counts = [sum(any(x.startswith(part) for x in check.looked_at) for check in checks) for part in parts]
        counted = ", ".join(
            f"{count} {part}{'es' if part == 'hash' else 's'}"
            for count, part in zip(counts, parts, strict=True)
        )
        typer.echo(
            f"{counted} of {len(checks)} instances checked: "
            + (f"{len(wrong)} wrong" if wrong else "all right")
        )
    if wrong:
        raise typer.Exit(4)


@bench_commands.command()
def submit(
    submissions: Annotated[
        list[str], typer.Argument(metavar="FILE…", help="Submissions.", show_default=False)
    ],
    known: KnownFolder = None,
    workloads: Workloads = None,
    as_json: Json = False,
) -> None:
    """Check a submission and, if something in it is better, make it the best known value."""
    from loadmaster import bench
    from loadmaster.report import to_json

    start_numba()
    verdicts = []
    for file in submissions:
        verdicts.append(bench.submit(file, folder=_folder(known), workloads=workloads))
        if not as_json:
            kept = verdicts[-1]["kept"]
            typer.echo(f"{file}: " + (f"kept ({', '.join(kept)})" if kept else verdicts[-1]["why"]))
    if as_json:
        typer.echo(to_json(verdicts))


@bench_commands.command()
def certify(
    names: Names = None,
    suite: Suites = "",
    budget: Annotated[
        str, typer.Option("--budget", metavar="TIME", help="For the linear program of each instance.")
    ] = "1m",
    most: Annotated[int, typer.Option("--ops", metavar="N", help="Leave out larger instances.")] = 5000,
    out: Annotated[
        str, typer.Option("-o", "--out", metavar="FOLDER", help="For submissions.")
    ] = "certificates",
    known: KnownFolder = None,
    workloads: Workloads = None,
    as_json: Json = False,
) -> None:
    """Look for bounds with a certificate that are better than those known; write them as submissions."""
    from loadmaster import bench
    from loadmaster.report import to_json

    seconds = read_seconds(budget)
    start_numba()
    written = {}
    for entry in bench.find_instances(suite, names or ()):
        if entry.ops > most:
            continue
        typer.echo(entry.name, err=True)
        document = bench.certificate_for(
            entry, entry.problem(workloads), seconds=seconds or 60.0, folder=_folder(known)
        )
        if document is not None:
            file = Path(out) / f"{entry.name}.certificate.json"
            bench.write_submission(document, file)
            written[str(file)] = document["bound"]["value"]
    if as_json:
        typer.echo(to_json(written))
    else:
        typer.echo(f"{out}: {len(written)} certificates for 'loadmaster bench submit'")


@bench_commands.command()
def board(
    rows: Annotated[
        list[str], typer.Argument(metavar="ROWS…", help="Files of 'bench run'.", show_default=False)
    ],
    out: Annotated[str, typer.Option("-o", "--out", metavar="HTML", help="The page.")] = "board.html",
    reports: Annotated[
        int,
        typer.Option(
            metavar="OPS", help="Also write reports of best known placements of at most so many ops."
        ),
    ] = 0,
    known: KnownFolder = None,
    workloads: Workloads = None,
) -> None:
    """Make the page of scores, a single file."""
    from loadmaster import bench

    folder, target = _folder(known), Path(out)
    written = set()
    for entry in bench.instances().values() if reports else ():
        if entry.ops <= reports and bench.read_known(entry.name, folder) is not None:
            try:
                _write_report(entry, str(target.parent / "reports" / f"{entry.name}.html"), workloads)
                written.add(entry.name)
            except InputError as error:  # the published workloads may not be here
                say(str(error))
    bench.write_board(rows, target, folder=folder, reports=written)
    typer.echo(
        f"{out}: {target.stat().st_size / 1000:,.0f} kB" + (f", {len(written)} reports" if written else "")
    )
