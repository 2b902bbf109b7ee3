"""Regret over evaluations, from the rows of a study: curves with intervals, as numbers and as a plot.

A row is one run of one ``method``: the columns that are whole numbers are the cost of its answer after so many
evaluations, ``best`` is the least cost that is known of its case. Rows whose keys differ in the method alone are of
one case.
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
from loadmaster.files import read_bytes

__all__ = ["Curve", "draw_curves", "read_regrets", "regret_curves", "regrets"]

Curve = dict[int, tuple[float, float, int]]
"""Evaluations -> mean regret, two standard errors, number of runs."""


def regrets(entries: Sequence[tuple[Mapping[str, Any], Mapping[str, Any]]]) -> list[dict[str, Any]]:
    """Runs of (key, row) pairs with ``regret``: evaluations -> regret against the best that any run of the case knows.

    A run that has no answer yet after so many evaluations has no regret there.
    """
    best: dict[str, float] = {}
    found = []
    for key, row in entries:
        case = json.dumps({k: v for k, v in key.items() if k != "method"}, sort_keys=True)
        costs = {
            int(name): float(value) for name, value in row.items() if name.isdigit() and value is not None
        }
        best[case] = min(best.get(case, math.inf), float(row["best"]), *costs.values())
        found.append((case, {**key, **row}, costs))
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
        for number, line in enumerate(read_bytes(path).decode("utf-8", "replace").splitlines(), 1):
            try:
                entry = json.loads(line)
                key, row = entry["key"], entry["row"]
                if "method" in key and row.get("best") is not None and any(name.isdigit() for name in row):
                    entries[json.dumps(key, sort_keys=True)] = key, row
            except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
                raise InputError(f"{path}:{number}: is not a row of a study") from None
    if not entries:
        raise InputError(
            f"{', '.join(map(str, paths))}: no row has a method, the best cost and costs after numbers of evaluations"
        )
    return regrets(list(entries.values()))


def regret_curves(runs: Sequence[Mapping[str, Any]]) -> dict[str, Curve]:
    """Method -> its curve, in the order in which methods come up."""
    curves: dict[str, Curve] = {}
    for method in dict.fromkeys(run["method"] for run in runs):
        mine = [run["regret"] for run in runs if run["method"] == method]
        curve: Curve = {}
        for at in sorted({at for one in mine for at in one}):
            values = np.array([one[at] for one in mine if at in one])
            error = 2.0 * float(values.std(ddof=1)) / math.sqrt(len(values)) if len(values) > 1 else math.nan
            curve[at] = float(values.mean()), error, len(values)
        curves[method] = curve
    return curves


def draw_curves(curves: Mapping[str, Curve], kind: str = "svg") -> bytes:
    """A plot of the curves, evaluations on a logarithmic axis, intervals of two standard errors as bands."""
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
                at, mean, style, marker="o", markersize=3, label=f"{method} ({curve[at[-1]][2]})"
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
