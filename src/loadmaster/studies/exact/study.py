"""The exact algorithms on their published workloads (Tarnawski et al., NeurIPS 2020), against the published code."""

from __future__ import annotations

import argparse
import json
import multiprocessing
import resource
import time
from collections.abc import Mapping
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from loadmaster import api
from loadmaster.errors import InputError
from loadmaster.placers.stages.ideal_dp import count_ideals
from loadmaster.problem import Placement
from loadmaster.runtime import end_with_parent
from loadmaster.studies.exact.page import BASELINES, PARTS, write
from loadmaster.studies.harness.placing import placed
from loadmaster.studies.harness.study import Case, Row, Scope, Study

__all__ = ["STUDY", "cases"]

SECONDS = {False: 60.0, True: 5.0}
"""For each search without a published optimum, in the full and the quick run."""


def options(parser: argparse.ArgumentParser) -> None:
    """What ``benchmarks.exact`` may ask for beyond the reproduction."""
    parser.add_argument("--parts", default=",".join(PARTS), help=f"some of {','.join(PARTS)}")
    parser.add_argument("--method", default="", help="the placer (default: ideal-dp for chain, else auto)")
    parser.add_argument("--budget", type=float, help="seconds for each search (60, or 5 with --quick)")
    parser.add_argument("--max-calls", type=int, default=1, help="latency: calls per accelerator")
    parser.add_argument(
        "--details", action="store_true", help="chain: count ideals and peak memory, a process per workload"
    )


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
    given = scope.options
    seconds = given.get("budget") or SECONDS[scope.quick]
    method, calls = str(given.get("method", "")), int(given.get("max_calls", 1))
    parts = _parts(str(given.get("parts") or ",".join(PARTS)))
    # The keys of the reproduction are older than these options: a key names only what differs from it.
    other = {"method": method} if method else {}
    found: list[Case] = []
    for name, entry in throughput.items():
        if scope.only not in name:
            continue
        path, short = folder / name, _short(name)
        for part in parts:
            key: Row = {"part": part, "workload": short}
            if part == "chain" and given.get("details"):
                found.append(Case({**key, **other, "details": True}, partial(_apart, path, entry, method)))
            elif part == "chain":
                key |= {**other, "budget": seconds} if method else {}
                found.append(Case(key, partial(_chain, path, entry, method, seconds)))
            elif part == "baselines":
                found.append(Case(key, partial(_baselines, path, folder, entry)))
            elif part != "latency":
                key |= {"budget": seconds, **other}
                found.append(Case(key, partial(_searched, path, entry, part, method or "auto", seconds)))
    for name, entry in latency.items() if "latency" in parts else ():
        if scope.only in name:
            key = {"part": "latency", "workload": _short(name), "budget": seconds, **other}
            key |= {"max_calls": calls} if calls != 1 else {}
            run = partial(_latency, folder / name, folder, entry, method or "auto", calls, seconds)
            found.append(Case(key, run))
    return found


def _parts(text: str) -> list[str]:
    wanted = text.split(",")
    for part in wanted:
        if part not in PARTS:
            raise InputError(f"--parts {part}: there is no such part: give some of {','.join(PARTS)}")
    return [part for part in PARTS if part in wanted]


def _short(name: str) -> str:
    parts = name.removesuffix(".json").split("/")
    return "/".join(parts[-2:])


def _chain(path: Path, entry: Mapping[str, Any], method: str, seconds: float | None) -> Row:
    method, budget = method or "ideal-dp", seconds if method else None
    if method == "ideal-dp":
        api.place(api.problem(path, contiguity="chain"), method)  # compiles, or loads from the cache
    problem = api.problem(path, contiguity="chain")  # afresh: a problem keeps its contraction and bounds
    began = time.process_time()
    row = placed(problem, method, budget=budget)
    row["cpu_seconds"] = time.process_time() - began
    return row | {
        "published": entry["contiguous_optimum"] / 1e3,
        "published_by": entry["contiguous_optimum_from"],
        "published_cpu_seconds": entry["published_code_cpu_seconds"],
        "published_finished": entry["published_code_finished"],
    }


def _apart(path: Path, entry: Mapping[str, Any], method: str) -> Row:
    """The same in a process of its own, whose largest resident memory is known afterwards."""
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn"), end_with_parent) as pool:
        return pool.submit(_detailed, path, entry, method).result()


def _detailed(path: Path, entry: Mapping[str, Any], method: str) -> Row:
    row = _chain(path, entry, method, SECONDS[False])
    peak = 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    ideals = count_ideals(api.problem(path, contiguity="chain"))
    return row | {"peak_bytes": peak, "ideals": ideals, "published_ideals": entry["ideals"]}


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


def _searched(path: Path, entry: Mapping[str, Any], contiguity: str, method: str, seconds: float) -> Row:
    problem = api.problem(path, contiguity=contiguity)
    row = placed(problem, method, budget=seconds)
    row["single"] = placed(problem, "single", evaluations=1000)["cost"]
    if contiguity == "none":
        row |= {
            "known": entry["non_contiguous"]["best_known"] / 1e3,
            "known_bound": entry["non_contiguous"]["best_bound"] / 1e3,
        }
    return row


def _latency(
    path: Path, folder: Path, entry: Mapping[str, Any], method: str, calls: int, seconds: float
) -> Row:
    problem = api.problem(path, model="offload", max_calls=calls)
    row = placed(problem, method, budget=seconds)
    row |= {
        "single": placed(problem, "single", evaluations=1000)["cost"],
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


STUDY = Study("exact", "Exact algorithms, reproduced", cases, write, options)
