"""The page of HSDAG's tables: published numbers beside ours, and what the paper does not have."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import mean
from typing import Any

from loadmaster.studies.harness.page import Page, number, percent
from loadmaster.studies.harness.study import Row, Scope
from loadmaster.studies.hsdag.variants import PUBLISHED_VARIANTS

__all__ = ["PUBLISHED", "write"]

MODELS = ("inception-v3", "resnet-50", "bert-base")

GRAPHS = {"inception-v3": (728, 764), "resnet-50": (396, 411), "bert-base": (1009, 1071)}
"""Table 1 of the paper: nodes and edges before co-location."""

PUBLISHED: dict[str, tuple[float | None, float | None, float | None]] = {
    "cpu": (0.0128, 0.0160, 0.00638),
    "gpu": (0.0120, 0.00781, 0.00277),
    "openvino-cpu": (0.0128, 0.0234, 0.00657),
    "openvino-gpu": (0.0138, 0.00876, 0.00284),
    "placeto": (0.0116, 0.00932, 0.00651),
    "rnn": (0.0128, 0.00875, None),
    "hsdag-paper": (0.0105, 0.00766, 0.00267),
}
"""Table 2: seconds on the three models; the RNN ran out of memory on BERT."""
ABLATION = {
    "without output shape": (0.0117, 0.00768, 0.00278),
    "without position": (0.0117, 0.00768, 0.00279),
    "without structure (fractal, degrees)": (0.0109, 0.00766, 0.00268),
}
"""Table 3."""
AGREEMENT = {"CPU vs GPU": (3.049e-05, 0.999, 0.432), "CPU vs HSDAG": (6.819e-07, 0.999, 0.064),
             "GPU vs HSDAG": (3.174e-05, 0.999, 0.441)}  # fmt: skip
"""Table 4, BERT: mean squared error, cosine, Euclidean distance."""
SEARCH: dict[str, tuple[float | None, float | None, float | None]] = {
    "placeto": (2808, 1162, 4512),
    "rnn": (3706, 1212, None),
    "hsdag-paper": (2454, 1047, 2765),
}
"""Table 5: seconds of searching."""

TITLES = {
    "cpu": "CPU-only",
    "gpu": "GPU-only",
    "openvino-cpu": "OpenVINO, CPU first",
    "openvino-gpu": "OpenVINO, GPU first",
    "heft": "HEFT",
    "random": "random",
    "local-search": "local search",
    "placeto": "Placeto",
    "rnn": "RNN",
    "hsdag-paper": "HSDAG as published",
    "hsdag": "HSDAG, ours",
}


def write(page: Page, scope: Scope, rows: Sequence[Row]) -> None:
    """The paper's five tables, and a list of what they show."""
    page.text(
        "*A Structure-Aware Framework for Learning Device Placements on Computation Graphs* (Duan et al., "
        "NeurIPS 2024) "
        "places Inception-V3, ResNet-50 and BERT on a Core i9-12900K and a Flex 170. We have neither; so every "
        "table is "
        "made on a model of that machine (preset `hsdag-study`); table 4 is made on real devices of the "
        "machine "
        "that ran this page.\n\n"
        "**Seconds of the modelled machine are not measured.** Op times are scaled so that CPU-only and "
        "GPU-only take what the "
        "paper says: agreement with these two columns is by construction, and most of the published speed-up "
        "over CPU-only "
        "comes free with it. Only what a method gains over the best single device is informative. The graphs "
        "are those of "
        "our own zoo with the ops fused that OpenVINO fuses and chains co-located (the paper's rule); all "
        "methods decide "
        "about the same nodes. Seconds include a fixed time per request (0.15, 0.15 and 0.075 ms)."
    )
    parts: dict[str, list[Row]] = {}
    for row in rows:
        parts.setdefault(row["part"], []).append(row)
    _graphs(page, parts.get("graph", []))
    optima = {(row["execution"], row["model"]): row for row in parts.get("optimum", [])}
    methods = parts.get("method", [])
    for execution in ("serial", "concurrent"):
        for evaluations in sorted({row["evaluations"] for row in methods if row["execution"] == execution}):
            chosen = [r for r in methods if r["execution"] == execution and r["evaluations"] == evaluations]
            _main(page, execution, evaluations, optima, chosen)
    _ablations(page, parts.get("ablation", []), methods, optima)
    _agreement(page, parts.get("measured", []))
    _search(page, methods, optima)
    _summary(page, methods, optima)


def _models(rows: Sequence[Row]) -> list[str]:
    there = {row["model"] for row in rows}
    return [name for name in MODELS if name in there]


def _graphs(page: Page, rows: Sequence[Row]) -> None:
    if not rows:
        return
    page.section("Table 1: the graphs")
    page.text(
        "Nodes / edges. The paper counts all layers of OpenVINO's file, more than half of them constants and their "
        "conversion, and does not say how many are left after co-location. `kernels`: what OpenVINO runs as "
        "one is one, "
        "constants belong to their readers; `kchain`: chains of those, on which everything below is placed."
    )

    def pair(value: Any) -> str:
        return "-" if value is None else f"{value[0]:,} / {value[1]:,}"

    page.table(
        ("model", "published", "ours", "co-located", "kernels", "kchain"),
        [
            (
                row["model"],
                pair(GRAPHS[row["model"]]),
                pair(row["ours"]) if row["ours"] else f"- ({row['why']})",
                pair(row["colocated"]),
                pair(row["kernels"]),
                pair(row["kchain"]),
            )
            for row in rows
        ],
    )


def _seeds(rows: Sequence[Row], model: str, method: str) -> list[float]:
    return [
        r["cost"] for r in rows if r["model"] == model and r["method"] == method and r["cost"] is not None
    ]


def _spread(costs: Sequence[float], base: float) -> str:
    """Mean of the seeds in milliseconds, and their range where they differ."""
    if not costs:
        return "-"
    low, high = 1e3 * (min(costs) + base), 1e3 * (max(costs) + base)
    text = f"{1e3 * (mean(costs) + base):.4g}"
    return text if high - low < 5e-4 * high else f"{text} ({low:.4g} – {high:.4g})"


def _main(page: Page, execution: str, evaluations: int, optima: Any, rows: Sequence[Row]) -> None:
    models = [name for name in _models(rows) if (execution, name) in optima]
    if not models:
        return
    page.section(f"Table 2, {execution}, {evaluations:,} evaluations")
    what = (
        "As OpenVINO's HETERO runs a request: submodels one after another. The optimum is proved by a minimum cut."
        if execution == "serial"
        else "Both devices work at once, which HETERO cannot: what the same placements would be worth on a "
        "runtime that can. "
        "The best known is `auto`'s, with its bound."
    )
    counts = {len(_seeds(rows, m, method)) for m in models for method in ("hsdag", "rnn", "random")} - {0}
    page.text(
        f"{what} Milliseconds; published in brackets. Random and everything below it had at most "
        f"{evaluations:,} evaluations, "
        f"{max(counts, default=0)} "
        "seed(s): mean (smallest – largest). 'Over single' is the gain of the mean over the better single device."
    )
    table: list[list[Any]] = []
    for method, title in TITLES.items():
        line: list[Any] = [title]
        for model in models:
            best = optima[execution, model]
            base, single = best["base"], min(best["cpu"], best["gpu"])
            costs = _seeds(rows, model, method) if best.get(method) is None else [best[method]]
            theirs = PUBLISHED.get(method, (None,) * 3)[MODELS.index(model)] if method in PUBLISHED else None
            known = f" [{1e3 * theirs:.4g}]" if theirs is not None else " [OOM]" if method == "rnn" else ""
            gain = percent(1 - (mean(costs) + base) / (single + base)) if costs else "-"
            line += [_spread(costs, base) + known, gain]
        if any(cell not in ("-", " [OOM]") for cell in line[2::2]):
            table.append(line)
    end: list[Any] = ["**proved optimum**" if execution == "serial" else "**best known**"]
    bound: list[Any] = ["lower bound"]
    for model in models:
        best = optima[execution, model]
        base, single = best["base"], min(best["cpu"], best["gpu"])
        end += [_spread([best["cost"]], base), percent(1 - (best["cost"] + base) / (single + base))]
        bound += [_spread([best["bound"]], base), percent(1 - (best["bound"] + base) / (single + base))]
    table += [end, bound]
    columns = ["method"]
    for model in models:
        columns += [model, "over single"]
    page.table(columns, table)
    shown = ("random", "local-search", "placeto", "rnn", "hsdag-paper", "hsdag")
    page.bars(
        f"{execution}-{evaluations}",
        models,
        {
            TITLES[method]: [
                100 * (mean(costs) / optima[execution, model]["cost"] - 1)
                if (costs := _seeds(rows, model, method))
                else None
                for model in models
            ]
            for method in shown
        },
        "% above the best known",
    )


def _ablations(page: Page, rows: Sequence[Row], methods: Sequence[Row], optima: Any) -> None:
    models = [name for name in _models(rows) if ("serial", name) in optima]
    if not models:
        return
    evaluations = rows[0]["evaluations"]
    page.section("Table 3: ablations")
    page.text(
        f"`serial`, {evaluations:,} evaluations; per cent above the proved optimum, mean of the seeds (worst). "
        "In brackets the published seconds as per cent above the published HSDAG. What the paper has no ablation of: "
        "learning itself, the groups, and that every node must join one."
    )
    whole = [r | {"variant": r["method"]} for r in methods
             if r["execution"] == "serial" and r["evaluations"] == evaluations]  # fmt: skip
    table = []
    for method in ("hsdag-paper", "hsdag"):
        mine = [row for row in (*whole, *rows) if row["method"] == method]
        for variant in dict.fromkeys(row["variant"] for row in mine):
            line = [TITLES[method] if variant == method else f"– {variant}"]
            for at, model in enumerate(models):
                optimum = optima["serial", model]["cost"]
                costs = [
                    r["cost"]
                    for r in mine
                    if r["variant"] == variant and r["model"] == model and r["cost"] is not None
                ]
                gaps = [100 * (cost / optimum - 1) for cost in costs]
                text = f"{mean(gaps):.2f} ({max(gaps):.2f})" if gaps else "-"
                if method == "hsdag-paper" and variant in PUBLISHED_VARIANTS:
                    at = MODELS.index(model)
                    theirs, full = ABLATION[variant][at], PUBLISHED["hsdag-paper"][at]
                    assert full is not None
                    text += f" [+{100 * (theirs / full - 1):.1f}]"
                line.append(text)
            table.append(line)
    page.table(("variant", *models), table)


def _agreement(page: Page, rows: Sequence[Row]) -> None:
    if not rows:
        return
    page.section("Table 4, and real runs on this machine")
    done = [row for row in rows if "runs" in row]
    page.text(
        "Two devices made of the processor of this machine, each on the same single core; the first op is "
        "pinned to A "
        "and the last to B, so that there is a split. Profiled, placed by every method on the profile (2,000 "
        "evaluations), then run through HETERO: medians and 95 % intervals in ms. **Every run's outputs were "
        "compared with "
        "the unplaced model's before it was timed.** Clock `core`: time on the core, because the machine was "
        "not calm."
    )
    for row in rows:
        if "runs" not in row:
            page.text(f"{row['model']}: not run: {row['why']}.")
    for row in done:
        precision = " and ".join(row["precision"])
        page.text(f"**{row['model']}**, {row['ops']} ops, A and B in {precision}, clock `{row['clock']}`:")
        page.table(
            ("run", "median", "95 %", "predicted", "submodels"),
            [
                (
                    name,
                    f"{1e3 * run['median']:.2f}",
                    f"{1e3 * run['low']:.2f} – {1e3 * run['high']:.2f}",
                    "-" if run["predicted"] is None else f"{1e3 * run['predicted']:.2f}",
                    run["submodels"],
                )
                for name, run in row["runs"].items()
            ],
        )
    if done:
        page.text(
            "Agreement of outputs, all outputs as one vector. The paper's GPU evidently computed in lower "
            "precision; here "
            "both devices are the same processor."
        )
        lines: list[tuple[Any, ...]] = [
            ("bert-base, published", pair, *(f"{value:.4g}" for value in values))
            for pair, values in AGREEMENT.items()
        ]
        for row in done:
            for pair, values in row["agreement"].items():
                lines.append((row["model"], pair, *(f"{values[key]:.4g}" for key in ("mse", "cosine", "l2"))))
        page.table(("model", "pair", "mean squared error", "cosine", "L2"), lines)


def _reached(row: Row, target: float) -> int | None:
    return next((made for made, cost in row["history"] if cost <= target), None)


def _search(page: Page, methods: Sequence[Row], optima: Any) -> None:
    rows = [row for row in methods if row["cost"] is not None]
    models = _models(rows)
    if not models:
        return
    page.section("Table 5: search time")
    page.text(
        "CPU seconds of the whole search here, mean of the seeds; evaluations after which a seed was within 1 "
        "% of the optimum or "
        "best known, each ('–' never; local search tells at the end of a stretch only). The paper's seconds "
        "(in brackets) are measurements on hardware, about a "
        "second each; ours are simulated, so that the seconds do not compare and the evaluations do."
    )
    table = []
    for execution in ("serial", "concurrent"):
        for evaluations in sorted({row["evaluations"] for row in rows}):
            for method in ("placeto", "rnn", "hsdag-paper", "hsdag", "local-search", "random"):
                line: list[Any] = [execution, f"{evaluations:,}", TITLES[method]]
                for model in models:
                    mine = [
                        r for r in rows
                        if (r["execution"], r["evaluations"], r["method"], r["model"])
                        == (execution, evaluations, method, model)
                    ]  # fmt: skip
                    if not mine or (execution, model) not in optima:
                        line.append("-")
                        continue
                    target = 1.01 * optima[execution, model]["cost"]
                    after = [_reached(row, target) for row in mine]
                    theirs = SEARCH.get(method, (None,) * 3)[MODELS.index(model)]
                    known = f" [{theirs:,}]" if theirs else " [OOM]" if method == "rnn" else ""
                    counts = ", ".join("–" if count is None else f"{count:,}" for count in after)
                    line.append(f"{mean(r['cpu_seconds'] for r in mine):.3g} s{known}; {counts}")
                if any(cell != "-" for cell in line[3:]):
                    table.append(line)
    page.table(("execution", "evaluations", "method", *models), table)


def _summary(page: Page, methods: Sequence[Row], optima: Any) -> None:
    """Counted, not judged: who was at least as good as whom, seed means."""
    lines = []
    for execution, evaluations in sorted(
        {(row["execution"], row["evaluations"]) for row in methods},
        key=lambda pair: (pair[0] != "serial", pair[1]),
    ):
        rows = [r for r in methods if (r["execution"], r["evaluations"]) == (execution, evaluations)]
        models = [m for m in _models(rows) if _seeds(rows, m, "hsdag") and (execution, m) in optima]
        parts = []
        for other in ("placeto", "rnn", "hsdag-paper", "local-search", "random"):
            compared = [m for m in models if _seeds(rows, m, other)]
            if compared:
                won = sum(
                    mean(_seeds(rows, m, "hsdag")) <= mean(_seeds(rows, m, other)) * (1 + 1e-9)
                    for m in compared
                )
                parts.append(f"{TITLES[other]} on {won} of {len(compared)}")
        gaps = [mean(_seeds(rows, m, "hsdag")) / optima[execution, m]["cost"] - 1 for m in models]
        if parts:
            least = "the proved optimum" if execution == "serial" else "the best known"
            lines.append(
                f"- {execution}, {evaluations:,} evaluations: HSDAG (ours) is at least as good as {', '.join(parts)} "
                f"(means of the seeds); it is {', '.join(percent(gap) for gap in gaps)} above {least}."
            )
    if lines:
        page.section("In short")
        page.text("\n".join(lines))
        page.text(
            "Where learning helps: with a model of the machine at hand, a minimum cut proves the `serial` optimum in "
            "milliseconds, and local search needs no policy; learning is for costs that nobody has a model of. See "
            f"[HSDAG: learning the placement](../hsdag.md). Numbers of this page: {number(len(methods))} runs."
        )
