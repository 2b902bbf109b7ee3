"""Features of units: those of the HSDAG paper, each of which can be left out, and an extended set."""

from __future__ import annotations

import numpy as np

from loadmaster.arrays import FloatArray, IntArray
from loadmaster.errors import InputError
from loadmaster.placers.learned._fractal import fractal_dimension
from loadmaster.placers.learned.units import Units

__all__ = ["FEATURES", "check_features", "features_of", "output_sizes", "standard"]


FEATURES = ("types", "shapes", "degrees", "fractal", "position", "costs")
"""The parts of the features, in order; all but ``costs`` are the paper's."""
WIDTH = 32
"""Columns of the sinusoidal encoding of the position."""
OUTPUTS, RANK = 5, 5
"""Outputs of an op, and dimensions of each, that :func:`output_sizes` tells of."""


def check_features(parts: tuple[str, ...]) -> None:
    """Refuse parts that do not exist."""
    for part in parts:
        if part not in FEATURES:
            raise InputError(f"there is no feature {part!r}: choose from {', '.join(FEATURES)}")


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
        "fractal": lambda u: standard(fractal_dimension(u.count, u.tail, u.head)[:, None]),
        "position": _position,
        "costs": _costs,
    }
    columns = [made[part](units) for part in FEATURES if part in parts]
    return np.concatenate([np.zeros((units.count, 0)), *columns, np.ones((units.count, 1))], axis=1)


def output_sizes(units: Units) -> FloatArray:
    """(units, OUTPUTS * RANK) log(1 + size) along each dimension of the outputs of a unit's last op; 0 where there
    is none."""
    shapes = units.problem.graph.output_shapes
    sizes = np.zeros((units.count, OUTPUTS, RANK))
    for row, v in zip(sizes, _last_ops(units).tolist(), strict=True):
        for port, shape in enumerate(shapes[v][:OUTPUTS]):
            row[port, : len(shape[:RANK])] = np.log1p(np.maximum(shape[:RANK], 0))
    return sizes.reshape(units.count, OUTPUTS * RANK)


def standard(columns: FloatArray) -> FloatArray:
    """Columns with mean 0 and deviation 1; constant ones become 0."""
    if not len(columns):
        return columns
    spread = columns.std(axis=0)
    return (columns - columns.mean(axis=0)) / np.where(spread > 1e-9, spread, np.inf)


def _last_ops(units: Units) -> IntArray:
    """(units,) the last op of each in topological order."""
    order = units.problem.graph.topological_order
    last = np.zeros(units.count, np.int32)
    last[units.of_op[order]] = order
    return last


def _types(units: Units) -> FloatArray:
    names, code = np.unique(np.array(units.problem.graph.op_types, dtype=np.str_), return_inverse=True)
    share = np.zeros((units.count, len(names)))
    np.add.at(share, (units.of_op, code), 1.0)
    return share / np.maximum(share.sum(axis=1, keepdims=True), 1.0)


def _shapes(units: Units) -> FloatArray:
    outputs = units.problem.graph.output_shapes
    shapes = [outputs[v][-1] if outputs[v] else () for v in _last_ops(units).tolist()]
    padded = np.zeros((units.count, max(map(len, shapes), default=0)))
    for row, shape in zip(padded, shapes, strict=True):
        row[: len(shape)] = np.log1p(np.maximum(shape, 0))
    return standard(padded)


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
        [standard(np.stack(logs, axis=1)), np.stack([*signed, *ranks, *(~known).T], axis=1)], axis=1
    )
