"""``auto`` against its members and all other methods, alone with the same seconds.

    python -m benchmarks.auto --rows auto.jsonl                     # everything: hours; the same command goes on
    python -m benchmarks.auto --rows auto.jsonl --only gnmt --methods auto,multilevel
    python -m benchmarks.auto --rows auto.jsonl --sets zoo --repeat 3
    python -m benchmarks.auto --rows sample.jsonl --sets zoo --sample 27 --seconds 10   # half an hour

The cases are a plain list: the published workloads under the models they were published for (42), the zoo under three
execution models (72), and graphs of 50,000 to 1,000,000 ops (12). On :data:`DRAWN` of them all methods run. The budget
is 10 seconds, 30 above 5,000 ops; the machine should be otherwise idle. ``--sample`` draws some of the cases by a fixed
seed, as many of each execution model, and runs the strongest members only (:data:`STRONGEST`).
"""

from __future__ import annotations

import argparse
import random
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path
from statistics import mean, median
from typing import Any

from benchmarks.comparisons import ZOO
from loadmaster import api
from loadmaster.files import add_limits
from loadmaster.placers import PLACERS
from loadmaster.problem import Problem
from loadmaster.studies import Case, Page, Row, Scope, Study, number, percent, placed

__all__ = ["LARGE", "STUDY", "Instance", "instances"]

SECONDS, MORE_SECONDS, MANY = 10.0, 30.0, 5000
"""The budget, and what it is above so many ops."""
ALLOWED = (0.05, 0.5)
"""Over the deadline: a share of it, and seconds."""
DRAWN, DRAWN_BY = 20, 21
"""Cases on which all methods run, and the seed they are drawn by."""
NEAR, FAR = 0.005, 0.02
"""How much worse than the best other method ``auto`` may be, on nearly all cases and on every case."""

GPT = "gpt2?seq=64&width=64&heads=4&vocabulary=1000&training=1&layers="
LARGE = (
    ("layered-50000", "4acc+1cpu"), ("layered-200000", "4acc+1cpu"), ("layered-1000000", "4acc+1cpu"),
    (f"{GPT}750", "p100-4"), (f"{GPT}2900", "p100-4"), (f"{GPT}14500", "p100-4"),
)  # fmt: skip
"""Model and cluster: of 50,000 to 1,000,000 ops."""

SEARCHES = ("local-search", "annealing", "multilevel", "gdp", "gdp+ls")
MEMBERS = {
    "serial": ("min-cut", *SEARCHES),
    "concurrent": ("heft", "lookahead", "expert", "beam", "cp-sat", *SEARCHES),
    "pipeline": ("segments", "expert", "frontier", "exact", *SEARCHES),
    "chain": ("ideal-dp", "linear-dp", *SEARCHES),
    "offload": ("calls", "cp-sat", *SEARCHES),
}
"""What runs beside ``auto``, by execution model; a method that does not support a problem leaves a dash."""
STRONGEST = {
    "serial": ("min-cut", "local-search", "gdp+ls"),
    "concurrent": ("beam", "multilevel", "local-search", "gdp", "gdp+ls"),
    "pipeline": ("frontier", "multilevel", "local-search", "gdp", "gdp+ls"),
    "chain": ("ideal-dp", "linear-dp", "gdp+ls"),
    "offload": ("calls", "local-search", "gdp+ls"),
}
"""The same for a sample: whose placements ``auto`` mostly returns, and the learned start with local search."""


@dataclass(frozen=True)
class Instance:
    """A problem by name: what it is made of, and what it is part of."""

    name: str
    source: str
    kind: str
    """A key of :data:`MEMBERS`."""
    part: str
    cluster: str | None = None
    contiguity: str | None = None

    def make(self) -> Problem:
        """The problem."""
        if self.part == "large":
            add_limits(["layers=2M"])  # networks built layer by layer usually end at 200,000 ops
        model = "pipeline" if self.kind == "chain" else self.kind
        settings = {"contiguity": self.contiguity} if self.contiguity else {}
        return api.problem(self.source, self.cluster, None if self.cluster is None else model, **settings)


def instances(workloads: Path | None) -> Iterator[Instance]:
    """All cases; without the folder of the workloads only those that are made here."""
    for path in sorted(workloads.glob("msr/throughput/*/*.json")) if workloads else ():
        for contiguity in ("chain", "device", "none"):
            kind = "chain" if contiguity == "chain" else "pipeline"
            name = f"{path.parent.name}/{path.stem}, {contiguity}"
            yield Instance(name, str(path), kind, "workloads", contiguity=contiguity)
    for path in sorted(workloads.glob("msr/latency/*/*.json")) if workloads else ():
        yield Instance(f"{path.parent.name}/{path.stem}, offload", str(path), "offload", "workloads")
    for model, cluster in ZOO:
        for kind in ("serial", "concurrent", "pipeline"):
            yield Instance(f"{model} on {cluster}, {kind}", f"zoo:{model}", kind, "zoo", cluster)
    for model, cluster in LARGE:
        for kind in ("concurrent", "pipeline"):
            yield Instance(f"{model} on {cluster}, {kind}", f"zoo:{model}", kind, "large", cluster)


def options(parser: argparse.ArgumentParser) -> None:
    """What to run of all this."""
    parser.add_argument("--sets", default="workloads,zoo,large", help="some of workloads, zoo, large")
    parser.add_argument("--methods", default="", help="only these, by commas (default: auto and its members)")
    parser.add_argument("--seconds", type=float, help="for all, instead of 10 and 30")
    parser.add_argument("--repeat", type=int, default=1, help="seeds of auto (1)")
    parser.add_argument(
        "--sample", type=int, help="only so many cases, drawn, and only the strongest members"
    )


def sampled(given: Sequence[Instance], count: int) -> list[Instance]:
    """Cases drawn by seed, as many of each execution model as there are (or one more), in the order given."""
    draw = random.Random(DRAWN_BY)
    piles = {kind: [g for g in given if g.kind == kind] for kind in MEMBERS}
    for pile in piles.values():
        draw.shuffle(pile)
    chosen: set[str] = set()
    while len(chosen) < min(count, len(given)):
        for pile in piles.values():
            if pile and len(chosen) < count:
                chosen.add(pile.pop().name)
    return [g for g in given if g.name in chosen]


def cases(scope: Scope) -> list[Case]:
    """``auto`` on everything first, then the members, then all methods on the cases that are drawn."""
    everything = list(instances(scope.workloads))
    drawn = set(
        random.Random(DRAWN_BY).sample([given.name for given in everything], min(DRAWN, len(everything)))
    )
    chosen = [g for g in everything if g.part in scope["sets"].split(",") and scope.only in g.name]
    few = scope["sample"] is not None
    chosen = sampled(chosen, scope["sample"]) if few else chosen
    wanted = scope["methods"].split(",") if scope["methods"] else []
    found = []
    for stage in range(3):
        for given in chosen:
            others = [name for name in PLACERS if name != "auto" and name not in MEMBERS[given.kind]]
            runs: Sequence[tuple[str, int]] = (
                [("auto", seed) for seed in range(scope["repeat"])],
                [(name, 0) for name in (STRONGEST if few else MEMBERS)[given.kind]],
                [(name, 0) for name in others] if given.name in drawn and not few else [],
            )[stage]
            for method, seed in runs:
                if not wanted or method in wanted:
                    key: Row = {"case": given.name, "method": method, "seed": seed, "given": scope["seconds"]}
                    found.append(Case(key, partial(_run, given, method, seed, scope["seconds"])))
    return found


@lru_cache(maxsize=1)
def _problem(given: Instance) -> Problem:
    return given.make()


def _run(given: Instance, method: str, seed: int, seconds: float | None) -> Mapping[str, Any]:
    problem = _problem(given)
    budget = seconds or (MORE_SECONDS if problem.n > MANY else SECONDS)
    began = time.perf_counter()
    row = placed(problem, method, budget=budget, seed=seed)
    wall = time.perf_counter() - began
    return {"kind": given.kind, "part": given.part, "ops": problem.n, "budget": budget, "wall": wall, **row}


# -- the page ------------------------------------------------------------------------------------------------


def write(page: Page, scope: Scope, rows: Sequence[Row]) -> None:
    """A line for each case, then what was promised and what came of it."""
    known = [given.name for given in instances(scope.workloads)]
    groups = {name: [row for row in rows if row["case"] == name] for name in known}
    told = [_Told(name, mine) for name, mine in groups.items() if any(r["method"] == "auto" for r in mine)]
    page.text(
        f"Milliseconds; `auto` (median of its seeds) on {len(told)} of {len(known)} cases, "
        f"with other methods beside it on {sum(line.best is not None for line in told)}."
    )
    page.table(
        (
            "case",
            "ops",
            "auto",
            "best other",
            "by",
            "auto / other",
            "bound",
            "proved by",
            "gap",
            "last gain, s",
            "s",
        ),
        [line.cells() for line in told],
    )
    compared = [line for line in told if line.ratio is not None]
    facts: list[tuple[str, object]] = []
    if compared:
        ratios = [line.ratio or 0.0 for line in compared]
        facts.append(
            (f"at most {100 * NEAR} % worse", f"{sum(r <= 1 + NEAR for r in ratios)} of {len(ratios)}")
        )
        facts.append((f"over {100 * FAR:g} % worse", sum(r > 1 + FAR for r in ratios)))
        facts.append(("worst", f"{max(ratios):.4f}"))
        many = [line.ratio or 0.0 for line in compared if line.ops > MANY]
        if many:
            facts.append((f"mean above {MANY:,} ops", f"{mean(many):.4f} ({len(many)} cases)"))
    facts.append(("over the deadline", sum(line.late for line in told)))
    for kind in MEMBERS:
        gaps = [line.gap for line in told if line.kind == kind and line.gap is not None]
        if gaps:
            facts.append((f"gap, {kind}", f"median {percent(median(gaps))}, worst {percent(max(gaps))}"))
    page.section("In short")
    page.table(("what", "how many, how much"), facts)


class _Told:
    """What is known about one case."""

    def __init__(self, name: str, rows: Sequence[Row]) -> None:
        mine = [row for row in rows if row["method"] == "auto"]
        costs = [row["cost"] for row in mine if row["cost"] is not None]
        others = [row for row in rows if row["method"] != "auto" and row["cost"] is not None]
        self.name, self.ops, self.kind = name, mine[0]["ops"], mine[0]["kind"]
        self.cost = median(costs) if costs else None
        self.best = min(others, key=lambda row: row["cost"], default=None)
        best_proof = max(rows, key=lambda row: row.get("bound") or 0.0)
        self.bound, self.proved_by = best_proof.get("bound") or 0.0, best_proof.get("bound_by") or "-"
        self.last = max((row.get("last_improvement") or 0.0 for row in mine), default=0.0)
        self.wall = max(row["wall"] for row in mine)
        share, seconds = ALLOWED
        # Compiling kernels is announced and is not part of the budget: the solution's own clock counts.
        self.late = any((row.get("seconds") or 0.0) > (1 + share) * row["budget"] + seconds for row in mine)
        self.ratio = self.cost / self.best["cost"] if self.best and self.cost is not None else None
        self.gap = 1 - self.bound / self.cost if self.cost else None

    def cells(self) -> tuple[object, ...]:
        """A line of the table."""
        best = self.best
        return (
            self.name,
            self.ops,
            number(1e3 * self.cost) if self.cost is not None else "-",
            number(1e3 * best["cost"]) if best else "-",
            best["method"] if best else "-",
            f"{self.ratio:.4f}" if self.ratio is not None else "-",
            number(1e3 * self.bound),
            self.proved_by,
            percent(self.gap),
            number(self.last, 2),
            number(self.wall, 2),
        )


STUDY = Study("auto", "The portfolio against its members", cases, write, options)

if __name__ == "__main__":
    raise SystemExit(STUDY.main())
