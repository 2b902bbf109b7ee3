"""The page of the reproduction of GDP: costs, speed-ups, transfer, ablations, effort."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from loadmaster.studies.gdp.models import (
    ABLATIONS,
    FINE_TUNING,
    GROUPS,
    MANY,
    MODELS,
    RULES,
    SEARCHES,
    Model,
)
from loadmaster.studies.harness.page import Page, number
from loadmaster.studies.harness.study import Row, Scope

__all__ = ["write"]


def write(page: Page, scope: Scope, rows: Sequence[Row]) -> None:
    """Costs, speed-ups beside the published ones, transfer, ablations, effort."""
    page.text(
        "The twelve graphs of table 1 of *GDP: Generalized Device Placement for Dataflow Graphs* (Zhou et al., 2019), "
        "a training step each, rebuilt op by op in the zoo and placed on one CPU and two to eight P100 as the presets "
        "`p100-2`, `p100-4` and `p100-8` describe them, under `concurrent`. **All seconds of ours are simulated**: "
        "they rank placements and are not comparable with the seconds that the paper measured, whose graphs are not "
        "public and whose batch sizes and lengths are not known. The published seconds are quoted from memory of the "
        "paper's table, whose abstract gives a mean speed-up of 16 % over experts and 9.2 % over HDP."
    )
    page.text(
        "Speed-up always is time of the baseline / time of ours, means over graphs are geometric. `gdp-paper` is GDP "
        "as published, trained on the one graph from random weights; `gdp` is ours, tuned on the one graph "
        "(`--set tune=true`) from weights that were pre-trained (on families of the zoo, too); `gdp untrained` is "
        "the same from weights that were not; `gdp zero-shot` is ours without tuning, some 150 evaluations; `gdp+ls` "
        "goes on from that with local search. All of ours also try `heft`, `expert` and every single device. "
        f"On graphs of more than {MANY:,} ops the networks of `gdp-paper` and `hdp` decide about groups "
        f"(`{GROUPS}`, together with ops that share a weight), every placement being costed on all ops; `rnn` always "
        "places groups of its own. `hdp` and `rnn` cost a draw that overfills a memory as the nearest that does not, "
        "`gdp-paper` counts it as failed. METIS here moves what does not fit, so that it never runs out of memory."
    )
    table = _Results(rows)
    if not table.models:
        page.text("Nothing has run yet.")
        return
    _write_costs(page, table)
    _write_speedups(page, table)
    _write_transfer(page, table)
    _write_ablations(page, table)
    _write_effort(page, table)
    _write_summary(page, table)


class _Results:
    """The rows by what is asked of them."""

    def __init__(self, rows: Sequence[Row]) -> None:
        self.rules = {row["model"]: row for row in rows if row["part"] == "rules"}
        self.auto = {row["model"]: row for row in rows if row["part"] == "auto"}
        self.one = [row for row in rows if row["part"] == "one"]
        self.batch = {row["variant"]: row for row in rows if row["part"] == "batch"}
        self.held = [row for row in rows if row["part"] == "held out"]
        self.models = [m for m in MODELS if m.title in self.rules]

    def runs(self, model: str, method: str, variant: str = "") -> list[Row]:
        """The seeds of a method."""
        key = (model, method, variant)
        return [row for row in self.one if (row["model"], row["method"], row["variant"]) == key]

    def cost(self, model: str, method: str, variant: str = "") -> float | None:
        """Seconds: of a rule, of ``auto``, or the mean over seeds of a search."""
        if method in RULES:
            return self.rules[model].get(method)
        if method == "auto":
            return self.auto[model]["cost"] if model in self.auto else None
        found = [row["cost"] for row in self.runs(model, method, variant)]
        return sum(found) / len(found) if found else None

    def speedup(self, model: str, base: str, ours: str) -> float | None:
        """Time of the baseline / time of ours."""
        a, b = self.cost(model, base), self.cost(model, ours)
        return a / b if a and b else None

    def moved(self, which: str, model: str) -> Row | None:
        """A hold-out result of a graph."""
        return next((row[which][model] for row in self.held if model in row[which]), None)


def _mean(values: Iterable[float | None]) -> float | None:
    there = [math.log(v) for v in values if v]
    return math.exp(sum(there) / len(there)) if there else None


def _ms(value: float | None) -> str:
    return "-" if value is None else f"{1e3 * value:.1f}"


def _times(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"


def _write_costs(page: Page, table: _Results) -> None:
    page.section("Time of a step")
    seeds = sorted({row["seed"] for row in table.one})
    limits = sorted({row["evaluations"] for row in table.one})
    page.text(
        "Milliseconds, simulated. Searches from random to `gdp+ls` have at most "
        f"{' or '.join(f'{n:,}' for n in limits)} evaluations each (fewer on GNMT in the full run); mean of "
        f"{len(seeds)} seed{'s' if len(seeds) > 1 else ''}, with the range of `gdp-paper` in brackets. "
        "`auto` has half a minute (5 s in a quick run). The bound is proven: no placement is faster."
    )
    searches = (
        "random",
        "local-search",
        "rnn",
        "hdp",
        "gdp-paper",
        "gdp zero-shot",
        "gdp untrained",
        "gdp",
        "gdp+ls",
    )
    lines = []
    for model in table.models:
        rules = table.rules[model.title]
        cells = [_ms(table.cost(model.title, method)) for method in (*RULES, *searches, "auto")]
        spread = [row["cost"] for row in table.runs(model.title, "gdp-paper")]
        if len(spread) > 1:
            at = len(RULES) + searches.index("gdp-paper")
            cells[at] += f" ({_ms(min(spread))} to {_ms(max(spread))})"
        auto = table.auto.get(model.title)
        bound = max(rules["bound"], auto["bound"] if auto else 0.0)
        gap = f"{100 * (1 - bound / auto['cost']):.1f} %" if auto else "-"
        lines.append((model.title, model.gpus, rules["ops"], rules["nodes"], *cells, _ms(bound), gap))
    page.table(
        ("model", "GPUs", "ops", "decisions", *RULES, *searches, "auto", "bound", "gap of auto"), lines
    )
    shown = ("metis", "heft", "rnn", "hdp", "gdp-paper", "gdp", "auto")
    page.bars(
        "speedup",
        [model.title for model in table.models],
        {
            method: [table.speedup(model.title, "expert", method) for model in table.models]
            for method in shown
            if any(table.cost(model.title, method) for model in table.models)
        },
        "time of the expert / time of the method",
        line=1.0,
    )


def _write_speedups(page: Page, table: _Results) -> None:
    page.section("Speed-up over experts and over HDP, beside the published one")
    pairs = [
        (f"{ours} over {base}", base, ours)
        for ours in ("gdp-paper", "gdp")
        for base in ("expert", "hdp", "rnn")
        if any(table.speedup(m.title, base, ours) for m in table.models)
    ]
    lines: list[tuple[str, ...]] = []
    for m in table.models:
        ours = (_times(table.speedup(m.title, base, name)) for _, base, name in pairs)
        lines.append((m.title, _times(m.human / m.gdp), _times(m.hdp / m.gdp), *ours))
    means = (_mean(table.speedup(m.title, base, name) for m in table.models) for _, base, name in pairs)
    published = (_mean(m.human / m.gdp for m in table.models), _mean(m.hdp / m.gdp for m in table.models))
    lines.append(("**geometric mean**", *map(_times, published), *map(_times, means)))
    page.table(
        ("model", "published: over experts", "published: over HDP", *(title for title, _, _ in pairs)), lines
    )


def _write_transfer(page: Page, table: _Results) -> None:
    if not table.batch and not table.held:
        return
    page.section("Batch training, zero-shot and fine-tuning (`gdp-paper`)")
    page.text(
        "Speed-up over `gdp-paper` trained on the one graph (above 1 is better than that). *Batch*: one policy "
        "trained on all graphs at once but GNMT, which no batch has, for its size. The hold-out columns leave the "
        "whole family out of the training, where the paper leaves out the graph alone. *Zero-shot*: the best of the "
        "likeliest placement and 16 draws; "
        "*untrained*: the same from random weights; "
        f"*fine-tuned*: {FINE_TUNING} updates. Published (from memory): batch between 5 % slower and 15 % faster "
        "than one graph, zero-shot a little behind fine-tuning, both ahead of experts and HDP on nearly all graphs."
    )
    full = table.batch.get("", {}).get("costs", {})

    def values(m: Model) -> list[float | None]:
        one = table.cost(m.title, "gdp-paper")
        expert = table.cost(m.title, "expert")
        moved = [table.moved(which, m.title) for which in ("untrained", "zero", "tuned")]
        costs = [full.get(m.title), *(row["cost"] if row else None for row in moved)]
        tuned = costs[-1]
        return [
            *(one / cost if one and cost else None for cost in costs),
            expert / tuned if expert and tuned else None,
        ]

    lines = [(m.title, *map(_times, values(m))) for m in table.models]
    columns = list(zip(*(values(m) for m in table.models), strict=True))
    lines.append(("**geometric mean**", *(_times(_mean(column)) for column in columns)))
    page.table(("model", "batch", "untrained", "zero-shot", "fine-tuned", "fine-tuned over experts"), lines)


def _write_ablations(page: Page, table: _Results) -> None:
    full = table.batch.get("", {}).get("costs", {})
    page.section("Ablation of attention and superposition (`gdp-paper`)")
    page.text(
        "Time without the part / time with it (above 1: the part helps). One graph: seed 0; batch: all graphs at "
        "once. Published (from memory): attention 1.18, superposition 1.065 in batch training."
    )
    lines = []
    columns: list[list[float | None]] = [[], [], []]
    for m in table.models:
        same = [row["cost"] for row in table.runs(m.title, "gdp-paper") if row["seed"] == 0]
        bare = table.cost(m.title, "gdp-paper", "without attention")
        found: list[float | None] = [bare / same[0] if bare and same else None]
        for variant in ABLATIONS:
            cost = table.batch.get(variant, {}).get("costs", {}).get(m.title)
            found.append(cost / full[m.title] if cost and m.title in full else None)
        for column, value in zip(columns, found, strict=True):
            column.append(value)
        lines.append((m.title, *map(_times, found)))
    lines.append(("**geometric mean**", *(_times(_mean(column)) for column in columns)))
    page.table(("model", "attention, one graph", "attention, batch", "superposition, batch"), lines)


def _write_effort(page: Page, table: _Results) -> None:
    page.section("What the search costs")
    page.text(
        "Evaluations made, evaluations after which the best was within 1 % of what the run ended with, and CPU "
        "seconds of one core (the first run of a method also compiles its kernels), means over seeds. Published: "
        "GDP's search is 15 times as fast as HDP's, by geometric mean."
    )
    methods = [m for m in SEARCHES if any(row["method"] == m for row in table.one)]

    def cell(model: str, method: str) -> str:
        runs = table.runs(model, method)
        if not runs:
            return "-"
        means = (
            sum(row[key] for row in runs) / len(runs)
            for key in ("evaluations_made", "within_1_percent_after", "cpu_seconds")
        )
        made, near, seconds = means
        return f"{made:,.0f} / {near:,.0f} / {number(seconds, 2)} s"

    page.table(
        ("model", *methods),
        [(m.title, *(cell(m.title, method) for method in methods)) for m in table.models],
    )


def _write_summary(page: Page, table: _Results) -> None:
    page.section("In short")
    lines = []
    for ours in ("gdp-paper", "gdp zero-shot", "gdp", "gdp+ls"):
        for base in ("hdp", "rnn"):
            pairs = [v for m in table.models if (v := table.speedup(m.title, base, ours))]
            if pairs:
                level = sum(v >= 1 - 1e-9 for v in pairs)
                lines.append(
                    f"- `{ours}` is at least as good as `{base}` at equal evaluations on {level} of {len(pairs)} "
                    f"graphs (mean speed-up {_times(_mean(pairs))})."
                )
    for base in ("heft", "local-search", "auto", "gdp untrained"):
        for ours in ("gdp-paper", "gdp zero-shot", "gdp"):
            pairs = [v for m in table.models if (v := table.speedup(m.title, base, ours))]
            if pairs:
                beaten = sum(v < 1 - 1e-9 for v in pairs)
                lines.append(
                    f"- `{base}` beats `{ours}` on {beaten} of {len(pairs)} graphs (mean speed-up of `{ours}` over it "
                    f"{_times(_mean(pairs))})."
                )
    page.text("\n".join(lines) or "Nothing to compare yet.")
