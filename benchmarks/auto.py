"""``auto`` against its members and other methods: what the rows of the benchmark say about the portfolio.

    loadmaster bench run --budget 10s --seeds 3 -o rows.jsonl       # measures; hours; the same command goes on
    python -m benchmarks.auto rows.jsonl                            # reads
    python -m benchmarks.auto docs/benchmark/*.jsonl --plot docs/images/auto-time.svg
    python -m benchmarks.auto docs/benchmark/two-cores/*.jsonl --against docs/benchmark/*.jsonl

Every method ran alone, with the same seconds; on the same cores, unless ``--against`` brings rows of other machines:
these count where the first files have none of the method on the instance. Of several seeds the median counts.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from statistics import mean, median
from typing import Any

from loadmaster import bench
from loadmaster.errors import LoadmasterError
from loadmaster.studies import Page, Row, number, percent, require_plots

__all__ = ["Line", "joined", "lines", "main", "quality"]

MANY = 5000
"""Ops from which on a graph is large."""
NEAR, FAR = 0.005, 0.02
"""How much worse than the best other method ``auto`` may be, on nearly all instances and on every instance."""
ALLOWED = (0.05, 0.5)
"""Over the deadline: a share of it, and seconds."""
WORST = 1.5
"""The plot ends here: a method without an answer counts as much."""
SHOWN = 5
"""Methods in a panel of the plot, the best at the end."""


class Line:
    """What is known about one instance."""

    def __init__(self, name: str, rows: Sequence[Row]) -> None:
        self.instance = bench.instances()[name]
        model = self.instance.model
        self.model = model if model.startswith("pipeline:") else model.partition(":")[0]
        self.methods: dict[str, float] = {}
        for method in dict.fromkeys(row["method"] for row in rows):
            runs = [row for row in rows if row["method"] == method and not row.get("unsupported")]
            if runs:
                costs = [math.inf if row.get("cost") is None else row["cost"] for row in runs]
                self.methods[method] = median(costs)
        self.mine = [row for row in rows if row["method"] == "auto"]
        self.cost = self.methods.get("auto", math.inf)
        others = {method: cost for method, cost in self.methods.items() if method != "auto"}
        self.by = min(others, key=others.__getitem__, default="")
        self.best = others.get(self.by, math.inf)
        self.ratio = self.cost / self.best if math.isfinite(self.best) else None
        proofs = [row for row in rows if row.get("bound")]
        top = max(proofs, key=lambda row: row["bound"], default=None)
        self.bound, self.proved_by = (top["bound"], top["method"]) if top else (0.0, "-")
        own = max((row.get("bound") or 0.0 for row in self.mine), default=0.0)
        if own >= self.bound * (1 - 1e-6):
            self.proved_by = "auto"
        self.gap = max(0.0, 1 - own / self.cost) if math.isfinite(self.cost) else None
        self.best_gap = max(0.0, 1 - self.bound / min(self.cost, self.best)) if self.bound else None
        share, seconds = ALLOWED
        self.late = [
            row["seconds_taken"] for row in self.mine
            if (row.get("seconds_taken") or 0.0) > (1 + share) * row["seconds"] + seconds
        ]  # fmt: skip
        self.last = max((row["history"][-1][0] for row in self.mine if row.get("history")), default=0.0)

    def cells(self) -> tuple[Any, ...]:
        """A line of the table."""
        return (
            self.instance.name, self.instance.ops, _ms(self.cost), _ms(self.best), self.by or "-",
            f"{self.ratio:.4f}" if self.ratio is not None else "-", percent(self.gap), percent(self.best_gap),
            self.proved_by, number(self.last, 2),
        )  # fmt: skip


def _ms(cost: float) -> str:
    return number(1e3 * cost) if math.isfinite(cost) else "none"


def lines(rows: Iterable[Row]) -> list[Line]:
    """The instances on which ``auto`` ran by seconds, in the order of the suites."""
    groups: dict[str, list[Row]] = {name: [] for name in bench.instances()}
    for row in rows:
        if row.get("seconds") is not None and row["instance"] in groups:
            groups[row["instance"]].append(row)
    return [Line(name, mine) for name, mine in groups.items() if any(row["method"] == "auto" for row in mine)]


def joined(rows: Sequence[Row], against: Sequence[Row]) -> list[Row]:
    """The rows, and those of other methods than ``auto`` that the first have nothing of on the instance."""
    known = {(row["instance"], row["method"]) for row in rows if row.get("seconds") is not None}
    others = [
        row for row in against if row["method"] != "auto" and (row["instance"], row["method"]) not in known
    ]
    return [*rows, *others]


def short(told: Sequence[Line]) -> list[tuple[str, object]]:
    """What was promised, and what came of it."""
    facts: list[tuple[str, object]] = []
    compared = [(line.ratio, line.instance.ops) for line in told if line.ratio is not None]
    if compared:
        ratios = [ratio for ratio, _ in compared]
        near = sum(ratio <= 1 + NEAR for ratio in ratios)
        facts.append((f"at most {100 * NEAR} % worse than the best other", f"{near} of {len(ratios)}"))
        facts.append((f"over {100 * FAR:g} % worse", sum(ratio > 1 + FAR for ratio in ratios)))
        facts.append(("worst", f"{max(ratios):.4f}"))
        facts.append(("geometric mean", f"{math.exp(mean(map(math.log, ratios))):.4f}"))
        many = [ratio for ratio, ops in compared if ops > MANY]
        if many:
            facts.append(
                (
                    f"above {MANY:,} ops, geometric mean",
                    f"{math.exp(mean(map(math.log, many))):.4f} ({len(many)})",
                )
            )
    late = [seconds for line in told for seconds in line.late]
    runs = sum(len(line.mine) for line in told)
    facts.append(
        (
            "over the deadline by more than promised",
            f"{len(late)} of {runs}" + (f", worst {max(late):.2f} s" if late else ""),
        )
    )
    for model in dict.fromkeys(line.model for line in told):
        for title, gaps in (
            (f"gap of `auto`, {model}", [line.gap for line in told if line.model == model]),
            (
                f"gap of the best of all, {model}",
                [line.best_gap for line in told if line.model == model],
            ),
        ):
            known = [gap for gap in gaps if gap is not None]
            if known:
                facts.append((title, f"median {percent(median(known))}, worst {percent(max(known))}"))
    return facts


def quality(rows: Sequence[Row], best: Mapping[str, float], times: Sequence[float]) -> dict[str, list[float]]:
    """For each method the geometric mean of cost / best known after so many seconds, at most :data:`WORST`."""
    found = {}
    for method in dict.fromkeys(row["method"] for row in rows):
        runs = [row for row in rows if row["method"] == method and not row.get("unsupported")]
        curves = [[_after(row, best[row["instance"]], at) for row in runs] for at in times]
        if runs:
            found[method] = [math.exp(mean(map(math.log, curve))) for curve in curves]
    return found


def _after(row: Row, best: float, at: float) -> float:
    """What a run had by then."""
    costs = [cost for seconds, _, cost in row.get("history", ()) if seconds <= at]
    if row.get("cost") is not None and (row.get("seconds_taken") or 0.0) <= at:
        costs.append(row["cost"])
    if not costs:
        return WORST
    return min(WORST, min(costs) / best) if best > 0 else 1.0


def plot(rows: Sequence[Row], target: Path) -> None:
    """Quality over time, a panel for each suite."""
    require_plots()
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    best = {name: known.cost for name in bench.instances() if (known := bench.read_known(name)) is not None}
    used = [row for row in rows if row.get("seconds") is not None and row["instance"] in best]
    suites = {
        name: [row for row in used if bench.instances()[row["instance"]].suite == name]
        for name in bench.suites()
    }
    suites = {name: mine for name, mine in suites.items() if mine}
    most = max(row["seconds"] for row in used)
    times = [most * 10 ** (-2.5 * (1 - i / 60)) for i in range(61)]
    with rc_context({"svg.fonttype": "none", "svg.hashsalt": "auto", "font.size": 8}):
        columns = min(3, len(suites))
        figure = Figure(figsize=(3.6 * columns, 2.9 * -(-len(suites) // columns)))
        for at, (name, mine) in enumerate(suites.items()):
            axes = figure.add_subplot(-(-len(suites) // columns), columns, at + 1)
            found = quality(mine, best, times)
            chosen = sorted(found, key=lambda method: (method != "auto", found[method][-1]))[:SHOWN]
            for method in chosen:
                width = 2.2 if method == "auto" else 1.0
                axes.plot(times, found[method], label=method, linewidth=width)
            axes.set_xscale("log")
            axes.set_title(name)
            axes.set_xlabel("seconds")
            axes.set_ylabel("cost / best known")
            axes.spines[["top", "right"]].set_visible(False)
            axes.legend(frameon=False, fontsize=7)
        figure.tight_layout()
        target.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(target, format="svg", metadata={"Date": None})


def main(arguments: Sequence[str] | None = None) -> int:
    """Read the rows, print the page."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.auto", description=(__doc__ or "").partition("\n")[0]
    )
    parser.add_argument("rows", nargs="+", help="files of `loadmaster bench run`")
    parser.add_argument("--against", nargs="+", default=[], metavar="FILE", help="rows of other methods")
    parser.add_argument("--plot", type=Path, metavar="SVG", help="quality over time")
    parser.add_argument("--json", action="store_true", help="print the lines as JSON")
    given = parser.parse_args(arguments)
    try:
        rows = joined(bench.read_rows(given.rows), bench.read_rows(given.against) if given.against else [])
        told = lines(rows)
        if not told:
            raise LoadmasterError("no row of these files is a run of `auto` by seconds")
        if given.plot:
            plot(rows, given.plot)
    except LoadmasterError as error:
        print(f"python -m benchmarks.auto: {error}", file=sys.stderr)
        return 2
    columns = (
        "instance", "ops", "auto, ms", "best other, ms", "by", "auto / other", "gap", "best gap", "best proof",
        "last gain, s",
    )  # fmt: skip
    facts = short(told)
    if given.json:
        cells = [dict(zip(columns, line.cells(), strict=True)) for line in told]
        print(json.dumps({"instances": cells, "in short": dict(facts)}, indent=2))
        return 0
    page = Page("The portfolio against its members", plots=False)
    page.table(columns, [line.cells() for line in told])
    page.section("In short")
    page.table(("what", "how many, how much"), [(what, str(value)) for what, value in facts])
    page.text("Machine: " + "; ".join(sorted({row["machine"] for row in rows if row.get("seconds")})))
    print(page)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
