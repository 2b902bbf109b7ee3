"""Sweeps with a small network in their rule: the decoder of ``gdp`` for models without a schedule.

Under ``pipeline`` and ``serial`` only who is where matters, not when. A pass begins with a whole placement, visits
the atoms in an order, and puts each where the energy of the placement plus what the network has learnt is least. The
energy of ``pipeline`` is how far the loads exceed an aim, plus a little of their sum; that of ``serial`` is the
cost. Changes are exact, by the ledger of ``problem/_nets.py``. With output weights of zero a pass is a
sweep of descent.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from loadmaster.placers.learned.gdp._list_policy import squash
from loadmaster.problem._pipeline import is_contiguous
from loadmaster.problem.loads import APART, OVERLAP, SERIAL, load_cost, move_op, reset

__all__ = ["LOAD_PAIR", "sweep"]

LOAD_PAIR = (
    "energy", "stay", "load", "largest", "inputs", "readers", "time", "talk", "filled", "distance", "worst", "", "",
    "", "",
)  # fmt: skip
"""Features of an (atom, device) pair, in the order of the kernel: how much more energy than on the best device;
whether it is there now; the device's load with it against the mean and against the largest; shares of its inputs
and of the readers of its outputs that are there; its time against the fastest; the change of all communication;
how full the memory would be; how far it is from the middle of the device's ops along the graph; the change of the
largest load. The rest is not used."""

SUM = 0.02
"""Weight of the sum of all loads in the energy."""


@njit(cache=True, nogil=True)
def energy_of(kind, compute, comm, aim):  # type: ignore[no-untyped-def]
    """What a sweep minimises. O(devices)."""
    if kind & SERIAL:
        return load_cost(kind, compute, comm)
    over = total = 0.0
    for d in range(compute.shape[1]):
        work, talk = compute[0, d] + compute[1, d], comm[0, d] + comm[1, d]
        load = max(work, talk) if kind & OVERLAP else work + talk
        over += max(0.0, load - aim)
        total += work + talk
    if kind & APART:
        return load_cost(kind, compute, comm) + SUM * total / compute.shape[1]
    return over + SUM * total


@njit(cache=True, nogil=True)
def sweep(  # type: ignore[no-untyped-def]
    kind, ops, touch, tensors, time, size, wire, latency, rate, device, count, compute, comm,
    contiguity, tail, head, order, member_ptr, member, allowed, memory, capacity, atom_time, unit, common, position,
    aim_share, hidden_atom, hidden_device, pair_weights, out_weights, placement,
):  # fmt: skip
    """One pass from ``placement``, which becomes the best placement met; its cost.

    ``position`` : (atoms,) place along the graph, 0 to 1. ``aim_share`` : the aim between the mean load (0) and
    the largest (1) at the beginning of the pass.
    """
    devices, width = time.shape[1], hidden_atom.shape[1]
    reset(kind, ops, touch, tensors, time, size, wire, latency, rate, device, count, compute, comm, placement)
    used, middle, weight = np.zeros(devices), np.zeros(devices), np.zeros(devices)
    for a in range(len(memory)):
        d = device[member[member_ptr[a]]]
        used[d] += memory[a]
        middle[d] += atom_time[a, d] * position[a]
        weight[d] += atom_time[a, d]
    best_cost = load_cost(kind, compute, comm)
    mean = (compute.sum() + comm.sum()) / devices
    aim = mean + aim_share * (best_cost - mean)
    energies, load, largest, talk = np.empty(devices), np.empty(devices), np.empty(devices), np.empty(devices)
    hidden, x = np.zeros(width), np.zeros(len(pair_weights))
    here, there = np.empty(devices), np.empty(devices)
    learnt = False
    for i in range(out_weights.shape[0]):
        for j in range(width):
            if out_weights[i, j] != 0.0:
                learnt = True
    compute_before, comm_before = compute.copy(), comm.copy()
    for a in order:
        now = device[member[member_ptr[a]]]
        least, fastest, choices = np.inf, np.inf, 0
        for s in range(2):
            for d in range(devices):
                compute_before[s, d] = compute[s, d]
                comm_before[s, d] = comm[s, d]
        talk_before, worst_before = comm.sum(), load_cost(kind, compute, comm)
        for k in range(devices):
            d = (now + k) % devices
            energies[d] = np.inf
            if not allowed[a, d] or (d != now and used[d] + memory[a] > capacity[d]):
                continue
            for i in range(member_ptr[a], member_ptr[a + 1]):
                move_op(
                    kind, ops, touch, tensors, time, size, wire, latency, rate, device, count, compute, comm,
                    member[i], d,
                )  # fmt: skip
            energies[d] = energy_of(kind, compute, comm, aim)
            load[d] = compute[0, d] + compute[1, d] + comm[0, d] + comm[1, d]
            largest[d] = load_cost(kind, compute, comm)
            talk[d] = comm.sum()
            least, fastest = min(least, energies[d]), min(fastest, atom_time[a, d])
            choices += 1
        for i in range(member_ptr[a], member_ptr[a + 1]):
            move_op(
                kind, ops, touch, tensors, time, size, wire, latency, rate, device, count, compute, comm,
                member[i], now,
            )  # fmt: skip
        # Going there and back again must not change the sums by rounding.
        for s in range(2):
            for d in range(devices):
                compute[s, d] = compute_before[s, d]
                comm[s, d] = comm_before[s, d]
        if choices < 2:
            continue
        if learnt:
            here[:] = 0.0
            there[:] = 0.0
            came = went = 0.0
            for i in range(member_ptr[a], member_ptr[a + 1]):
                v = member[i]
                for j in range(ops[v, 0], ops[v, 1]):
                    t = touch[j]
                    came += size[t]
                    here[device[tensors[t, 0]]] += size[t]
                for j in range(ops[v, 1], ops[v, 3]):
                    t = touch[j]
                    for d in range(devices):
                        if count[t, d] > 0:
                            went += size[t]
                            there[d] += size[t]
        best, best_total = now, np.inf
        scale = 1.0 / unit[a]
        for k in range(devices):
            d = (now + k) % devices
            if energies[d] == np.inf:
                continue
            total = energies[d]
            if learnt:
                x[0] = squash((energies[d] - least) * scale)
                x[1] = 1.0 if d == now else 0.0
                x[2] = squash(load[d] / max(mean, 1e-300) - 1.0)
                x[3] = squash((load[d] - worst_before) / max(worst_before, 1e-300))
                x[4] = here[d] / came if came > 0.0 else 0.0
                x[5] = there[d] / went if went > 0.0 else 0.0
                x[6] = squash((atom_time[a, d] - fastest) * scale)
                x[7] = squash((talk[d] - talk_before) * scale)
                x[8] = (
                    (used[d] + (0.0 if d == now else memory[a])) / capacity[d]
                    if 0.0 < capacity[d] < np.inf
                    else 0.0
                )
                x[9] = abs(position[a] - middle[d] / weight[d]) if weight[d] > 0.0 else 0.0
                x[10] = squash((largest[d] - worst_before) * scale)
                for j in range(width):
                    hidden[j] = hidden_atom[a, j] + hidden_device[d, j]
                for i in range(len(x)):
                    for j in range(width):
                        hidden[j] += x[i] * pair_weights[i, j]
                own = shared = 0.0
                for j in range(width):
                    h = max(hidden[j], 0.0)
                    own += h * out_weights[0, j]
                    shared += h * out_weights[1, j]
                total += own * unit[a] + shared * common
            if total < best_total:
                best, best_total = d, total
        if best == now:
            continue
        for i in range(member_ptr[a], member_ptr[a + 1]):
            move_op(
                kind, ops, touch, tensors, time, size, wire, latency, rate, device, count, compute, comm,
                member[i], best,
            )  # fmt: skip
        if contiguity != 0 and not is_contiguous(contiguity, tail, head, device, devices):
            for i in range(member_ptr[a], member_ptr[a + 1]):
                move_op(
                    kind, ops, touch, tensors, time, size, wire, latency, rate, device, count, compute, comm,
                    member[i], now,
                )  # fmt: skip
            for s in range(2):
                for d in range(devices):
                    compute[s, d] = compute_before[s, d]
                    comm[s, d] = comm_before[s, d]
            continue
        used[now] -= memory[a]
        used[best] += memory[a]
        middle[now] -= atom_time[a, now] * position[a]
        weight[now] -= atom_time[a, now]
        middle[best] += atom_time[a, best] * position[a]
        weight[best] += atom_time[a, best]
        cost = load_cost(kind, compute, comm)
        if cost < best_cost * (1.0 - 1e-12):
            best_cost = cost
            placement[:] = device
    return best_cost
