"""The states between two classes of an order: what a bundle has in common with the open nets.

Deciding the classes one after another (in the bundle or not), all that matters of the past for the costs to come is, for every
net that is open, whether its pins so far are all out, all in, or mixed; mixed nets are paid for. States that can only lead to
loads above a limit are dropped. What remains is a layered graph whose paths are the bundles: an arc carries the load that its
decision adds.

When a net becomes mixed before its producer is decided, the lesser of send and recv is charged, and the difference when the
producer is decided; the sum along a path is the exact load.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from numba import njit

from loadmaster.placers._frontier_nets import Bundles, Kind
from loadmaster.placers._frontier_order import Order

__all__ = ["SLOTS", "States", "states_of"]

IntArray = npt.NDArray[np.int32]
FloatArray = npt.NDArray[np.float64]

SLOTS = 31
"""Most nets that may be open at a time: a state is two bits for each in one machine word."""
OPENS, CLOSES, PRODUCER, PRODUCED = 1, 2, 4, 8
"""What a class is to a net: its first pin, its last, its producer, or a pin after the producer."""


class States(NamedTuple):
    """Layered graph of the states; layer i is what may be before the i-th class of the order is decided.

    layer : (classes + 2,) states of layer i are ``layer[i]`` … ``layer[i + 1] - 1``; the first and the last layer have one.
    arc_ptr : (states + 1,) arcs that lead to a state, by target.
    source : (arcs,) the state where an arc comes from.
    taken : (arcs,) 1 if its class goes into the bundle.
    load : (arcs,) seconds that the decision adds.
    least : (states,) seconds, the least load of a path to a state.
    order : (classes,) the class that is decided between layers i and i + 1.
    """

    layer: IntArray
    arc_ptr: IntArray
    source: IntArray
    taken: IntArray
    load: FloatArray
    least: FloatArray
    order: IntArray

    @property
    def count(self) -> int:
        """Number of states."""
        return int(self.layer[-1])

    def inside(self, path: IntArray) -> npt.NDArray[np.bool_]:
        """(classes,) the bundle that a path (its arcs in order) stands for."""
        inside = np.zeros(len(self.order), np.bool_)
        inside[self.order] = self.taken[path] == 1
        return inside

    def path(self, inside: npt.NDArray[np.bool_]) -> IntArray | None:
        """(classes,) the arcs of a bundle; None if the bundle is above the limit."""
        path = _follow(self.layer, self.arc_ptr, self.source, self.taken, inside[self.order])
        return None if path[-1] < 0 else path


def states_of(bundles: Bundles, kind: Kind, order: Order, limit: float, most: int) -> States | None:
    """The states of bundles with a load of at most ``limit`` seconds; None if there are more than ``most`` (or too many nets open).

    O(states · degree), times a logarithm for sorting.
    """
    costly = np.maximum(kind.send, kind.recv) > 0
    steps = _steps(bundles, kind, order.order, costly)
    if steps is None:
        return None
    time = kind.time[order.order]
    found = _expand(*steps, time, limit * (1.0 + 1e-9), most)
    if len(found[0]) == 0:
        return None
    layer, arc_ptr, source, taken, load = found
    return States(layer, arc_ptr, source, taken, load, _least_loads(arc_ptr, source, load), order.order)


def _steps(
    bundles: Bundles, kind: Kind, order: IntArray, costly: npt.NDArray[np.bool_]
) -> tuple[IntArray, IntArray, IntArray, FloatArray, FloatArray] | None:
    """For each step: (ptr, slot, flags, send, recv) of the nets that the class touches; None if slots run out."""
    position = np.empty(bundles.classes, np.int64)
    position[order] = np.arange(bundles.classes)
    at = position[bundles.pin]
    nets = len(bundles.producer)
    first, last = np.zeros(nets, np.int64), np.zeros(nets, np.int64)
    if nets:
        first, last = np.minimum.reduceat(at, bundles.pin_ptr[:-1]), np.maximum.reduceat(at, bundles.pin_ptr[:-1])
    producer = position[bundles.producer]
    free = list(range(SLOTS, 0, -1))
    slot_of: dict[int, int] = {}
    ptr, slot, flags, send, recv = [0], [], [], [], []
    for i, v in enumerate(order.tolist()):
        closing = []
        for e in bundles.net[bundles.net_ptr[v] : bundles.net_ptr[v + 1]].tolist():
            if not costly[e]:
                continue
            if first[e] == i:
                if not free:
                    return None
                slot_of[e] = free.pop() - 1
            slot.append(slot_of[e])
            flag = OPENS * (first[e] == i) + CLOSES * (last[e] == i)
            flags.append(flag + PRODUCER * (producer[e] == i) + PRODUCED * (producer[e] < i))
            send.append(kind.send[e])
            recv.append(kind.recv[e])
            if last[e] == i:
                closing.append(slot_of[e] + 1)
        free.extend(closing)
        ptr.append(len(slot))
    return (
        np.array(ptr, np.int32),
        np.array(slot, np.int32),
        np.array(flags, np.int32),
        np.array(send, np.float64),
        np.array(recv, np.float64),
    )


@njit(cache=True, nogil=True)
def _least_loads(arc_ptr, source, load):  # type: ignore[no-untyped-def]
    least = np.full(len(arc_ptr) - 1, np.inf)
    least[0] = 0.0
    for s in range(1, len(least)):
        for a in range(arc_ptr[s], arc_ptr[s + 1]):
            least[s] = min(least[s], least[source[a]] + load[a])
    return least


@njit(cache=True, nogil=True)
def _follow(layer, arc_ptr, source, taken, inside):  # type: ignore[no-untyped-def]
    """The arcs from the first to the last state with these decisions; -1 in the last entry if there are none."""
    path = np.full(len(inside), -1, np.int32)
    at = 0
    for i in range(len(inside)):
        found = False
        for s in range(layer[i + 1], layer[i + 2]):
            for a in range(arc_ptr[s], arc_ptr[s + 1]):
                if source[a] == at and (taken[a] == 1) == inside[i]:
                    path[i], at, found = a, s, True
                    break
            if found:
                break
        if not found:
            path[-1] = -1
            break
    return path


@njit(cache=True, nogil=True)
def _decide(code, x, begin, end, slot, flags, send, recv):  # type: ignore[no-untyped-def]
    """The state after a class with nets begin … end - 1 goes in (x = 1) or stays out, and what the nets charge."""
    charge = 0.0
    three = np.uint64(3)
    for j in range(begin, end):
        shift = np.uint64(2 * slot[j])
        flag = flags[j]
        paid = send[j] if x else recv[j]
        least = min(send[j], recv[j])
        if flag & 1:
            after = x
        else:
            before = np.int64((code >> shift) & three)
            after = before
            if before == 2:
                if flag & 4:
                    charge += paid - least
            elif before != x:
                after = 2
                if flag & 4:
                    charge += paid
                elif flag & 8:
                    charge += send[j] if before == 1 else recv[j]
                else:
                    charge += least
        code &= ~(three << shift)
        if not flag & 2:
            code |= np.uint64(after) << shift
    return code, charge


@njit(cache=True, nogil=True)
def _expand(ptr, slot, flags, send, recv, time, limit, most):  # type: ignore[no-untyped-def]
    """All states within the limit, layer by layer: forward with the least load so far, then back with the least to come."""
    n = len(time)
    nothing = (np.zeros(0, np.int32), np.zeros(0, np.int32), np.zeros(0, np.int32), np.zeros(0, np.int32), np.zeros(0))
    layer = np.zeros(n + 2, np.int32)
    layer[1] = 1
    code = np.zeros(1, np.uint64)
    so_far = np.zeros(1)
    size = 1024
    reach = np.zeros(size)
    arcs = 0
    room = 2 * size
    source, target = np.empty(room, np.int32), np.empty(room, np.int32)
    taken, load = np.empty(room, np.int32), np.empty(room)
    for i in range(n):
        first = layer[i]
        count = layer[i + 1] - first
        fresh = np.empty(2 * count, np.uint64)
        origin, decision = np.empty(2 * count, np.int32), np.empty(2 * count, np.int32)
        added = np.empty(2 * count)
        made = 0
        for k in range(count):
            for x in range(2):
                work = time[i] if x else 0.0
                if not so_far[k] + work <= limit:
                    continue
                after, charge = _decide(code[k], x, ptr[i], ptr[i + 1], slot, flags, send, recv)
                if so_far[k] + work + charge <= limit:
                    fresh[made], origin[made], decision[made], added[made] = after, k, x, work + charge
                    made += 1
        sorted_ = np.argsort(fresh[:made])
        after_code, after_load = np.empty(made, np.uint64), np.empty(made)
        states = 0
        while arcs + made > room:
            room *= 2
            source, target = _grown(source, room), _grown(target, room)
            taken, load = _grown(taken, room), _grown(load, room)
        for k in sorted_:
            total = so_far[origin[k]] + added[k]
            if states == 0 or after_code[states - 1] != fresh[k]:
                after_code[states], after_load[states] = fresh[k], total
                states += 1
            after_load[states - 1] = min(after_load[states - 1], total)
            source[arcs], target[arcs] = first + origin[k], layer[i + 1] + states - 1
            taken[arcs], load[arcs] = decision[k], added[k]
            arcs += 1
        layer[i + 2] = layer[i + 1] + states
        if layer[i + 2] > most:
            return nothing
        while layer[i + 2] > size:
            size *= 2
            reach = _grown(reach, size)
        reach[layer[i + 1] : layer[i + 2]] = after_load[:states]
        code, so_far = after_code[:states], after_load[:states]
    return _trimmed(layer, reach, source[:arcs], target[:arcs], taken[:arcs], load[:arcs], limit)


@njit(cache=True, nogil=True)
def _grown(array, size):  # type: ignore[no-untyped-def]
    larger = np.empty(size, array.dtype)
    larger[: len(array)] = array
    return larger


@njit(cache=True, nogil=True)
def _trimmed(layer, reach, source, target, taken, load, limit):  # type: ignore[no-untyped-def]
    """Without the states and arcs from which every path to the end exceeds the limit."""
    states = layer[-1]
    rest = np.full(states, np.inf)
    rest[states - 1] = 0.0
    for a in range(len(source) - 1, -1, -1):
        rest[source[a]] = min(rest[source[a]], load[a] + rest[target[a]])
    name = np.full(states, -1, np.int32)
    kept = 0
    shorter = np.zeros_like(layer)
    for i in range(len(layer) - 1):
        for s in range(layer[i], layer[i + 1]):
            if reach[s] + rest[s] <= limit:
                name[s] = kept
                kept += 1
        shorter[i + 1] = kept
    arc_ptr = np.zeros(kept + 1, np.int32)
    arcs = 0
    for a in range(len(source)):
        if reach[source[a]] + load[a] + rest[target[a]] <= limit and name[source[a]] >= 0 and name[target[a]] >= 0:
            source[arcs], taken[arcs], load[arcs] = name[source[a]], taken[a], load[a]
            arc_ptr[name[target[a]] + 1] += 1
            arcs += 1
    for s in range(kept):
        arc_ptr[s + 1] += arc_ptr[s]
    return shorter, arc_ptr, source[:arcs].copy(), taken[:arcs].copy(), load[:arcs].copy()
