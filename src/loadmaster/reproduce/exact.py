"""The exact algorithms on their published workloads (Tarnawski et al., NeurIPS 2020), against the published code."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from loadmaster import api
from loadmaster.errors import InputError
from loadmaster.problem import Placement
from loadmaster.reproduce._page import Page, number, percent, ratio
from loadmaster.reproduce._placing import placed
from loadmaster.reproduce._study import Case, Row, Scope

__all__ = ["TITLE", "cases", "write"]

TITLE = "Exact algorithms, reproduced"

SECONDS = {False: 60.0, True: 5.0}
"""For each search without a published optimum, in the full and the quick run."""

BASELINES = {"pipedream": "pipedream", "linear-dp": "linearised", "metis": None, "greedy": None}
"""Methods beside the optimum, and the published code's name of the same thing."""


def cases(scope: Scope) -> list[Case]:
    """Contiguous optima, baselines, then searches, per workload."""
    folder = scope.workloads
    if folder is None:
        raise InputError("reproduce exact needs the published workloads: give their folder with --workloads")
    file = folder / "reference.json"
    try:
        published = json.loads(file.read_text())
        throughput, latency = published["throughput"], published["latency"]
    except (OSError, json.JSONDecodeError, KeyError, TypeError) as error:
        raise InputError(
            f"{file}: is not the published code's values on the workloads ({type(error).__name__})"
        ) from None
    seconds = SECONDS[scope.quick]
    wanted = str(scope.options.get("only", ""))
    found: list[Case] = []
    for name, entry in throughput.items():
        if wanted not in name:
            continue
        path, short = folder / name, _short(name)
        found.append(Case({"part": "chain", "workload": short}, partial(_chain, path, entry)))
        found.append(Case({"part": "baselines", "workload": short}, partial(_baselines, path, folder, entry)))
        for contiguity in ("device", "none"):
            key = {"part": contiguity, "workload": short, "budget": seconds}
            found.append(Case(key, partial(_searched, path, entry, contiguity, seconds)))
    for name, entry in latency.items():
        if wanted in name:
            key = {"part": "latency", "workload": _short(name), "budget": seconds}
            found.append(Case(key, partial(_latency, folder / name, folder, entry, seconds)))
    return found


def _short(name: str) -> str:
    parts = name.removesuffix(".json").split("/")
    return "/".join(parts[-2:])


def _chain(path: Path, entry: Mapping[str, Any]) -> Row:
    api.place(api.problem(path, contiguity="chain"), "ideal-dp")  # compiles, or loads from the cache
    problem = api.problem(path, contiguity="chain")  # afresh: a problem keeps its contraction and bounds
    began = time.process_time()
    row = placed(problem, "ideal-dp")
    row["cpu_seconds"] = time.process_time() - began
    return row | {
        "published": entry["contiguous_optimum"] / 1e3,
        "published_by": entry["contiguous_optimum_from"],
        "published_cpu_seconds": entry["published_code_cpu_seconds"],
        "published_finished": entry["published_code_finished"],
    }


def _baselines(path: Path, folder: Path, entry: Mapping[str, Any]) -> Row:
    problem = api.problem(path)
    row: Row = {
        "one": api.evaluate(problem, Placement(np.zeros(problem.n, np.int32))).cost,
        "published_one": _milli(entry.get("one_accelerator")),
        "expert": None,
        "published_expert": _milli(entry.get("expert")),
    }
    if entry.get("expert_split") and entry.get("expert"):
        wide, placement = api.read_placement(folder / entry["expert_split"], path)
        row["expert"] = api.evaluate(wide, placement).cost
    chains = api.problem(path, contiguity="chain")
    for method, theirs in BASELINES.items():
        row[method] = placed(chains, method, budget=10.0)["cost"]
        if theirs:
            row[f"published_{method}"] = _milli(entry.get(theirs))
    row["local-search"] = placed(problem, "local-search", evaluations=20_000)["cost"]
    row["published_local-search"] = _milli(entry.get("local_search_10"))
    return row


def _searched(path: Path, entry: Mapping[str, Any], contiguity: str, seconds: float) -> Row:
    row = placed(api.problem(path, contiguity=contiguity), "auto", budget=seconds)
    if contiguity == "none":
        row |= {
            "known": entry["non_contiguous"]["best_known"] / 1e3,
            "known_bound": entry["non_contiguous"]["best_bound"] / 1e3,
        }
    return row


def _latency(path: Path, folder: Path, entry: Mapping[str, Any], seconds: float) -> Row:
    row = placed(api.problem(path, model="offload"), "auto", budget=seconds)
    row |= {
        "known": entry["best_known_latency"] / 1e3,
        "known_bound": entry["best_bound_latency"] / 1e3,
        "published_greedy": _milli(entry.get("authors_greedy_latency")),
        "published_expert": _milli(entry.get("expert_latency")),
        "expert": None,
        "expert_fits": None,
    }
    if entry.get("expert_split"):
        wide, placement = api.read_placement(folder / entry["expert_split"], path, model="offload")
        evaluation = api.evaluate(wide, placement)
        row |= {"expert": evaluation.cost, "expert_fits": evaluation.feasible}
    return row


def _milli(value: float | None) -> float | None:
    return None if value is None else value / 1e3


# -- the page ------------------------------------------------------------------------------------------------


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
    _write_summary(page, parts)


PARTS = ("chain", "baselines", "device", "none", "latency")


def _ms(value: float | None) -> str:
    return "-" if value is None else f"{1e3 * value:.7g}"


def _write_chain(page: Page, rows: Sequence[Row]) -> None:
    page.section("Contiguous: the dynamic program over ideals")
    page.text(
        "Time per sample when the devices form a chain of ideals (`ideal-dp`, contiguity `chain`). CPU seconds "
        "of this machine, kernels compiled; the authors' program was timed on another day and machine."
    )
    page.table(
        ("workload", "published", "ours", "difference", "proved", "CPU s, published", "CPU s, ours"),
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
            )
            for row in rows
        ],
    )


def _write_searched(page: Page, rows: Sequence[Row], device: Sequence[Row], chains: Sequence[Row]) -> None:
    page.section("Without contiguity, and with every device convex")
    page.text(
        f"`auto` with {rows[0]['budget']:.0f} seconds a row or less. 'Device' asks that no path leaves a device and "
        "comes back to it, as the authors' integer program does; 'none' asks nothing. "
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
    names = ("one", "expert", *BASELINES, "local-search")

    def cell(row: Row, name: str) -> str:
        theirs = row.get(f"published_{name}")
        return _ms(row[name]) + (f" ({_ms(theirs)})" if theirs is not None else "")

    titles = {"one": "one accelerator"}
    page.table(
        ("workload", *(titles.get(name, name) for name in names)),
        [(row["workload"], *(cell(row, name) for name in names)) for row in rows],
    )
    optimum = {row["workload"]: row["cost"] for row in chains}
    compared = [row for row in rows if row["workload"] in optimum]
    if compared:
        page.bars(
            "baselines",
            [row["workload"] for row in compared],
            {
                name: [row[name] / optimum[row["workload"]] if row[name] else None for row in compared]
                for name in ("expert", *BASELINES, "local-search")
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
