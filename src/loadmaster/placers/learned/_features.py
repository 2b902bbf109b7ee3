"""Features of units: those of the HSDAG paper, each of which can be left out, and an extended set."""

from __future__ import annotations

import numpy as np

from loadmaster.arrays import FloatArray
from loadmaster.placers.learned._fractal import fractal_dimension
from loadmaster.placers.learned._units import Units

__all__ = ["FEATURES", "features_of"]


FEATURES = ("types", "shapes", "degrees", "fractal", "position", "costs")
"""The parts of the features, in order; all but ``costs`` are the paper's."""
WIDTH = 32
"""Columns of the sinusoidal encoding of the position."""


def features_of(units: Units, parts: tuple[str, ...]) -> FloatArray:
    """(units, columns) the chosen parts side by side, numbers of no natural scale standardised.

    ``types``: the mean of the members' one-hot op types. ``shapes``: log(1 + size) along each dimension of the
    output of the last member, padded on the right. ``degrees``: one-hots over the in- and out-degrees that
    occur. ``fractal``: :func:`fractal_dimension`. ``position``: topological position as sines and cosines.
    ``costs``: what a placement is charged for: the time on each device, absolute and against the fastest,
    bytes in and out, flops, memory, and the rank from the top and from the bottom.
    """
    made = {
        "types": _types,
        "shapes": _shapes,
        "degrees": _degrees,
        "fractal": lambda u: _standard(fractal_dimension(u.count, u.tail, u.head)[:, None]),
        "position": _position,
        "costs": _costs,
    }
    columns = [made[part](units) for part in FEATURES if part in parts]
    return np.concatenate([np.zeros((units.count, 0)), *columns, np.ones((units.count, 1))], axis=1)


def _types(units: Units) -> FloatArray:
    names, code = np.unique(np.array(units.problem.graph.op_types, dtype=np.str_), return_inverse=True)
    share = np.zeros((units.count, len(names)))
    np.add.at(share, (units.of_op, code), 1.0)
    return share / np.maximum(share.sum(axis=1, keepdims=True), 1.0)


def _shapes(units: Units) -> FloatArray:
    graph = units.problem.graph
    last = np.zeros(units.count, np.int64)
    last[units.of_op[graph.topological_order]] = graph.topological_order
    shapes = [graph.output_shapes[v][-1] if graph.output_shapes[v] else () for v in last.tolist()]
    padded = np.zeros((units.count, max(map(len, shapes), default=0)))
    for row, shape in zip(padded, shapes, strict=True):
        row[: len(shape)] = np.log1p(np.maximum(shape, 0))
    return _standard(padded)


def _degrees(units: Units) -> FloatArray:
    parts = []
    for end in (units.head, units.tail):
        value, code = np.unique(np.bincount(end, minlength=units.count), return_inverse=True)
        parts.append(np.eye(len(value))[code])
    return np.concatenate(parts, axis=1)


def _position(units: Units) -> FloatArray:
    at = units.position[:, None] / 10000.0 ** (np.arange(0, WIDTH, 2) / WIDTH)
    share = units.position[:, None] / max(units.problem.n - 1, 1)
    return np.concatenate([np.sin(at), np.cos(at), 2 * share - 1], axis=1)


def _costs(units: Units) -> FloatArray:
    problem, graph, count = units.problem, units.problem.graph, units.count
    time = np.stack([np.bincount(units.of_op, column, count) for column in problem.time.T], axis=1)
    known = np.isfinite(time)
    fastest = np.where(known, time, np.inf).min(axis=1, keepdims=True, initial=np.inf)
    fastest = np.where(np.isfinite(fastest), fastest, 0.0)
    lost = np.where(known, time - fastest, 0.0)
    scale = max(float(np.abs(lost).max(initial=0.0)), 1e-30)
    source, reader = units.of_op[graph.tensor_producer[graph.edge_tensor]], units.of_op[graph.consumer_op]
    moved = problem.mean_link[graph.edge_tensor] * (source != reader)
    sums = [graph.flops, graph.bytes_read, graph.bytes_written, problem.memory]
    amounts = [np.bincount(units.of_op, amount, count) for amount in sums]
    amounts += [np.bincount(reader, moved, count), np.bincount(source, moved, count)]
    rank = problem.upward_rank / max(float(problem.upward_rank.max(initial=0.0)), 1e-30)
    ranks = [np.bincount(units.of_op, rank, count) / np.maximum(np.bincount(units.of_op, minlength=count), 1)]
    logs = [np.log(np.maximum(a, 1e-12)) for a in (*np.where(known, time, 1.0).T, *amounts)]
    signed = [np.sign(x) * np.sqrt(np.abs(x) / scale) for x in lost.T]
    return np.concatenate(
        [_standard(np.stack(logs, axis=1)), np.stack([*signed, *ranks, *(~known).T], axis=1)], axis=1
    )


def _standard(columns: FloatArray) -> FloatArray:
    """Columns with mean 0 and deviation 1; constant ones become 0."""
    if not len(columns):
        return columns
    spread = columns.std(axis=0)
    return (columns - columns.mean(axis=0)) / np.where(spread > 1e-9, spread, np.inf)
