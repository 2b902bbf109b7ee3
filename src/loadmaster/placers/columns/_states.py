"""The states between two classes of an order: what a bundle has in common with the open nets.

Deciding the classes one after another (to the bundle or not), all that matters of the past for the costs to
come is, for every net that is open, whether its pins so far are all out, all in, or mixed. States that can
only lead to loads above a limit are dropped. What remains is a layered graph whose paths are the bundles: an
arc carries the load that its decision adds.

The same graph divides the classes of two devices between the two, everything else staying where it is: "out"
is then the second device, which has loads of its own, and nets may have pins elsewhere, which are always cut.
Pricing a bundle is the case in which the second device is free of charge and nothing is elsewhere. Calls
(``calls/_states.py``) are bundles too: the first sum is then their memory, and the second their seconds.

When a device has to pay for a net before the net's producer is decided, the lesser of send and recv is
charged, and the difference when the producer is decided; the sum along a path is the exact load.

A bundle may have to be an interval of a *line*, classes that the order has in the line's order: a state then
also knows whether the bundle has not yet met the line, is on it, or has left it.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import njit

from loadmaster.arrays import BoolArray, FloatArray, IntArray
from loadmaster.placers.columns._nets import Bundles, Kind

__all__ = ["SLOTS", "Charges", "States", "layered_states", "split_states", "states_of"]


SLOTS = 31
"""Most nets that may be open at a time: a state is two bits for each in one machine word, and"""
PHASE = 62
"""the two highest bits: 0 before the line, 1 on it, 2 after it."""
OPENS, CLOSES, PRODUCER, PRODUCED, FOREIGN, ELSEWHERE = 1, 2, 4, 8, 16, 32
"""What a class is to a net: its first pin, its last, its producer, or a pin after the producer; and of the
net: its producer is elsewhere, some pin is elsewhere."""
ALL_OUT, ALL_IN, MIXED = 0, 1, 2


class Charges(NamedTuple):
    """What one of the two sums along a path adds up.

    inside, outside : (classes,) for a class that goes into the bundle, and for one that stays out.
    send, recv : (nets,) for a cut net whose producer is on the sum's own side (in the bundle for the first
        sum, outside for the second), and for one whose producer is not.
    """

    inside: FloatArray
    outside: FloatArray
    send: FloatArray
    recv: FloatArray


class States(NamedTuple):
    """Layered graph of the states; layer i is what may be before the i-th class of the order is decided.

    order : (classes,) the class that is decided between layers i and i + 1.
    layer : (classes + 2,) states of layer i are ``layer[i]`` … ``layer[i + 1] - 1``; the first and the last
        layer have one.
    arc_ptr : (states + 1,) arcs that lead to a state, by target.
    source : (arcs,) the state where an arc comes from.
    taken : (arcs,) 1 if its class goes into the bundle.
    load, other : (arcs,) what the decision adds to the two sums: the seconds of the bundle's device and those
        of the second device; for calls, bytes and seconds.
    least : (states,) the least load of a path to a state.
    """

    order: IntArray
    layer: IntArray
    arc_ptr: IntArray
    source: IntArray
    taken: IntArray
    load: FloatArray
    other: FloatArray
    least: FloatArray

    @property
    def total(self) -> int:
        """Number of states."""
        return int(self.layer[-1])

    def inside(self, path: IntArray, classes: int) -> BoolArray:
        """(classes,) the bundle that a path (its arcs in order) stands for."""
        inside = np.zeros(classes, np.bool_)
        inside[self.order] = self.taken[path] == 1
        return inside

    def path(self, inside: BoolArray) -> IntArray | None:
        """The arcs of a bundle; None if it is above the limit."""
        path = _follow(self.layer, self.arc_ptr, self.source, self.taken, inside[self.order])
        return None if len(path) and path[-1] < 0 else path


def states_of(bundles: Bundles, kind: Kind, order: IntArray, limit: float, most: int) -> States | None:
    """The states of bundles with a load of at most ``limit`` seconds on a device of the kind.

    None if there are more than ``most``, or more than :data:`SLOTS` nets are open. O(states · degree), times
    a logarithm for sorting.
    """
    free = Kind(kind.devices, np.zeros_like(kind.time), np.zeros_like(kind.send), np.zeros_like(kind.recv))
    member = np.ones(bundles.classes, np.bool_)
    return split_states(bundles, order, member, (kind, free), (limit, np.inf), most)


def split_states(
    bundles: Bundles,
    order: IntArray,
    member: BoolArray,
    kinds: tuple[Kind, Kind],
    limits: tuple[float, float],
    most: int,
) -> States | None:
    """The states of dividing the ``member`` classes between two devices of these kinds, within these
    loads."""
    first, second = kinds
    nothing = np.zeros(bundles.classes)
    charges = (
        Charges(first.time, nothing, first.send, first.recv),
        Charges(nothing, second.time, second.send, second.recv),
    )
    return layered_states(bundles, order, member, charges, limits, most)


def layered_states(
    bundles: Bundles,
    order: IntArray,
    member: BoolArray,
    charges: tuple[Charges, Charges],
    limits: tuple[float, float],
    most: int,
    line: IntArray | None = None,
) -> States | None:
    """The states of bundles of ``member`` classes whose two sums stay within ``limits``, which meet ``line`` in
    an interval; None if there are more than ``most``, or too many nets are open."""
    first, second = charges
    costly = (first.send > 0) | (first.recv > 0) | (second.send > 0) | (second.recv > 0)
    expand: Any = _expand  # mypy counts the arguments of a compiled function wrongly behind a star
    fits, chosen, *steps = _steps(
        order, member, bundles.net_ptr, bundles.net, bundles.pin_ptr, bundles.pin, bundles.producer, costly
    )
    if not fits:
        return None
    turn = np.zeros(bundles.classes, np.int32)
    if line is not None and len(line):
        turn[line] = 1
        turn[line[-1]] = 2
    found = expand(
        chosen, *steps, turn, *first, *second, limits[0] * (1.0 + 1e-9), limits[1] * (1.0 + 1e-9), most
    )
    if len(found[0]) == 0 or found[0][-1] == 0:
        return None
    layer, arc_ptr, source, taken, load, other = found
    return States(chosen, layer, arc_ptr, source, taken, load, other, _least_loads(arc_ptr, source, load))


@njit(cache=True, nogil=True)
def _steps(order, member, net_ptr, net, pin_ptr, pin, producer, costly):  # type: ignore[no-untyped-def]
    """For each class of the order that is a member: (ptr, net, slot, flags) of the costly nets it touches."""
    nets = len(pin_ptr) - 1
    chosen = order[member[order]]
    n = len(chosen)
    position = np.full(len(member), -1, np.int32)
    for i in range(n):
        position[chosen[i]] = i
    first, last = np.full(nets, n, np.int32), np.full(nets, -1, np.int32)
    elsewhere = np.zeros(nets, np.bool_)
    for e in range(nets):
        for k in range(pin_ptr[e], pin_ptr[e + 1]):
            p = position[pin[k]]
            if p < 0:
                elsewhere[e] = True
            else:
                first[e], last[e] = min(first[e], p), max(last[e], p)
    room = 0
    for v in chosen:
        room += net_ptr[v + 1] - net_ptr[v]
    ptr = np.zeros(n + 1, np.int32)
    touched, slot, flags = np.empty(room, np.int32), np.empty(room, np.int32), np.empty(room, np.int32)
    free, top = np.arange(SLOTS).astype(np.int32), SLOTS
    slot_of = np.full(nets, -1, np.int32)
    made = 0
    fits = True
    for i in range(n):
        v = chosen[i]
        for k in range(net_ptr[v], net_ptr[v + 1]):
            e = net[k]
            if not costly[e]:
                continue
            flag = 0
            if first[e] == i:
                if top == 0:
                    fits = False
                    return fits, chosen, ptr, touched, slot, flags
                top -= 1
                slot_of[e] = free[top]
                flag |= OPENS
            if last[e] == i:
                flag |= CLOSES
            p = position[producer[e]]
            flag |= FOREIGN if p < 0 else PRODUCER if p == i else PRODUCED if p < i else 0
            if elsewhere[e]:
                flag |= ELSEWHERE
            touched[made], slot[made], flags[made] = e, slot_of[e], flag
            made += 1
        for k in range(ptr[i], made):
            if flags[k] & CLOSES:
                free[top] = slot[k]
                top += 1
        ptr[i + 1] = made
    return fits, chosen, ptr, touched[:made], slot[:made], flags[:made]


@njit(cache=True, nogil=True)
def _amount(flag, known, home, side, send, recv):  # type: ignore[no-untyped-def]
    """What a cut net costs the device ``side``, as far as is known; ``home`` is the producer's device."""
    if flag & FOREIGN:
        return recv
    if known:
        return send if home == side else recv
    return min(send, recv)


@njit(cache=True, nogil=True)
def _decide(code, x, begin, end, net, slot, flags, send, recv, send2, recv2):  # type: ignore[no-untyped-def]
    """The state after a class with the nets begin … end - 1 goes in (x = 1) or out, and what the two
    devices pay for it."""
    pays = pays2 = 0.0
    three = np.uint64(3)
    for j in range(begin, end):
        e, flag, shift = net[j], flags[j], np.uint64(2 * slot[j])
        before = -1 if flag & OPENS else np.int64((code >> shift) & three)
        after = x if before == -1 or before == x else MIXED
        now = (flag & PRODUCER) != 0
        known = now or (flag & PRODUCED) != 0
        home = x if now else before
        if flag & ELSEWHERE:
            # Cut for each of the two devices as soon as it has a pin.
            if before == -1 or before == 1 - x:
                if x == ALL_IN:
                    pays += _amount(flag, known, home, ALL_IN, send[e], recv[e])
                else:
                    pays2 += _amount(flag, known, home, ALL_OUT, send2[e], recv2[e])
            had, had2 = before in (ALL_IN, MIXED), before in (ALL_OUT, MIXED)
        else:
            # Cut for both devices as soon as it is mixed.
            if after == MIXED and before != MIXED:
                pays += _amount(flag, known, home, ALL_IN, send[e], recv[e])
                pays2 += _amount(flag, known, home, ALL_OUT, send2[e], recv2[e])
            had = had2 = before == MIXED
        if now and had:
            pays += _amount(flag, True, x, ALL_IN, send[e], recv[e]) - min(send[e], recv[e])
        if now and had2:
            pays2 += _amount(flag, True, x, ALL_OUT, send2[e], recv2[e]) - min(send2[e], recv2[e])
        code &= ~(three << shift)
        if not flag & CLOSES:
            code |= np.uint64(after) << shift
    return code, pays, pays2


@njit(cache=True, nogil=True)
def _expand(  # type: ignore[no-untyped-def]
    chosen, ptr, net, slot, flags, turn, inside, outside, send, recv, inside2, outside2, send2, recv2,
    limit, limit2, most,
):  # fmt: skip
    """All states within the limits, layer by layer; then those without a future are dropped.

    ``turn`` (classes,) is 1 for the classes of the line, 2 for the last of them, else 0.
    """
    n = len(chosen)
    nothing = np.zeros(0, np.int32)
    failed = (nothing, nothing, nothing, nothing, np.zeros(0), np.zeros(0))
    layer = np.zeros(n + 2, np.int32)
    layer[1] = 1
    code, so_far, so_far2 = np.zeros(1, np.uint64), np.zeros(1), np.zeros(1)
    size, room, arcs = 1024, 2048, 0
    reach, reach2 = np.zeros(size), np.zeros(size)
    source, target, taken = np.empty(room, np.int32), np.empty(room, np.int32), np.empty(room, np.int32)
    load, other = np.empty(room), np.empty(room)
    high, three = np.uint64(PHASE), np.uint64(3)
    for i in range(n):
        c = chosen[i]
        first, count = layer[i], layer[i + 1] - layer[i]
        fresh, origin = np.empty(2 * count, np.uint64), np.empty(2 * count, np.int32)
        decision = np.empty(2 * count, np.int32)
        added, added2 = np.empty(2 * count), np.empty(2 * count)
        made = 0
        for k in range(count):
            phase = np.int64((code[k] >> high) & three)
            for x in range(2):
                if x == 1 and turn[c] > 0 and phase == 2:
                    continue
                after, pays, pays2 = _decide(
                    code[k], x, ptr[i], ptr[i + 1], net, slot, flags, send, recv, send2, recv2
                )
                if turn[c] > 0:
                    now = 1 if x == 1 else 2 if phase > 0 else 0
                    if turn[c] == 2:
                        now = 0
                    after = (after & ~(three << high)) | (np.uint64(now) << high)
                if x == 1:
                    pays += inside[c]
                    pays2 += inside2[c]
                else:
                    pays += outside[c]
                    pays2 += outside2[c]
                if so_far[k] + pays <= limit and so_far2[k] + pays2 <= limit2:
                    fresh[made], origin[made], decision[made] = after, k, x
                    added[made], added2[made] = pays, pays2
                    made += 1
        if made == 0:
            return failed
        while arcs + made > room:
            room *= 2
            source, target, taken = _grown(source, room), _grown(target, room), _grown(taken, room)
            load, other = _grown(load, room), _grown(other, room)
        after_code, after, after2 = np.empty(made, np.uint64), np.empty(made), np.empty(made)
        states = 0
        for k in np.argsort(fresh[:made]):
            total, total2 = so_far[origin[k]] + added[k], so_far2[origin[k]] + added2[k]
            if states == 0 or after_code[states - 1] != fresh[k]:
                after_code[states], after[states], after2[states] = fresh[k], total, total2
                states += 1
            after[states - 1] = min(after[states - 1], total)
            after2[states - 1] = min(after2[states - 1], total2)
            source[arcs], target[arcs] = first + origin[k], layer[i + 1] + states - 1
            taken[arcs], load[arcs], other[arcs] = decision[k], added[k], added2[k]
            arcs += 1
        layer[i + 2] = layer[i + 1] + states
        if layer[i + 2] > most:
            return failed
        while layer[i + 2] > size:
            size *= 2
            reach, reach2 = _grown(reach, size), _grown(reach2, size)
        reach[layer[i + 1] : layer[i + 2]] = after[:states]
        reach2[layer[i + 1] : layer[i + 2]] = after2[:states]
        code, so_far, so_far2 = after_code[:states], after[:states], after2[:states]
    return _trimmed(
        layer, reach, reach2, source[:arcs], target[:arcs], taken[:arcs], load[:arcs], other[:arcs], limit, limit2
    )  # fmt: skip


@njit(cache=True, nogil=True)
def _grown(array, size):  # type: ignore[no-untyped-def]
    larger = np.empty(size, array.dtype)
    larger[: len(array)] = array
    return larger


@njit(cache=True, nogil=True)
def _trimmed(layer, reach, reach2, source, target, taken, load, other, limit, limit2):  # type: ignore[no-untyped-def]
    """Without the states and arcs from which every path to the end exceeds a limit."""
    states = layer[-1]
    rest, rest2 = np.full(states, np.inf), np.full(states, np.inf)
    rest[states - 1] = rest2[states - 1] = 0.0
    for a in range(len(source) - 1, -1, -1):
        rest[source[a]] = min(rest[source[a]], load[a] + rest[target[a]])
        rest2[source[a]] = min(rest2[source[a]], other[a] + rest2[target[a]])
    name = np.full(states, -1, np.int32)
    kept = 0
    shorter = np.zeros_like(layer)
    for i in range(len(layer) - 1):
        for s in range(layer[i], layer[i + 1]):
            if reach[s] + rest[s] <= limit and reach2[s] + rest2[s] <= limit2:
                name[s] = kept
                kept += 1
        shorter[i + 1] = kept
    arc_ptr = np.zeros(kept + 1, np.int32)
    arcs = 0
    for a in range(len(source)):
        q, s = source[a], target[a]
        if (
            name[q] >= 0
            and name[s] >= 0
            and reach[q] + load[a] + rest[s] <= limit
            and reach2[q] + other[a] + rest2[s] <= limit2
        ):
            source[arcs], taken[arcs], load[arcs], other[arcs] = name[q], taken[a], load[a], other[a]
            arc_ptr[name[s] + 1] += 1
            arcs += 1
    for s in range(kept):
        arc_ptr[s + 1] += arc_ptr[s]
    return (
        shorter,
        arc_ptr,
        source[:arcs].copy(),
        taken[:arcs].copy(),
        load[:arcs].copy(),
        other[:arcs].copy(),
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
    """The arcs from the first to the last state with these decisions; -1 in the last entry if there are
    none."""
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
