"""Prices that prove a bound (:mod:`._proofs` says what they mean), found by a linear program of SciPy's HiGHS."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from loadmaster.bench._placements import pack_array
from loadmaster.bench._proofs import path_bound, price_bound, readers_of, tried_all
from loadmaster.errors import InputError
from loadmaster.problem import Concurrent, Offload, Pipeline, Problem, Serial

__all__ = ["certify"]

ROWS = 150_000
"""Rows of the largest program that is tried; beyond, tensors have no prices."""
PATHS = 20_000
"""Edges times devices that a path in exact fractions is computed for."""


def certify(problem: Problem, *, seconds: float = 60.0) -> tuple[float, dict[str, Any]] | None:
    """The best bound with a certificate that is found here: its value and the certificate; None if there is none."""
    found: list[tuple[float, dict[str, Any]]] = []
    try:
        if math.prod(float(row.sum()) for row in problem.class_allowed) <= 5000:
            return tried_all(problem), {"kind": "enumeration"}
    except InputError:
        pass
    model = problem.model
    if isinstance(model, Pipeline) and model.microbatches:
        return None
    if isinstance(model, Concurrent | Offload) and problem.graph.edges * problem.devices <= 40 * PATHS:
        found.append((float(path_bound(problem)), {"kind": "path"}))
    if not isinstance(model, Offload) and problem.n * problem.devices <= 2_000_000:
        prices = _prices(problem, seconds)
        if prices is not None:
            value = float(price_bound(problem, **prices))
            found.append((value, {"kind": "prices", **{k: pack_array(v) for k, v in prices.items()}}))
    return max(found, key=lambda entry: entry[0]) if found else None


def _prices(problem: Problem, seconds: float) -> dict[str, Any] | None:
    """The linear program over bounds u of classes, weights, prices and what producers collect."""
    from scipy.optimize import linprog
    from scipy.sparse import coo_array

    model, size = problem.model, problem.devices
    serial = isinstance(model, Serial)
    carries = serial or (isinstance(model, Pipeline) and model.comm == "sum")
    pairs = readers_of(problem) if carries else []
    tensors = sorted({t for t, _, _ in pairs})
    if len(tensors) * size * size + problem.classes * size > ROWS:
        pairs, tensors = [], []
    priced = not (isinstance(model, Concurrent) and model.memory == "peak")
    limited = [d for d in range(size) if priced and math.isfinite(problem.capacity[d])]
    scale = float(np.where(np.isfinite(problem.class_time), problem.class_time, 0.0).max()) or 1.0
    most = float(problem.memory.sum()) or 1.0
    # Columns: u (classes), w (devices), m (devices), p (pairs x devices), s (tensors x source x target)
    w0 = problem.classes
    m0, p0 = w0 + size, w0 + 2 * size
    s0 = p0 + len(pairs) * size
    columns = s0 + len(tensors) * size * size
    index = {t: i for i, t in enumerate(tensors)}
    paid: dict[int, list[int]] = {}
    made: dict[int, list[int]] = {}
    readers: dict[int, list[int]] = {}
    for i, (t, own, reader) in enumerate(pairs):
        paid.setdefault(reader, []).append(i)
        readers.setdefault(t, []).append(i)
        if len(readers[t]) == 1:
            made.setdefault(own, []).append(t)
    rows: list[int] = []
    cols: list[int] = []
    values: list[float] = []
    right: list[float] = []

    def row(entries: list[tuple[int, float]], bound: float) -> None:
        for column, value in entries:
            rows.append(len(right))
            cols.append(column)
            values.append(value)
        right.append(bound)

    fits = problem.class_allowed & (problem.class_memory[:, None] <= problem.capacity[None, :]) if priced else (
        problem.class_allowed
    )  # fmt: skip
    for c in range(problem.classes):
        for d in np.flatnonzero(fits[c]).tolist():
            time = float(problem.class_time[c, d]) / scale
            entries = [(c, 1.0), (m0 + d, -float(problem.class_memory[c]) / most)]
            entries += [(w0 + d, -time)]
            entries += [(p0 + i * size + d, -1.0) for i in paid.get(c, ())]
            entries += [
                (s0 + (index[t] * size + d) * size + e, 1.0) for t in made.get(c, ()) for e in range(size)
            ]
            row(entries, 0.0)
    for t in tensors:
        least = min(len(readers[t]), size - 1)
        amount = float(problem.size[t])
        for a in range(size):
            for d in range(size):
                entries = [(p0 + i * size + d, 1.0) for i in readers[t]]
                entries.append((s0 + (index[t] * size + a) * size + d, -1.0))
                if a != d and serial:
                    entries.append(
                        (w0 + a, -float(problem.latency[a, d] + amount * problem.rate[a, d]) / scale)
                    )
                elif a != d:
                    entries += [
                        (w0 + a, -float(problem.send_latency[a] + amount * problem.send_rate[a]) / scale / least),
                        (w0 + d, -float(problem.recv_latency[d] + amount * problem.recv_rate[d]) / scale),
                    ]  # fmt: skip
                row(entries, 0.0)
    goal = np.zeros(columns)
    goal[: problem.classes] = [-1.0 if fits[c].any() else 0.0 for c in range(problem.classes)]
    bounds: list[tuple[float | None, float | None]] = [(None, None)] * problem.classes
    bounds += [(1.0, 1.0) if serial else (0.0, 1.0)] * size
    for d in range(size):
        goal[m0 + d] = float(problem.capacity[d]) / most if d in limited else 0.0
        bounds.append((0.0, None) if d in limited else (0.0, 0.0))
    bounds += [(0.0, None)] * (columns - p0)
    for c in range(problem.classes):
        if not fits[c].any():
            bounds[c] = (0.0, 0.0)
    equal = None if serial else coo_array(([1.0] * size, ([0] * size, range(w0, w0 + size))), (1, columns))
    solve: Any = linprog  # the stubs know no sparse arrays
    result = solve(
        goal,
        A_ub=coo_array((values, (rows, cols)), (len(right), columns)).tocsr(),
        b_ub=right,
        A_eq=None if equal is None else equal.tocsr(),
        b_eq=None if equal is None else [1.0],
        bounds=bounds,
        method="highs",
        options={"time_limit": seconds},
    )
    if result.x is None:
        return None
    x = np.maximum(result.x, 0.0)
    found: dict[str, Any] = {} if serial else {"weights": x[w0:m0]}
    if (x[m0:p0] > 0).any():
        found["memory"] = x[m0:p0] * scale / most
    if len(pairs):
        found["tensors"] = (x[p0:s0] * scale).astype(np.float32)
    return found
