"""What the kernels of the ``concurrent`` execution model read and write, as flat arrays."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from numba import njit

from loadmaster.arrays import FloatArray, IntArray
from loadmaster.problem._problem import Problem

__all__ = ["RankSpace", "Trace", "number_by_device", "rank_space"]

IndexArray = npt.NDArray[np.uint32]

U: Any = np.uint64
ONE = U(1)


class RankSpace(NamedTuple):
    """A problem with its ops renumbered by priority, so that what happens close in time lies close in memory.

    Rank r is the r-th op of ``problem.priority_order``, which is a topological order. Tensors are renumbered
    by the rank of their producer, then by port; those that nobody reads are left out (they are never sent).
    With n ops, m tensors, E (tensor, consumer) pairs and D devices:

    order : (n,) op of each rank.
    time : (n, D) seconds.
    latency, rate : (D, D) of a transfer, zero on the diagonal, so that "sending" to oneself takes no time.
    waits : (n,) number of tensors that an op reads.
    tensor_ptr : (n + 2,) the tensors of rank r are ``tensor_ptr[r] .. tensor_ptr[r + 1]``; rank n is a dummy
        without any.
    reader_ptr : (m + 1,) the readers of tensor t are ``reader[reader_ptr[t]] .. reader[reader_ptr[t + 1]]``,
        ascending.
    reader : (E,) ranks.
    size : (m,) what rates multiply.
    tensor : (m,) index of the tensor in the graph.
    bytes : (m,) memory that a tensor takes.
    written : (n,) memory that all outputs of an op take, unread ones included.
    resident : (n,) memory that stays throughout.

    The indices are unsigned, which spares the kernels numba's test for negative ones.
    """

    order: IndexArray
    time: FloatArray
    latency: FloatArray
    rate: FloatArray
    waits: IntArray
    tensor_ptr: IndexArray
    reader_ptr: IndexArray
    reader: IndexArray
    size: FloatArray
    tensor: IndexArray
    bytes: FloatArray
    written: FloatArray
    resident: FloatArray


class Trace(NamedTuple):
    """What happened in one simulation: the schedule of every op and the log of all transfers.

    start, end : (n,) seconds, by rank; NaN for what never ran.
    sequence, sequence_ptr : ranks in the order in which each device ran them: device d has
        ``sequence[sequence_ptr[d] : sequence_ptr[d + 1]]``.
    first : (m,) where the transfers of a tensor begin in the log; they are consecutive. Undefined if it is
        not sent.
    log : (E, 3) tensor, source and target of each transfer, by production.
    span : (E, 2) start and end of each transfer in seconds.
    made : (1,) how many transfers there are.
    """

    start: FloatArray
    end: FloatArray
    sequence: IndexArray
    sequence_ptr: IndexArray
    first: IndexArray
    log: IndexArray
    span: FloatArray
    made: IndexArray

    @staticmethod
    def room(space: RankSpace, *, wanted: bool = True) -> Trace:
        """An empty trace, with room for a whole simulation if one is wanted."""
        n, devices = space.time.shape if wanted else (0, 0)
        edges, tensors = (len(space.reader), len(space.size)) if wanted else (0, 0)
        return Trace(
            start=np.full(n, np.nan),
            end=np.full(n, np.nan),
            sequence=np.empty(n, np.uint32),
            sequence_ptr=np.empty(devices + 1, np.uint32),
            first=np.empty(tensors, np.uint32),
            log=np.empty((edges, 3), np.uint32),
            span=np.empty((edges, 2)),
            made=np.zeros(1, np.uint32),
        )


def rank_space(problem: Problem) -> RankSpace:
    """The arrays of a problem, renumbered by priority."""
    graph, n = problem.graph, problem.n
    order = problem.priority_order
    rank = np.empty(n, np.uint32)
    rank[order] = np.arange(n, dtype=np.uint32)
    readers = np.diff(graph.consumer_ptr)
    read = np.flatnonzero(readers)
    read = read[np.argsort(rank[graph.tensor_producer[read]], kind="stable")]
    new = np.full(graph.tensors, len(read), np.int64)
    new[read] = np.arange(len(read))
    consumer = rank[graph.consumer_op]
    by_tensor = np.lexsort((consumer, new[graph.edge_tensor]))
    off = ~np.eye(problem.devices, dtype=bool)
    made = np.bincount(rank[graph.tensor_producer[read]], minlength=n)
    written = np.bincount(graph.tensor_producer, graph.tensor_bytes, n).astype(np.float64)  # (ints if empty)
    return RankSpace(
        order=order.astype(np.uint32),
        time=np.ascontiguousarray(problem.time[order]),
        latency=np.where(off, problem.latency, 0.0),
        rate=np.where(off, problem.rate, 0.0),
        waits=np.bincount(consumer, minlength=n).astype(np.int32),
        tensor_ptr=np.concatenate([[0], np.cumsum(made), [len(read)]]).astype(np.uint32),
        reader_ptr=np.concatenate([[0], np.cumsum(readers[read])]).astype(np.uint32),
        reader=consumer[by_tensor],
        size=problem.size[read],
        tensor=read.astype(np.uint32),
        bytes=graph.tensor_bytes[read],
        written=written[order],
        resident=problem.resident[order],
    )


@njit(cache=True, nogil=True)
def number_by_device(at, ptr, slot):  # type: ignore[no-untyped-def]
    """Give each device d the places ``ptr[d] .. ptr[d + 1]``, one per op; ``slot[d]`` is the first."""
    ptr[:] = 0
    for r in range(U(len(at))):
        ptr[U(at[r]) + ONE] += np.uint32(1)
    for d in range(U(len(slot))):
        slot[d] = ptr[d]
        ptr[d + ONE] += ptr[d]
