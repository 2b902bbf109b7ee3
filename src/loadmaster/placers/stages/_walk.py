"""What the kernels of the dynamic program over ideals work on.

The states of an ideal that can still lead to a better chain are its *entries*: the state, its value (the
largest load so far), the ideal before the last stage, and the kind of that stage. The entries of ideal I are
``first[I]:stop[I]`` of pool I mod 2: two threads may solve the ideals of one size side by side, one the even,
one the odd ones, as they only read entries of smaller ideals.
"""

from __future__ import annotations

from typing import NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt
from numba import njit

from loadmaster.arrays import BoolArray, FloatArray, IntArray, LongArray
from loadmaster.placers.stages._tables import Tables

__all__ = ["Entries", "Rules", "Walk", "new_entries", "new_walk", "offer", "room_for"]

Scalar = TypeVar("Scalar", bound=np.generic)


class Rules(NamedTuple):
    """What a chain must keep to."""

    limit: float
    """Load 0 must be below this: the best known value."""
    ceiling: float
    """Load 1 must not exceed this."""
    left: FloatArray
    """(ideals, J) weight outside an ideal (``_windows.py``)."""
    room: FloatArray
    """(J, states) weight that may be outside."""
    held: FloatArray
    """(J, states) weight that may be inside."""
    used: IntArray
    """(states, K) devices in use."""


class Entries(NamedTuple):
    """See the module."""

    first: LongArray
    stop: LongArray
    """(ideals,)."""
    fill: LongArray
    """(2,) how much of each pool is taken."""
    state: IntArray
    value: FloatArray
    origin: IntArray
    kind: IntArray
    """(2, room)."""


class Walk(NamedTuple):
    """Work space of one thread. Rows of the stacks are depths; ``row`` and its companions are indexed by
    state.
    """

    have: IntArray
    """(E,) pins of each net in the stage."""
    inside: BoolArray
    """(N,) atoms in the stage."""
    node: IntArray
    atom: IntArray
    at: LongArray
    end: LongArray
    compute: FloatArray
    comm: FloatArray
    memory: FloatArray
    row: FloatArray
    """(states,) best value of the target; the limit where there is none yet, -1 where there cannot be a good
    one.
    """
    origin: IntArray
    kind: IntArray
    open: IntArray
    """The states where there can be."""
    load: FloatArray
    """(K,)."""
    extra: FloatArray
    """(C * L,) see ``ideal_dp/_front.py``."""


def new_entries(ideals: int, floor: float) -> Entries:
    """Only the empty ideal has an entry: no device in use, and the value that no chain can beat."""
    entries = Entries(
        first=np.zeros(ideals, np.int64),
        stop=np.zeros(ideals, np.int64),
        fill=np.array([1, 0]),
        state=np.zeros((2, 1024), np.int32),
        value=np.full((2, 1024), floor),
        origin=np.zeros((2, 1024), np.int32),
        kind=np.zeros((2, 1024), np.int32),
    )
    entries.stop[0] = 1
    return entries


def room_for(entries: Entries, more: int) -> Entries:
    """The entries, with room for so many more in each pool."""
    room, needed = entries.state.shape[1], int(entries.fill.max()) + more
    if needed <= room:
        return entries
    wide = max(needed, 2 * room)

    def grown(array: npt.NDArray[Scalar]) -> npt.NDArray[Scalar]:
        larger = np.empty((2, wide), array.dtype)
        larger[:, :room] = array
        return larger

    return entries._replace(
        state=grown(entries.state),
        value=grown(entries.value),
        origin=grown(entries.origin),
        kind=grown(entries.kind),
    )


def new_walk(tables: Tables, states: int, depth: int) -> Walk:
    """Work space for walks of at most ``depth`` steps."""
    columns, channels = tables.time.shape[1], tables.send.shape[1]
    depth += 2
    return Walk(
        have=np.zeros(len(tables.home), np.int32),
        inside=np.zeros(len(tables.memory), np.bool_),
        node=np.zeros(depth, np.int32),
        atom=np.zeros(depth, np.int32),
        at=np.zeros(depth, np.int64),
        end=np.zeros(depth, np.int64),
        compute=np.zeros((depth, columns)),
        comm=np.zeros((depth, channels * tables.loads)),
        memory=np.zeros(depth),
        row=np.zeros(states),
        origin=np.zeros(states, np.int32),
        kind=np.zeros(states, np.int32),
        open=np.zeros(states, np.int32),
        load=np.zeros(columns // tables.loads),
        extra=np.zeros(channels * tables.loads),
    )


@njit(cache=True, nogil=True)
def offer(walk, state, value, origin, kind):  # type: ignore[no-untyped-def]
    """Take a better value for a state of the target."""
    if value < walk.row[state]:
        walk.row[state] = value
        walk.origin[state] = origin
        walk.kind[state] = kind
