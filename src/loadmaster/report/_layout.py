"""Where to draw the ops of a graph: layers from top to bottom, folded into columns that fill a screen.

The layers follow K. Sugiyama, S. Tagawa, M. Toda, "Methods for visual understanding of hierarchical system
structures", IEEE Trans. SMC 1981: levels by longest path, order within a layer by the mean place of the
neighbours. Order and coordinates are found in one go: a sweep wishes every op to the weighted mean of its
neighbours, sorts the layer by that wish, and the least-squares places with a minimum distance follow by
pooling adjacent violators. Long edges get no dummy ops, but count less the longer they are. O(sweeps · (ops ·
log width + arcs)).
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from numba import njit

from loadmaster.arrays import FloatArray, IntArray
from loadmaster.graph.order import csr_from_pairs

__all__ = ["Layout", "layered_layout"]


SWEEPS = 13
"""An odd number: the last sweep goes down, which leaves chains straight."""
LEAST_WIDTH = 24
"""A layer up to so many ops wide is never broken into several rows."""
MOST_COLUMNS = 64
COLUMN_GAP = 0.75
"""Free space between two columns, in ops."""
SLACK = 0.12
"""A column may be longer or shorter by this share, so that it ends where few edges cross."""


class Layout(NamedTuple):
    """Centres of the ops, in units of one op with the space around it; the drawing begins at (0, 0)."""

    x: FloatArray
    y: FloatArray
    width: float
    height: float
    columns: int


def layered_layout(
    tail: IntArray, head: IntArray, order: IntArray, *, aspect: float = 1.8, cell: float = 2.5
) -> Layout:
    """Lay out the graph of arcs ``tail[i] -> head[i]``.

    Parameters
    ----------
    order : (ops,) a sequence of all ops; arcs that lead backwards in it are ignored.
    aspect : width / height that the whole drawing should have.
    cell : width / height of the space that one op takes.
    """
    n = len(order)
    if n == 0:
        return Layout(np.zeros(0), np.zeros(0), 0.0, 0.0, 0)
    position = np.empty(n, np.int64)
    position[order] = np.arange(n)
    forward = position[tail] < position[head]
    tail, head = tail[forward].astype(np.int32), head[forward].astype(np.int32)
    out_ptr, out_op = csr_from_pairs(tail, head, n)
    in_ptr, in_op = csr_from_pairs(head, tail, n)
    level = _levels(order.astype(np.int32), out_ptr, out_op, in_ptr, in_op)
    row = _rows(level, position, max(LEAST_WIDTH, math.ceil(1.5 * math.sqrt(n))))
    row_op = np.lexsort((position, row)).astype(np.int32)
    count = np.bincount(row)
    row_ptr = np.concatenate(([0], np.cumsum(count))).astype(np.int32)
    x = np.empty(n)
    x[row_op] = np.arange(n) - np.repeat(row_ptr[:-1] + (count - 1) / 2, count)
    _sweep(row, row_ptr, row_op, in_ptr, in_op, out_ptr, out_op, x, SWEEPS)
    return _folded(x, row, tail, head, aspect / cell)


@njit(cache=True, nogil=True)
def _levels(order, out_ptr, out_op, in_ptr, in_op):  # type: ignore[no-untyped-def]
    """Longest path from the sources; a source comes down to just above the first op that needs it."""
    level = np.zeros(len(order), np.int32)
    for v in order:
        for i in range(out_ptr[v], out_ptr[v + 1]):
            level[out_op[i]] = max(level[out_op[i]], level[v] + 1)
    for v in order:
        if in_ptr[v] == in_ptr[v + 1] and out_ptr[v] < out_ptr[v + 1]:
            least = level[out_op[out_ptr[v]]]
            for i in range(out_ptr[v], out_ptr[v + 1]):
                least = min(least, level[out_op[i]])
            level[v] = least - 1
    return level


def _rows(level: IntArray, position: npt.NDArray[np.int64], widest: int) -> IntArray:
    """(ops,) rows from top to bottom: one per level, several where a level is too wide."""
    count = np.bincount(level)
    parts = -(-count // widest)
    first = np.cumsum(parts) - parts
    by_level = np.lexsort((position, level))
    rank = np.empty(len(level), np.int64)
    rank[by_level] = np.arange(len(level)) - np.repeat(np.cumsum(count) - count, count)
    return (first[level] + rank % np.maximum(parts[level], 1)).astype(np.int32)


@njit(cache=True, nogil=True)
def _sweep(row, row_ptr, row_op, in_ptr, in_op, out_ptr, out_op, x, sweeps):  # type: ignore[no-untyped-def]
    """Place the ops: downwards by what they read, upwards by who reads them, then by both, at last downwards."""
    rows = len(row_ptr) - 1
    wish = np.empty(len(x))
    mean = np.empty(len(x))
    weight = np.empty(len(x), np.int64)
    for sweep in range(sweeps):
        down = sweep % 2 == 0
        both = sweeps - 5 <= sweep < sweeps - 1
        for i in range(rows):
            r = i if down else rows - 1 - i
            begin, end = row_ptr[r], row_ptr[r + 1]
            for k in range(begin, end):
                v = row_op[k]
                total, share = 0.0, 0.0
                if down or both:
                    for j in range(in_ptr[v], in_ptr[v + 1]):
                        w = 1.0 / max(1, row[v] - row[in_op[j]])
                        total += w * x[in_op[j]]
                        share += w
                if both or not down:
                    for j in range(out_ptr[v], out_ptr[v + 1]):
                        w = 1.0 / max(1, row[out_op[j]] - row[v])
                        total += w * x[out_op[j]]
                        share += w
                wish[k] = total / share if share > 0 else x[v]
            by_wish = np.argsort(wish[begin:end], kind="mergesort")
            row_op[begin:end] = row_op[begin:end][by_wish]
            wish[begin:end] = wish[begin:end][by_wish]
            # Least squares under x[k + 1] >= x[k] + 1: isotonic regression of wish[k] - k.
            blocks = 0
            for k in range(end - begin):
                mean[blocks] = wish[begin + k] - k
                weight[blocks] = 1
                blocks += 1
                while blocks > 1 and mean[blocks - 2] > mean[blocks - 1]:
                    both_weight = weight[blocks - 2] + weight[blocks - 1]
                    mean[blocks - 2] = (
                        mean[blocks - 2] * weight[blocks - 2] + mean[blocks - 1] * weight[blocks - 1]
                    ) / both_weight
                    weight[blocks - 2] = both_weight
                    blocks -= 1
            k = 0
            for b in range(blocks):
                for _ in range(weight[b]):
                    x[row_op[begin + k]] = mean[b] + k
                    k += 1


def _folded(x: FloatArray, row: IntArray, tail: IntArray, head: IntArray, ratio: float) -> Layout:
    """The rows cut into columns side by side, as many as bring width / height closest to ``ratio``."""
    rows = int(row.max()) + 1
    low, high = np.full(rows, np.inf), np.full(rows, -np.inf)
    np.minimum.at(low, row, x)
    np.maximum.at(high, row, x)
    crossing = np.zeros(rows + 1, np.int64)
    np.add.at(crossing, row[tail], 1)
    np.add.at(crossing, row[head], -1)
    crossing = np.cumsum(crossing)  # crossing[r]: arcs from row r or above to below it
    best: tuple[float, list[int], float, float] | None = None
    for columns in range(1, min(MOST_COLUMNS, rows) + 1):
        cuts = _cuts(crossing, rows, columns)
        spans = list(zip([0, *cuts], [*cuts, rows], strict=True))
        widths = [float(high[a:b].max() - low[a:b].min()) + 1 + COLUMN_GAP for a, b in spans]
        width, height = sum(widths) - COLUMN_GAP, float(max(b - a for a, b in spans))
        distance = abs(math.log(width / height / ratio))
        if best is None or distance < best[0] - 1e-9:
            best = distance, cuts, width, height
        if width / height > 3 * ratio:
            break
    assert best is not None
    _, cuts, width, height = best
    placed_x, placed_y = np.empty(len(x)), np.empty(len(x))
    offset = 0.0
    for a, b in zip([0, *cuts], [*cuts, rows], strict=True):
        inside = (row >= a) & (row < b)
        left = float(low[a:b].min())
        placed_x[inside] = x[inside] - left + 0.5 + offset
        placed_y[inside] = row[inside] - a + 0.5
        offset += float(high[a:b].max()) - left + 1 + COLUMN_GAP
    return Layout(placed_x, placed_y, width, height, len(cuts) + 1)


def _cuts(crossing: npt.NDArray[np.int64], rows: int, columns: int) -> list[int]:
    """First rows of the columns after the first, each where few arcs cross near the even division."""
    cuts: list[int] = []
    slack = int(SLACK * rows / columns)
    for i in range(1, columns):
        ideal = i * rows // columns
        least = cuts[-1] + 1 if cuts else 1
        candidates = [r for r in range(max(least, ideal - slack), min(rows - 1, ideal + slack) + 1)]
        if candidates:
            cuts.append(min(candidates, key=lambda r: (int(crossing[r - 1]), abs(r - ideal))))
    return cuts
