"""The tables of the held-out graphs: costs as multiples of the best known, and what a training seed is worth."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from benchmarks.gdp.folds import FOLDS, HELD_OUT, fold_of
from loadmaster.studies import Page, Row

__all__ = ["write_context", "write_families", "write_trainings"]

SHOWN = (
    "single", "random, equal", "local-search, equal", "metis", "expert", "heft", "lookahead", "untrained, 3 passes",
    "3 passes", "untrained", "zero-shot",
    "guarded", "untrained, best of 16", "best of 16", "as shipped", "local-search, 500", "untrained, fine-tuned",
    "fine-tuned", "heft + 2 s",
    "rules + 2 s", "untrained+ls", "gdp+ls", "auto", "bound",
)  # fmt: skip


def ratios(rows: Sequence[Row]) -> list[Row]:
    """Costs as multiples of the best known of their graph; columns without a cost are left out."""
    best: dict[tuple[str, str], float] = {}
    for row in rows:
        case = row["graph"], row["cluster"]
        costs = [row[name] for name in SHOWN if name != "bound" and row.get(name) is not None]
        best[case] = min(best.get(case, math.inf), *costs)
    return [
        {key: value for key, value in row.items() if key not in SHOWN}
        | {n: row[n] / best[row["graph"], row["cluster"]] for n in SHOWN if row.get(n) is not None}
        for row in rows
    ]


def mean(rows: Sequence[Row], name: str) -> float:
    """Geometric mean of a column over the rows that have it."""
    found = [row[name] for row in rows if row.get(name)]
    return float(np.exp(np.mean(np.log(found)))) if found else math.nan


def _text(value: float) -> str:
    return f"{value:.3f}" if math.isfinite(value) else ""


def write_families(page: Page, rows: Sequence[Row], seed: int) -> None:
    """Geometric means by family and in all: the mean over the draws, and their range."""
    rows = [row for row in ratios(rows) if row["seed"] == seed]
    draws = sorted({row["draw"] for row in rows})
    families = [family for family in HELD_OUT if any(row["family"] == family for row in rows)]
    graphs = len({(row["graph"], row["cluster"]) for row in rows})
    page.section("Families left out")
    page.text(f"Cost / best known. {graphs} graphs, seeds of the methods: {', '.join(map(str, draws))}.")
    lines = []
    for name in SHOWN:
        each = [mean([row for row in rows if row["draw"] == draw], name) for draw in draws]
        if any(map(math.isfinite, each)):
            alone = [mean([row for row in rows if row["family"] == family], name) for family in families]
            spread = f"{np.nanmin(each):.3f} – {np.nanmax(each):.3f}"
            lines.append((name, _text(mean(rows, name)), spread, *map(_text, alone)))
    page.table(("method", "all", "over the seeds", *families), lines)
    notes = []
    for name, other in (("zero-shot", "heft"), ("zero-shot", "auto"), ("as shipped", "auto")):
        against = [row[name] / row[other] for row in rows if other in row and name in row]
        if against:
            notes.append(
                f"- {name} against {other}: {np.exp(np.mean(np.log(against))):.3f}, worst {max(against):.3f}"
            )
    for name in ("3 passes", "zero-shot", "best of 16", "fine-tuned", "gdp+ls"):
        other = {"zero-shot": "untrained", "gdp+ls": "untrained+ls"}.get(name, f"untrained, {name}")
        each: dict[tuple[str, str], list[float]] = {}
        for row in rows:
            if name in row and other in row:
                each.setdefault((row["graph"], row["cluster"]), []).append(math.log(row[name] / row[other]))
        gain = np.array(
            [np.mean(found) for found in each.values()]
        )  # seeds of one graph are no further graphs
        if len(gain):
            error = 2 * gain.std(ddof=1) / math.sqrt(len(gain)) if len(gain) > 1 else math.nan
            worth = f"{100 * np.expm1(gain.mean()):+.2f} % ± {100 * error:.2f} %"
            notes.append(f"- {name} against {other}: {worth} (two standard errors over {len(gain)} graphs)")
    spent = np.mean([row["seconds"] for row in rows]), np.mean([row["evaluations"] for row in rows])
    notes.append(f"- greedy decoding takes {spent[0]:.2f} s and {spent[1]:.0f} evaluations on average")
    page.text("\n".join(notes))


def write_trainings(page: Page, rows: Sequence[Row]) -> None:
    """Folds that were trained with several seeds: what a seed is worth."""
    rows = [row for row in ratios(rows) if row["draw"] == 0]
    learnt = ("3 passes", "zero-shot", "best of 16", "as shipped", "fine-tuned", "gdp+ls")
    plain = {"zero-shot": "untrained", "gdp+ls": "untrained+ls"}
    lines: list[Sequence[str | int]] = []
    for fold in FOLDS:
        mine = [row for row in rows if fold_of(row["family"]) == fold]
        seeds = sorted({row["seed"] for row in mine})
        if len(seeds) < 2:
            continue
        cells = []
        for seed in seeds:
            part = [row for row in mine if row["seed"] == seed]
            cells.append([mean(part, name) for name in learnt])
            lines.append((fold, seed, len(part), *map(_text, cells[-1])))
        first = [row for row in mine if row["seed"] == seeds[0]]
        untrained = [mean(first, plain.get(name, f"untrained, {name}")) for name in learnt]
        lines.append((fold, "untrained", len(first), *map(_text, untrained)))
        lines.append((fold, "standard deviation", "", *map(_text, np.std(cells, axis=0, ddof=1))))
    if lines:
        page.section("What a training seed is worth")
        page.table(("fold", "trained with seed", "graphs", *learnt), lines)


def write_context(page: Page, rows: Sequence[Row]) -> None:
    """Cost without the context of the graph / cost with it."""
    kinds = ("3 passes", "zero-shot")
    page.table(
        ("graph", "cluster", *kinds), [(r["graph"], r["cluster"], *(r[k] for k in kinds)) for r in rows]
    )
    for kind in kinds:
        gain = np.log([row[kind] for row in rows])
        error = gain.std(ddof=1) / math.sqrt(len(gain)) if len(gain) > 1 else math.nan
        page.text(f"{kind}: without the context {100 * np.expm1(gain.mean()):+.2f} % ± {100 * error:.2f} %")
