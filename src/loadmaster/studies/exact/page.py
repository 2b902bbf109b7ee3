"""The page of the exact algorithms: tables beside the published values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from loadmaster.studies.harness.page import Page, number, percent, ratio
from loadmaster.studies.harness.study import Row, Scope

__all__ = ["BASELINES", "PARTS", "write"]

PARTS = ("chain", "baselines", "device", "none", "latency")

BASELINES = {
    "pipedream": "pipedream",
    "linear-dp": "linearised",
    "balanced": None,
    "metis": None,
    "greedy": None,
}
"""Methods beside the optimum, and the published code's name of the same thing."""


def write(page: Page, scope: Scope, rows: Sequence[Row]) -> None:
    """Four tables and two plots."""
    page.text(
        "Placement for pipelined throughput and for latency, on the workloads that were published with "
        "*Efficient Algorithms for Device Placement of DNN Graph Operators* (Tarnawski et al., NeurIPS 2020). "
        "Times are milliseconds as in the files. 'Published' is what the authors' program gives on the same "
        "files; its integer programs need a commercial solver and were not run, so that values without "
        "contiguity are compared with the best known from a study with open solvers."
    )
    parts = {part: [row for row in rows if row["part"] == part] for part in PARTS}
    if parts["chain"]:
        _write_chain(page, parts["chain"])
    if parts["none"]:
        _write_searched(page, parts["none"], parts["device"], parts["chain"])
    if parts["baselines"]:
        _write_baselines(page, parts["baselines"], parts["chain"])
    if parts["latency"]:
        _write_latency(page, parts["latency"])
    _write_finders(
        page, [row for row in rows if row["part"] in ("device", "none", "latency") or "method" in row]
    )
    _write_summary(page, parts)


def _ms(value: float | None) -> str:
    return "-" if value is None else f"{1e3 * value:.7g}"


def _write_chain(page: Page, rows: Sequence[Row]) -> None:
    page.section("Contiguous: the dynamic program over ideals")
    page.text(
        f"Time per sample when the devices form a chain of ideals (`{rows[0].get('method', 'ideal-dp')}`, "
        "contiguity `chain`). CPU seconds "
        "of this machine, kernels compiled; the authors' program was timed on another day and machine."
    )
    more = ("ideals", "peak MB") if "ideals" in rows[0] else ()
    page.table(
        ("workload", "published", "ours", "difference", "proved", "CPU s, published", "CPU s, ours", *more),
        [
            (
                row["workload"],
                _ms(row["published"])
                + ("" if row["published_by"] == "published code" else f" ({row['published_by']})"),
                _ms(row["cost"]),
                f"{row['cost'] / row['published'] - 1:+.1e}",
                row["optimal"],
                number(row["published_cpu_seconds"]) + ("" if row["published_finished"] else " (gave up)"),
                number(row["cpu_seconds"], 3),
                *((row["ideals"], round(row["peak_bytes"] / 2**20)) if more else ()),
            )
            for row in rows
        ],
    )


def _write_searched(page: Page, rows: Sequence[Row], device: Sequence[Row], chains: Sequence[Row]) -> None:
    page.section("Without contiguity, and with every device convex")
    page.text(
        f"`{rows[0].get('method', 'auto')}` with {rows[0]['budget']:.0f} seconds a row or less. 'Device' asks that no "
        "path leaves a device and comes back to it, as the authors' integer program does; 'none' asks nothing. "
        "The gap is (value - bound) / value."
    )
    convex = {row["workload"]: row for row in device}
    optimum = {row["workload"]: row for row in chains}
    page.table(
        ("workload", "chain", "device", "gap", "none", "bound", "gap", "best known", "none / best known"),
        [
            (
                row["workload"],
                _ms(optimum.get(row["workload"], {}).get("cost")),
                _ms(convex.get(row["workload"], {}).get("cost")),
                percent(convex.get(row["workload"], {}).get("gap")),
                _ms(row["cost"]),
                _ms(row["bound"]),
                "proved" if row["optimal"] else percent(row["gap"]),
                _ms(row["known"]),
                f"{row['cost'] / row['known']:.6f}",
            )
            for row in rows
        ],
    )


def _write_baselines(page: Page, rows: Sequence[Row], chains: Sequence[Row]) -> None:
    page.section("Baselines")
    page.text(
        "Time per sample; the published value in brackets where there is one. Linearised, PipeDream and local search "
        "of the authors depend on the order of a hash table and on unseeded random numbers, and their PipeDream leaves "
        "hard-coded ops of BERT-24 and GNMT out of its search for blocks; ours are programs of our own."
    )
    names = [
        "one",
        "expert",
        *(name for name in BASELINES if any(name in row for row in rows)),
        "local-search",
    ]

    def cell(row: Row, name: str) -> str:
        theirs = row.get(f"published_{name}")
        return _ms(row.get(name)) + (f" ({_ms(theirs)})" if theirs is not None else "")

    titles = {"one": "one accelerator"}
    page.table(
        ("workload", *(titles.get(name, name) for name in names)),
        [(row["workload"], *(cell(row, name) for name in names)) for row in rows],
    )
    optimum = {row["workload"]: row["cost"] for row in chains}
    compared = [row for row in rows if row["workload"] in optimum]
    if compared:
        page.text("The same as multiples of the contiguous optimum:")
        page.table(
            ("workload", *names[1:]),
            [
                (
                    row["workload"],
                    *(ratio(row[n] / optimum[row["workload"]] if row.get(n) else None) for n in names[1:]),
                )
                for row in compared
            ],
        )
        page.bars(
            "baselines",
            [row["workload"] for row in compared],
            {
                name: [row[name] / optimum[row["workload"]] if row.get(name) else None for row in compared]
                for name in names[1:]
            },
            "time per sample / contiguous optimum",
            line=1.0,
        )


def _write_latency(page: Page, rows: Sequence[Row]) -> None:
    page.section("Latency of one sample")
    page.text(
        "One call per accelerator (`offload`). A split of experts that needs more memory or accelerators than there "
        "are has a latency, but is no answer."
    )
    page.table(
        ("workload", "published greedy", "expert", "ours", "bound", "gap", "best known", "ours / best known"),
        [
            (
                row["workload"],
                _ms(row["published_greedy"]),
                _ms(row["expert"]) + ("" if row["expert_fits"] is not False else " (infeasible)"),
                _ms(row["cost"]),
                _ms(row["bound"]),
                "proved" if row["optimal"] else percent(row["gap"]),
                _ms(row["known"]),
                ratio(row["cost"] / row["known"]),
            )
            for row in rows
        ],
    )
    page.bars(
        "latency",
        [row["workload"] for row in rows],
        {
            "published greedy": [row["published_greedy"] / row["bound"] for row in rows],
            "ours": [row["cost"] / row["bound"] for row in rows],
        },
        "latency / proven bound",
        line=1.0,
        log=True,
    )


def _write_finders(page: Page, rows: Sequence[Row]) -> None:
    """Every search: who found the placement and who proved the bound, beside the best single device."""
    if not rows:
        return
    page.section("Every search")
    page.table(
        ("case", "single", "ours", "bound", "gap", "s", "found by", "proved by"),
        [
            (
                f"{row['workload']}, {row['part']}",
                _ms(row.get("single")),
                _ms(row["cost"]),
                _ms(row.get("bound")),
                "proved" if row.get("optimal") else percent(row.get("gap")),
                number(row.get("seconds"), 2),
                row.get("found_by"),
                row.get("bound_by"),
            )
            for row in rows
        ],
    )


def _write_summary(page: Page, parts: Mapping[str, Sequence[Row]]) -> None:
    page.section("In short")
    lines = []
    if chains := parts["chain"]:
        equal = sum(abs(row["cost"] / row["published"] - 1) < 1e-9 for row in chains)
        lines.append(f"- Contiguous optimum equal to the published one to 1e-9: {equal} of {len(chains)}.")
    for part, title in (("none", "Without contiguity"), ("latency", "Latency")):
        if rows := parts[part]:
            level = sum(row["cost"] <= row["known"] * (1 + 1e-6) for row in rows)
            proved = sum(row["optimal"] for row in rows)
            worst = max(row["gap"] for row in rows)
            lines.append(
                f"- {title}: at least as good as the best known on {level} of {len(rows)}, proved optimal on {proved}, "
                f"largest gap {percent(worst)}."
            )
    page.text("\n".join(lines))
