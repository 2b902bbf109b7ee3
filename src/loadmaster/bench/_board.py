"""The board: one page with every score, and behind each number its instance, its placement and its command."""

from __future__ import annotations

import json
import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

from loadmaster.bench._instances import Instance, suites, version
from loadmaster.bench._known import FOLDER, Known, read_known
from loadmaster.bench._methods import find_method
from loadmaster.errors import InputError
from loadmaster.files import Record, write_atomically
from loadmaster.studies import Row, read_entries

__all__ = ["CAP", "board_data", "board_page", "read_rows", "scores", "write_board"]

CAP = 10.0
"""The largest ratio that counts, and what a run counts that found no placement."""


def read_rows(paths: Iterable[str | Path]) -> list[Row]:
    """All rows of these files, those of a later file instead of earlier ones with the same key.

    Raises
    ------
    InputError : a file is not there, or a line is no row of ``bench run``.
    """
    found: dict[str, Row] = {}
    for path in paths:
        for number, entry in enumerate(read_entries(path)[0], 1):
            row = {**entry.key, **entry.row, "when": entry.when}
            _check(Record(row, f"{path}:{number}"))
            name = json.dumps(
                [row.get(part) for part in ("instance", "method", "seconds", "evaluations", "seed")]
            )
            found[name] = row
    return list(found.values())


def _check(row: Record) -> None:
    for name in ("instance", "method"):
        row.text(name)
    for name in ("why", "machine", "versions"):
        row.text(name, "")
    row.integer("seed", maximum=2**63)
    for name in ("seconds", "cost", "seconds_taken"):
        row.number(name, 0.0)
    for name in ("evaluations", "evaluations_made"):
        row.integer(name, 0, maximum=2**63)
    for point in row.lists("history"):
        if len(point) != 3 or any(type(x) not in (int, float) for x in point):
            raise InputError(f"{row.where}: 'history' must hold seconds, evaluations and costs")


def budget_of(row: Mapping[str, Any]) -> str:
    """What a run was given, as the board writes it."""
    parts = [f"{row['seconds']:g} s"] if row.get("seconds") is not None else []
    return ", ".join(parts + ([f"{row['evaluations']:,} evaluations"] if row.get("evaluations") else []))


def ratio_of(row: Mapping[str, Any], best: float) -> float:
    """Cost over the best known, at most :data:`CAP`; that, too, where nothing was found."""
    cost = row.get("cost")
    if cost is None:
        return CAP
    return min(CAP, cost / best) if best > 0 else (1.0 if cost <= 0 else CAP)


def scores(rows: Sequence[Row], best: Mapping[str, float]) -> dict[str, Any] | None:
    """The score of one method on one suite: of every seed, and of all; None where it supports nothing."""
    used = [row for row in rows if not row.get("unsupported") and row["instance"] in best]
    if not used:
        return None
    seeds = sorted({row["seed"] for row in used})
    last: dict[str, dict[int, Row]] = {}
    for row in used:
        last.setdefault(row["instance"], {})[row["seed"]] = row
    # A method without a seed has the one run in each seed's score.
    per_seed = [
        _mean([ratio_of(runs.get(seed, runs[min(runs)]), best[name]) for name, runs in last.items()])
        for seed in seeds
    ]
    all_runs = [_mean([ratio_of(run, best[name]) for run in runs.values()]) for name, runs in last.items()]
    runs = [run for of_instance in last.values() for run in of_instance.values()]
    return {
        "score": _mean(all_runs),
        "low": min(per_seed),
        "high": max(per_seed),
        "seeds": len(seeds),
        "instances": len(last),
        "proved": sum(bool(run.get("optimal")) for run in runs) / len(runs),
        "reached": sum(ratio_of(run, best[run["instance"]]) <= 1 + 1e-6 for run in runs) / len(runs),
        "nothing": sum(run.get("cost") is None for run in runs),
    }


def _mean(values: Sequence[float]) -> float:
    """Geometric."""
    return math.exp(sum(math.log(max(value, 1e-12)) for value in values) / len(values))


def board_data(
    rows: Sequence[Row], *, folder: Path = FOLDER, reports: Collection[str] = ()
) -> dict[str, Any]:
    """Everything that the page shows, as plain values."""
    known: dict[str, Known] = {}
    listed = []
    for suite in suites().values():
        for instance in suite.instances:
            found = read_known(instance.name, folder)
            if found is not None:
                known[instance.name] = found
            listed.append(_instance(instance, found, reports))
    best = {name: found.cost for name, found in known.items()}
    suite_of = {entry["name"]: entry["suite"] for entry in listed}
    rows = [row for row in rows if row["instance"] in suite_of]
    parts: dict[str, dict[tuple[str, str], list[Row]]] = {name: {} for name in suites()}
    for row in rows:
        parts[suite_of[row["instance"]]].setdefault((budget_of(row), row["method"]), []).append(row)
    table = []
    for name, mine in parts.items():
        for (budget, method), part in sorted(mine.items(), key=lambda item: item[0]):
            score = scores(part, best)
            if score is not None:
                table.append({"suite": name, "budget": budget, "method": method, **score})
    return {
        "version": version(),
        "suites": [
            {
                "name": s.name,
                "title": s.title,
                "why": s.why,
                "size": len(s.instances),
                "methods": list(s.methods),
            }
            for s in suites().values()
        ],
        "instances": listed,
        "scores": table,
        "runs": [_run(row, best) for row in rows],
        "methods": {name: _what(name) for name in sorted({row["method"] for row in rows})},
        "machines": sorted(
            {f"{row['machine']}; {row.get('versions', '')}" for row in rows if "machine" in row}
        ),
        "dates": sorted({str(row["when"])[:10] for row in rows}),
    }


def _what(method: str) -> str:
    try:
        return find_method(method).what
    except InputError:
        return "a method of a package that is not installed here, or a program"


def _instance(instance: Instance, known: Known | None, reports: Collection[str]) -> dict[str, Any]:
    entry: dict[str, Any] = {
        "name": instance.name, "suite": instance.suite, "model": instance.model, "origin": instance.origin,
        "why": instance.why, "ops": instance.ops, "devices": instance.devices, "hash": instance.hash,
        "memory": "short" if instance.room and instance.room < 5 else "",
    }  # fmt: skip
    if known is not None:
        entry |= {
            "cost": known.cost, "found_by": known.found_by, "found_on": known.found_on, "bound": known.bound or None,
            "bound_by": known.bound_by, "gap": known.gap, "proved": known.proved, "checked": known.checked or None,
            "proof_checked": known.proof_checked, "certificate": (known.certificate or {}).get("kind", ""),
        }  # fmt: skip
        if instance.name in reports:
            entry["report"] = f"reports/{instance.name}.html"
    return entry


def _run(row: Mapping[str, Any], best: Mapping[str, float]) -> list[Any]:
    """instance, method, budget, seed, cost, ratio, optimal, seconds, why, effort, history as [effort, ratio].

    Effort is what the budget counts: seconds, or evaluations.
    """
    value = best.get(row["instance"])
    ratio = None if value is None or row.get("unsupported") else round(ratio_of(row, value), 6)
    at = 0 if row.get("seconds") is not None else 1
    history = [[point[at], round(min(CAP, point[2] / value), 5)] for point in row.get("history", ()) if value]
    effort = row.get("seconds_taken") if at == 0 else row.get("evaluations_made")
    return [
        row["instance"], row["method"], budget_of(row), row["seed"], row.get("cost"), ratio, bool(row.get("optimal")),
        round(row.get("seconds_taken") or 0.0, 3), row.get("why", ""), round(effort or 0.0, 3), history,
    ]  # fmt: skip


def board_page(data: Mapping[str, Any]) -> str:
    """The page: one file that asks no other server for anything."""
    page = files(__package__).joinpath("page")
    content = {
        "STYLE": page.joinpath("board.css").read_text("utf-8"),
        "SCRIPT": page.joinpath("board.js").read_text("utf-8"),
        "DATA": json.dumps(data, separators=(",", ":"), allow_nan=False).replace("<", "\\u003c"),
    }
    parts = page.joinpath("board.html").read_text("utf-8").split("%%")
    return "".join(content[part] if i % 2 else part for i, part in enumerate(parts))


def write_board(
    paths: Iterable[str | Path], out: str | Path, *, folder: Path = FOLDER, reports: Collection[str] = ()
) -> Path:
    """Write the page made of the rows in these files; ``reports`` names the instances whose reports are beside it."""
    target = Path(out)
    target.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(
        target, board_page(board_data(read_rows(paths), folder=folder, reports=reports)).encode()
    )
    return target
