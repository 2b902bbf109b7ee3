"""Moves in the static schedule of the ``concurrent`` execution model: only the end of the schedule changes.

Moving an op leaves everything before it in the global order as it was, but for the transfers to it: a tensor
that now goes elsewhere enters or leaves the queue of a link when its producer ends. So a move is evaluated by
computing again what comes from the first producer of a moved op on, starting from the last checkpoint before
it.

The functions are compiled and meant to be called from compiled search loops::

    state = static_delta(problem)                      # once, in Python
    cost = prepare(state, device)                      # (n,) devices by op
    cost = try_move(state, ranks, target, cutoff)      # what it would cost to move these ops to this device
    commit(state)                                      # make the last tried move real

Only ``schedule="static"`` with ``memory="sum"`` is meant; memory and other constraints are the caller's
business.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from numba import njit

from loadmaster.arrays import FloatArray
from loadmaster.graph.order import csr_from_pairs
from loadmaster.problem._problem import Problem
from loadmaster.problem.concurrent._rank import rank_space

__all__ = ["StaticDelta", "commit", "prepare", "static_delta", "try_move"]

IndexArray = npt.NDArray[np.uint32]

U: Any = np.uint64
ZERO, ONE = U(0), U(1)


class StaticDelta(NamedTuple):
    """A placement and its static schedule, with room for a second one that is being tried.

    Ops are numbered by rank, tensors and (tensor, reader) pairs as in :class:`RankSpace`, whose arrays of the
    same name come first. Arrays with a first axis of 2, which is flattened, hold the current schedule, then
    the one that is being tried; of the latter only what comes from ``trial[0]`` on is filled, everything
    before is as in the current one.

    order, rank : (n,) op of each rank, and rank of each op.
    input_ptr, input_edge : the (tensor, reader) pairs that rank r reads: ``input_edge[input_ptr[r] :
        input_ptr[r + 1]]``.
    origin : (n,) the smallest rank among an op and its producers: moving the op changes nothing before.
    tail : (n,) seconds that must at least follow an op's end: the longest path of the ops after it, each on
        the fastest device that its colocation class may use, without transfers.
    at : (n,) device of each rank.
    arrival : (2, E) when each input is on its reader's device.
    end : (2, n) when each op ends.
    load : (2, D) seconds of work on each device.
    checkpoint : (2, n // interval + 1, width) the state before every ``interval``-th op: when each of the D
        devices and of the D * D links (d to e at d * D + e) is free, the work that each device has done, and
        the makespan so far, which are ``width`` numbers.
    interval : how many ops lie between two checkpoints.
    moment : work space for one checkpoint.
    moved : (n,) the ranks that the tried move moves; before : (n,) their devices.
    trial : (4,) of the last tried move: the rank that it was computed from, its target, the number of moved
        ops, and 1 if it was computed to the end, so that it can be committed.
    makespan : (2,) seconds.
    """

    order: IndexArray
    time: FloatArray
    latency: FloatArray
    rate: FloatArray
    tensor_ptr: IndexArray
    reader_ptr: IndexArray
    reader: IndexArray
    size: FloatArray
    rank: IndexArray
    input_ptr: IndexArray
    input_edge: IndexArray
    origin: IndexArray
    tail: FloatArray
    at: IndexArray
    arrival: FloatArray
    end: FloatArray
    load: FloatArray
    checkpoint: FloatArray
    interval: np.uint64
    moment: FloatArray
    moved: IndexArray
    before: IndexArray
    trial: npt.NDArray[np.uint64]
    makespan: FloatArray


def static_delta(problem: Problem) -> StaticDelta:
    """Arrays for a problem; :func:`prepare` must come before the first move."""
    space = problem.derived(rank_space)
    n, devices = space.time.shape
    edges = len(space.reader)
    rank = np.empty(n, np.uint32)
    rank[space.order] = np.arange(n, dtype=np.uint32)
    input_ptr, input_edge = csr_from_pairs(space.reader.astype(np.int32), np.arange(edges, dtype=np.int32), n)
    pair_ptr = space.reader_ptr[space.tensor_ptr[: n + 1]].astype(np.int64)  # the pairs of each producer
    origin = np.arange(n, dtype=np.uint32)
    np.minimum.at(origin, space.reader, np.repeat(origin, pair_ptr[1:] - pair_ptr[:-1]))
    allowed = problem.class_allowed[problem.class_of][space.order]
    fastest = np.where(allowed, space.time, np.inf).min(axis=1, initial=np.inf)
    fastest[np.isinf(fastest)] = 0.0
    tail = np.zeros(n)
    _fill_tail(space.tensor_ptr, space.reader_ptr, space.reader, fastest, tail)
    # A checkpoint should cost little compared with the ops between two of them.
    interval = max(16, devices * devices // 2)
    width = devices + devices * devices + devices + 1
    return StaticDelta(
        order=space.order,
        time=space.time,
        latency=space.latency.ravel(),
        rate=space.rate.ravel(),
        tensor_ptr=space.tensor_ptr,
        reader_ptr=space.reader_ptr,
        reader=space.reader,
        size=space.size,
        rank=rank,
        input_ptr=input_ptr.astype(np.uint32),
        input_edge=input_edge.astype(np.uint32),
        origin=origin,
        tail=tail,
        at=np.zeros(n, np.uint32),
        arrival=np.zeros(2 * edges),
        end=np.zeros(2 * n),
        load=np.zeros(2 * devices),
        checkpoint=np.zeros(2 * (n // interval + 1) * width),
        interval=U(interval),
        moment=np.empty(width),
        moved=np.empty(n, np.uint32),
        before=np.empty(n, np.uint32),
        trial=np.zeros(4, np.uint64),
        makespan=np.zeros(2),
    )


@njit(cache=True, nogil=True)
def prepare(state, device):  # type: ignore[no-untyped-def]
    """Take ``device`` (n,), by op, as the current placement; its makespan (inf: an op is unsupported)."""
    for v in range(U(len(device))):
        state.at[U(state.rank[v])] = device[v]
    state.makespan[1] = _run(state, ZERO, np.inf)
    state.trial[0], state.trial[2], state.trial[3] = ZERO, ZERO, ONE
    commit(state)
    return state.makespan[0]


@njit(cache=True, nogil=True)
def try_move(state, ranks, target, cutoff):  # type: ignore[no-untyped-def]
    """The makespan if the ops of these ``ranks`` were on device ``target``; nothing is changed.

    Infinite if an op is not supported there, or as soon as the makespan is known to be greater than
    ``cutoff``, which takes for granted that every op is where its colocation class may go.

    Complexity: O(ops + edges) of the ops from the first producer of a moved op on.
    """
    first = U(len(state.order))
    supported = True
    for i in range(len(ranks)):
        r = U(ranks[i])
        first = min(first, U(state.origin[r]))
        supported = supported and state.time[r, target] < np.inf
        state.moved[i], state.before[i] = r, state.at[r]
    state.trial[0] = first // state.interval * state.interval
    state.trial[1], state.trial[2], state.trial[3] = U(target), U(len(ranks)), ZERO
    if not supported:
        return np.inf
    D = U(state.time.shape[1])
    for d in range(D):
        state.load[D + d] = state.load[d]
    for i in range(len(ranks)):
        r, d = U(ranks[i]), U(state.before[i])
        state.load[D + d] -= state.time[r, d]
        state.load[D + U(target)] += state.time[r, target]
        state.at[r] = target
    makespan = _run(state, state.trial[0], cutoff)
    for i in range(len(ranks)):
        state.at[U(ranks[i])] = state.before[i]
    state.makespan[1] = makespan
    state.trial[3] = U(makespan < np.inf)
    return makespan


@njit(cache=True, nogil=True)
def commit(state):  # type: ignore[no-untyped-def]
    """Make the last tried move real. Its :func:`try_move` must have returned a finite makespan."""
    if state.trial[3] == ZERO:
        raise ValueError("there is no tried move to commit")
    first = state.trial[0]
    for i in range(state.trial[2]):
        state.at[U(state.moved[i])] = state.trial[1]
    edges, n, half = U(len(state.reader)), U(len(state.at)), U(len(state.checkpoint)) >> ONE
    for c in range(U(state.reader_ptr[U(state.tensor_ptr[first])]), edges):
        state.arrival[c] = state.arrival[edges + c]
    for r in range(first, n):
        state.end[r] = state.end[n + r]
    for i in range((first // state.interval + ONE) * U(len(state.moment)), half):
        state.checkpoint[i] = state.checkpoint[half + i]
    for d in range(U(state.time.shape[1])):
        state.load[d] = state.load[U(state.time.shape[1]) + d]
    state.makespan[0] = state.makespan[1]
    state.trial[3] = ZERO


@njit(cache=True, nogil=True)
def _run(state, begin, cutoff):  # type: ignore[no-untyped-def]
    """Compute the schedule of ``state.at`` from rank ``begin``, a checkpoint, on; its makespan.

    Infinite as soon as the end of an op plus its tail, or plus the work that its device still has to do, is
    greater than the cutoff. All these sums are rounded at every step, so a schedule is only given up if it
    misses the cutoff by more than that can explain: 16 (n + 2) units of 2^-53.
    """
    time, size, at, tail = state.time, state.size, state.at, state.tail
    latency, rate, load, checkpoint = state.latency, state.rate, state.load, state.checkpoint
    tensor_ptr, reader_ptr, reader = state.tensor_ptr, state.reader_ptr, state.reader
    input_ptr, input_edge = state.input_ptr, state.input_edge
    arrival, ends, moment = state.arrival, state.end, state.moment
    n, D, edges = U(time.shape[0]), U(time.shape[1]), U(len(reader))
    done, last, width, half = D + D * D, D + D * D + D, U(len(moment)), U(len(checkpoint)) >> ONE
    limit = cutoff * (1.0 + (n + U(2)) * 2.0**-49)
    new = U(reader_ptr[U(tensor_ptr[begin])])  # from this pair on, arrivals are those that are being tried
    mark, next_mark = begin // state.interval, begin + state.interval
    for i in range(width):
        moment[i] = checkpoint[mark * width + i]
    makespan = moment[last]
    for r in range(begin, n):
        if r == next_mark:
            mark += ONE
            next_mark += state.interval
            moment[last] = makespan
            for i in range(width):
                checkpoint[half + mark * width + i] = moment[i]
        d = U(at[r])
        start = moment[d]
        for i in range(U(input_ptr[r]), U(input_ptr[r + ONE])):
            c = U(input_edge[i])
            start = max(start, arrival[c + (edges if c >= new else ZERO)])
        end = start + time[r, d]
        moment[done + d] += time[r, d]
        if end + max(tail[r], load[D + d] - moment[done + d]) > limit:
            return np.inf
        moment[d] = end
        ends[n + r] = end
        makespan = max(makespan, end)
        link = D + d * D
        for t in range(U(tensor_ptr[r]), U(tensor_ptr[r + ONE])):
            for c in range(U(reader_ptr[t]), U(reader_ptr[t + ONE])):
                p = d * D + U(at[U(reader[c])])
                arrival[edges + c] = max(end, moment[D + p]) + (latency[p] + size[t] * rate[p])
            for c in range(U(reader_ptr[t]), U(reader_ptr[t + ONE])):
                moment[link + U(at[U(reader[c])])] = arrival[edges + c]
    for d in range(D):
        load[D + d] = moment[done + d]
    return makespan


@njit(cache=True, nogil=True)
def _fill_tail(tensor_ptr, reader_ptr, reader, fastest, tail):  # type: ignore[no-untyped-def]
    n = len(tail)
    for i in range(n):
        r = U(n - 1 - i)
        for t in range(U(tensor_ptr[r]), U(tensor_ptr[r + ONE])):
            for c in range(U(reader_ptr[t]), U(reader_ptr[t + ONE])):
                u = U(reader[c])
                tail[r] = max(tail[r], fastest[u] + tail[u])
