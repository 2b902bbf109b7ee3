"""Local search over chains: atoms move between stages, the stages stay in line.

An atom may go to any stage between the last stage of its predecessors and the first stage of its successors,
so that the chain stays a chain, and where it is allowed and fits. A move changes the loads of the two stages
only; counters of pins per net and stage give them in O(nets of the atom). What is minimised is how far the
loads exceed a target just below the best cost so far, plus a little of their sum: the largest load alone
would not change with most moves.
"""

from __future__ import annotations

import math

import numpy as np
from numba import njit

from loadmaster.placers.search._moves import uniform
from loadmaster.placers.stages._chain import Stages
from loadmaster.placers.stages._contraction import Contracted

__all__ = ["improve_stages"]


AIM = 0.995
"""The target, relative to the best cost."""
SUM = 0.02
"""Weight of the sum of all loads."""


def improve_stages(
    contracted: Contracted, stages: Stages, seed: int, moves: int, temperature: float
) -> tuple[Stages, int]:
    """The best chain that so many random moves from ``stages`` lead to, and the number of moves tried.

    The temperature (relative to the largest load) falls to nothing. Devices that are not in use join as empty
    stages at random places.
    """
    rng = np.random.default_rng(seed)
    kinds = [kind for _, kind in stages]
    members = [atoms for atoms, _ in stages]
    spare = contracted.count - np.bincount(kinds, minlength=len(contracted.kinds))
    for kind in rng.permutation(np.repeat(np.arange(len(spare)), np.minimum(spare, 2))).tolist():
        place = int(rng.integers(len(kinds) + 1))
        kinds.insert(place, kind)
        members.insert(place, np.zeros(0, np.int32))
    stage = np.empty(contracted.atoms, np.int32)
    for i, atoms in enumerate(members):
        stage[atoms] = i
    best = stage.copy()
    state = rng.integers(1, 2**63, 1).astype(np.uint64)
    made = _improve(
        contracted.tables,
        contracted.predecessor_ptr,
        contracted.predecessor,
        contracted.successor_ptr,
        contracted.successor,
        np.array(kinds, np.int32),
        stage,
        best,
        state,
        moves,
        temperature,
    )
    order = np.argsort(best, kind="stable").astype(np.int32)
    cuts = np.searchsorted(best[order], np.arange(len(kinds) + 1))
    found = [(order[cuts[i] : cuts[i + 1]], kinds[i]) for i in range(len(kinds))]
    return [(atoms, kind) for atoms, kind in found if len(atoms)], int(made)


# Small functions get the arrays they need: taking them out of a tuple would cost more than they do.


@njit(cache=True, nogil=True)
def _charge(have, pins, has_home, send, recv):  # type: ignore[no-untyped-def]
    """Seconds that a stage pays for a net of which it has so many pins."""
    if have == 0 or have == pins:
        return 0.0
    return send if has_home else recv


@njit(cache=True, nogil=True)
def _energy(compute, comm, overlap, aim, s):  # type: ignore[no-untyped-def]
    """The part of the energy that a stage has."""
    total = 0.0
    for side in range(len(aim)):
        load = max(compute[s, side], comm[s, side]) if overlap else compute[s, side] + comm[s, side]
        total += SUM * load + max(0.0, load - aim[side])
    return total


@njit(cache=True, nogil=True)
def _worst(compute, comm, overlap, worst):  # type: ignore[no-untyped-def]
    """Fill the (L,) largest loads; their sum, the cost."""
    worst[:] = 0.0
    for s in range(len(compute)):
        for side in range(len(worst)):
            load = max(compute[s, side], comm[s, side]) if overlap else compute[s, side] + comm[s, side]
            worst[side] = max(worst[side], load)
    return worst.sum()


@njit(cache=True, nogil=True)
def _range(pred_ptr, pred, succ_ptr, succ, stage, stages, v):  # type: ignore[no-untyped-def]
    """First and last stage that atom v may be in."""
    low, high = 0, stages - 1
    for i in range(pred_ptr[v], pred_ptr[v + 1]):
        low = max(low, stage[pred[i]])
    for i in range(succ_ptr[v], succ_ptr[v + 1]):
        high = min(high, stage[succ[i]])
    return low, high


@njit(cache=True, nogil=True)
def _improve(  # type: ignore[no-untyped-def]
    tables, pred_ptr, pred, succ_ptr, succ, kind, stage, best, rng, moves, temperature
):
    """Returns the number of moves tried; ``best`` becomes the best stages."""
    n, stages, loads, overlap = len(stage), len(kind), tables.loads, tables.overlap
    net_ptr, net, home, pins, booked = tables.net_ptr, tables.net, tables.home, tables.pins, tables.load
    time, bytes_, capacity, crowded = tables.time, tables.memory, tables.capacity, tables.crowded
    # What a stage pays for a net, with a column of zeros for kinds that communicate for free.
    channels = tables.send.shape[1]
    send, recv = np.zeros((len(pins), channels + 1)), np.zeros((len(pins), channels + 1))
    send[:, :channels] = tables.send
    recv[:, :channels] = tables.recv
    channel = np.where(tables.channel[kind] < 0, channels, tables.channel[kind])
    count = np.zeros((len(pins), stages), np.int32)
    compute, comm, memory = np.zeros((stages, loads)), np.zeros((stages, loads)), np.zeros(stages)
    for v in range(n):
        s = stage[v]
        memory[s] += bytes_[v]
        for side in range(loads):
            compute[s, side] += time[v, kind[s] * loads + side]
        for i in range(net_ptr[v], net_ptr[v + 1]):
            count[net[i], s] += 1
    for e in range(len(pins)):
        for s in range(stages):
            c = channel[s]
            comm[s, booked[e]] += _charge(count[e, s], pins[e], stage[home[e]] == s, send[e, c], recv[e, c])
    worst = np.zeros(loads)
    least = _worst(compute, comm, overlap, worst)
    aim = AIM * worst
    # Atoms that could move, found out anew now and then; most atoms are deep inside their stage.
    loose, found, stale = np.empty(n, np.int32), 0, 0
    level = temperature * least
    cooling = 1e-3 ** (1.0 / max(moves, 1))
    old_compute, old_comm = np.empty((2, loads)), np.empty((2, loads))
    made = draws = 0
    while made < moves and draws < 4 * moves + 64:
        draws += 1
        if stale == 0:
            found = 0
            for v in range(n):
                low, high = _range(pred_ptr, pred, succ_ptr, succ, stage, stages, v)
                if low < high:
                    loose[found] = v
                    found += 1
            stale = 4 * n
        stale -= 1
        if found == 0:
            return made
        v = loose[int(uniform(rng) * found)]
        a = stage[v]
        low, high = _range(pred_ptr, pred, succ_ptr, succ, stage, stages, v)
        if low == high:
            continue
        if uniform(rng) < 0.75:
            b = a + 1 if uniform(rng) < 0.5 else a - 1
        else:
            b = low + int(uniform(rng) * (high - low + 1))
        if b == a or b < low or b > high or time[v, kind[b] * loads] == np.inf:
            continue
        if crowded and memory[b] + bytes_[v] > capacity[kind[b]]:
            continue
        made += 1
        level *= cooling
        before = _energy(compute, comm, overlap, aim, a) + _energy(compute, comm, overlap, aim, b)
        for side in range(loads):
            old_compute[0, side], old_compute[1, side] = compute[a, side], compute[b, side]
            old_comm[0, side], old_comm[1, side] = comm[a, side], comm[b, side]
            compute[a, side] -= time[v, kind[a] * loads + side]
            compute[b, side] += time[v, kind[b] * loads + side]
        ca, cb = channel[a], channel[b]
        for i in range(net_ptr[v], net_ptr[v + 1]):
            e = net[i]
            at, mine = stage[home[e]], home[e] == v
            have_a, have_b, all_, side = count[e, a], count[e, b], pins[e], booked[e]
            comm[a, side] -= _charge(have_a, all_, at == a, send[e, ca], recv[e, ca])
            comm[a, side] += _charge(have_a - 1, all_, at == a and not mine, send[e, ca], recv[e, ca])
            comm[b, side] -= _charge(have_b, all_, at == b, send[e, cb], recv[e, cb])
            comm[b, side] += _charge(have_b + 1, all_, at == b or mine, send[e, cb], recv[e, cb])
        after = _energy(compute, comm, overlap, aim, a) + _energy(compute, comm, overlap, aim, b)
        rise = after - before
        if rise > 0.0 and (level <= 0.0 or uniform(rng) >= math.exp(-rise / level)):
            for side in range(loads):
                compute[a, side], compute[b, side] = old_compute[0, side], old_compute[1, side]
                comm[a, side], comm[b, side] = old_comm[0, side], old_comm[1, side]
            continue
        for i in range(net_ptr[v], net_ptr[v + 1]):
            count[net[i], a] -= 1
            count[net[i], b] += 1
        memory[a] -= bytes_[v]
        memory[b] += bytes_[v]
        stage[v] = b
        cost = _worst(compute, comm, overlap, worst)
        if cost < least * (1.0 - 1e-12):
            least = cost
            best[:] = stage
            aim[:] = AIM * worst
    return made
