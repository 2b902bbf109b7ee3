"""Regret over evaluations, from the rows of a study: curves with intervals, as numbers and as a plot.

A row is one run of one ``method``: the columns that are whole numbers are the cost of its answer after so many
evaluations, ``best`` is the least cost that is known of its case. Rows whose keys differ in the method alone are of
one case. Cases whose keys differ in :data:`WITHIN` alone are of one graph: they are no independent evidence, so that
their mean counts as one value, and intervals are over graphs (over runs where all are of one graph).
"""

from __future__ import annotations

import io
import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from loadmaster.errors import InputError
from loadmaster.files import Record, shown
from loadmaster.studies.harness.rows import read_entries

__all__ = ["Curve", "draw_curves", "mean_over_graphs", "read_regrets", "regret_curves", "regrets"]

Curve = dict[int, tuple[float, float, int]]
"""Evaluations -> mean regret, two standard errors, number of runs."""

WITHIN = ("seed", "kind")
"""Columns of a key in which cases of one graph differ."""
MOST = 60
"""Methods that one plot shows."""
FARTHEST = 1e12
"""The most that a cost can be in terms of the least."""
LABEL = 40
"""Characters of a method's name that a plot shows."""


def regrets(entries: Sequence[tuple[Mapping[str, Any], Mapping[str, Any]]]) -> list[dict[str, Any]]:
    """Runs of (key, row) pairs with ``regret``: evaluations -> regret against the best that any run of the case knows,
    and ``of``, the graph.

    A run that has no answer yet after so many evaluations has no regret there.
    """
    best: dict[str, float] = {}
    found = []
    for key, row in entries:
        case = json.dumps({k: v for k, v in key.items() if k != "method"}, sort_keys=True)
        costs = {
            int(name): float(value) for name, value in row.items() if _is_count(name) and value is not None
        }
        best[case] = min(best.get(case, math.inf), float(row["best"]), *costs.values())
        graph = {k: v for k, v in key.items() if k not in ("method", *WITHIN)}
        found.append((case, {**key, **row, "of": json.dumps(graph, sort_keys=True)}, costs))
    return [
        {**run, "case": case, "regret": {at: cost / best[case] - 1.0 for at, cost in sorted(costs.items())}}
        for case, run, costs in found
    ]


def read_regrets(paths: Sequence[str | Path]) -> list[dict[str, Any]]:
    """The runs of files of rows.

    Raises
    ------
    InputError : a file is not there, a line is no row, or no row has a method and costs.
    """
    entries: dict[str, tuple[Any, Any]] = {}
    for path in paths:
        for number, (key, _, row) in enumerate(read_entries(path)[0], 1):
            if "method" in key and row.get("best") is not None and any(map(_is_count, row)):
                _check(key, row, f"{path}:{number}")
                entries[json.dumps(key, sort_keys=True)] = key, row
    if not entries:
        raise InputError(
            f"{', '.join(map(str, paths))}: no row has a method, the best cost and costs after numbers of evaluations"
        )
    runs = regrets(list(entries.values()))
    if any(max(run["regret"].values(), default=0.0) > FARTHEST for run in runs):
        raise InputError(
            f"{', '.join(map(str, paths))}: some cost is over {FARTHEST:g} times the best of its case"
        )
    return runs


def _is_count(name: str) -> bool:
    """Whether a column is a number of evaluations."""
    return name.isdecimal() and name.isascii()


def _check(key: Mapping[str, Any], row: Mapping[str, Any], where: str) -> None:
    record = Record({**key, **row}, where)
    record.text("method")
    counts = [name for name in row if _is_count(name)]
    costs = [record.number(name) for name in ("best", *(name for name in counts if row[name] is not None))]
    if not min(costs) > 0 or max(costs) / min(costs) > FARTHEST:
        raise InputError(
            f"{where}: costs from {min(costs):g} to {max(costs):g} show no regret: they must be above 0, and not more "
            f"than {FARTHEST:g} times the least"
        )
    if max(map(len, counts)) > 15:
        raise InputError(f"{where}: {shown(max(counts, key=len))} evaluations are more than anybody makes")


def mean_over_graphs(values: Sequence[tuple[str, float]]) -> tuple[float, float, int]:
    """Of (graph, value) pairs the mean of the graphs' means, two standard errors over graphs (over values where all are
    of one graph; not a number for one value), and the number of pairs."""
    of_graph: dict[str, list[float]] = {}
    for graph, value in values:
        of_graph.setdefault(graph, []).append(value)
    means = np.array([np.mean(mine) for mine in of_graph.values()])
    if len(means) == 1:
        means = np.array([value for _, value in values])
    error = 2.0 * float(means.std(ddof=1)) / math.sqrt(len(means)) if len(means) > 1 else math.nan
    return float(means.mean()), error, len(values)


def regret_curves(runs: Sequence[Mapping[str, Any]]) -> dict[str, Curve]:
    """Method -> its curve, in the order in which methods come up."""
    runs_of: dict[str, dict[int, list[tuple[str, float]]]] = {}
    for run in runs:
        mine = runs_of.setdefault(run["method"], {})
        for at, regret in run["regret"].items():
            mine.setdefault(at, []).append((run["of"], regret))
    return {
        method: {at: mean_over_graphs(points[at]) for at in sorted(points)}
        for method, points in runs_of.items()
    }


def draw_curves(curves: Mapping[str, Curve], kind: str = "svg") -> bytes:
    """A plot of the curves, evaluations on a logarithmic axis, intervals of two standard errors as bands.

    Raises
    ------
    InputError : there are too many.
    """
    if len(curves) > MOST:
        raise InputError(
            f"there are {len(curves):,} methods, but a plot shows at most {MOST}: choose by --only"
        )
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    with rc_context({"svg.fonttype": "none", "svg.hashsalt": "regret", "font.size": 9}):
        figure = Figure(figsize=(7.0, 4.2))
        axes = figure.add_subplot()
        for number, (method, curve) in enumerate(curves.items()):
            at = list(curve)
            mean = np.array([100 * curve[n][0] for n in at])
            error = np.nan_to_num(np.array([100 * curve[n][1] for n in at]))
            style = "-" if number < 10 else "--"
            (line,) = axes.plot(
                at, mean, style, marker="o", markersize=3, label=f"{_label(method)} ({curve[at[-1]][2]})"
            )
            axes.fill_between(at, mean - error, mean + error, color=line.get_color(), alpha=0.12, linewidth=0)
        axes.set_xscale("log")
        axes.set_ylim(bottom=0.0)
        axes.set_xlabel("evaluations")
        axes.set_ylabel("regret, % (mean, two standard errors)")
        axes.spines[["top", "right"]].set_visible(False)
        axes.legend(frameon=False, fontsize=8, loc="upper left", bbox_to_anchor=(1, 1), title="method (runs)")
        image = io.BytesIO()
        metadata = {"Date": None} if kind == "svg" else None
        figure.savefig(image, format=kind, bbox_inches="tight", metadata=metadata)
    return image.getvalue()


def _label(method: str) -> str:
    """A name as a plot shows it: a line, and no mathematics."""
    text = "".join(c if c.isprintable() else "?" for c in method)
    text = text if len(text) <= LABEL else f"{text[:LABEL]}…"
    return text.replace("$", r"\$").lstrip("_") or "?"
