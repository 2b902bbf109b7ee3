"""Driving the dynamic program over ideals: batches, threads, and the way back to a split."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from loadmaster.placers.stages._chain import Stages
from loadmaster.placers.stages._contraction import Contracted
from loadmaster.placers.stages._walk import Entries, Rules, Walk, new_entries, new_walk, room_for
from loadmaster.placers.stages._windows import windows_of
from loadmaster.placers.stages.ideal_dp._front import Front, empty_front
from loadmaster.placers.stages.ideal_dp._ideals import Lattice, members_of
from loadmaster.placers.stages.ideal_dp._kernel import solve_ideals, solve_levels, weights_left

__all__ = ["best_chain"]

THREADS = 2
WIDE = 256
"""Where there are more ideals of one size, two threads share them."""
BATCH = 128
"""Ideals that are solved in the first call of a kernel."""
MOST_ENTRIES = 2_000_000
"""Entries that room is made for before a call."""
PAUSE = 0.1
"""Seconds that a call should take: between two, deadline, progress and Ctrl-C are looked after."""


def best_chain(
    contracted: Contracted,
    lattice: Lattice,
    *,
    limit: float = math.inf,
    ceiling: float = math.inf,
    floor: float = 0.0,
    check: Callable[[int], None] = lambda pairs: None,
) -> tuple[float, Stages] | None:
    """The best chain whose load 0 is below ``limit`` everywhere, and load 1 at most ``ceiling``; None if
    there is none.

    ``floor`` is a value that no chain can beat. ``check`` is called some ten times a second, and at the end,
    with the pairs of ideals looked at since; it may raise.
    """
    tables = contracted.tables
    windows = windows_of(contracted)
    rules = Rules(
        limit=limit,
        ceiling=ceiling,
        left=weights_left(lattice, windows.weight),
        room=windows.rooms(windows.left, (limit, ceiling)),
        held=windows.rooms(windows.used, (limit, ceiling)),
        used=contracted.used(),
    )
    entries = new_entries(lattice.ideals, floor)
    level = lattice.level
    walks = [new_walk(tables, contracted.states, contracted.atoms) for _ in range(THREADS)]
    front = empty_front(tables)
    width = np.diff(level)
    size, batch = 0, BATCH
    with ThreadPoolExecutor(THREADS) as pool:
        while size < contracted.atoms:
            check(0)
            last = size + 1
            if width[last] > WIDE:
                entries = _solve_size(pool, contracted, lattice, rules, entries, front, walks, last, check)
                size = last
                continue
            while (
                last < contracted.atoms
                and width[last + 1] <= WIDE
                and level[last + 2] - level[size + 1] <= batch
            ):
                last += 1
            entries = room_for(entries, int(level[last + 1] - level[size + 1]) * contracted.states)
            before = time.perf_counter()
            front, pairs = solve_levels(tables, lattice, rules, entries, front, walks[0], size, last)
            batch = _next_batch(batch, time.perf_counter() - before, contracted.states)
            size = last
            check(int(pairs))
    return _way_back(contracted, lattice, entries)


def _solve_size(
    pool: ThreadPoolExecutor,
    contracted: Contracted,
    lattice: Lattice,
    rules: Rules,
    entries: Entries,
    front: Front,
    walks: list[Walk],
    size: int,
    check: Callable[[int], None],
) -> Entries:
    """Solve the ideals of one size, even and odd ones side by side, in batches."""
    begin, end = int(lattice.level[size]), int(lattice.level[size + 1])
    batch = BATCH
    while begin < end:
        check(0)
        stop = min(begin + batch, end)
        entries = room_for(entries, (stop - begin) * contracted.states)
        before = time.perf_counter()
        parts = [
            pool.submit(
                solve_ideals,
                *(contracted.tables, lattice, rules, entries, front, walks[parity]),
                *(begin + (begin + parity) % 2, stop, 2),
            )
            for parity in range(THREADS)
        ]
        check(sum(int(part.result()) for part in parts))
        batch = _next_batch(batch, time.perf_counter() - before, contracted.states)
        begin = stop
    return entries


def _next_batch(batch: int, seconds: float, states: int) -> int:
    """How many ideals the next call may solve. What is found does not depend on it."""
    fit = max(2, MOST_ENTRIES // states)
    return int(np.clip(batch * PAUSE / max(seconds, 1e-6), 2, min(4 * batch, fit)))


def _way_back(contracted: Contracted, lattice: Lattice, entries: Entries) -> tuple[float, Stages] | None:
    """The best entry of the last ideal, and the stages that lead to it."""
    ideal = lattice.ideals - 1
    mine = slice(int(entries.first[ideal]), int(entries.stop[ideal]))
    if mine.start == mine.stop:
        return None
    entry = mine.start + int(entries.value[ideal % 2, mine].argmin())
    value = float(entries.value[ideal % 2, entry])
    stages: Stages = []
    while ideal:
        origin, kind = int(entries.origin[ideal % 2, entry]), int(entries.kind[ideal % 2, entry])
        state = int(entries.state[ideal % 2, entry])
        members, rest = (members_of(lattice.top_ptr, lattice.top, lattice.below, i) for i in (ideal, origin))
        stages.append((np.setdiff1d(members, rest).astype(np.int32), kind))
        first, stop = int(entries.first[origin]), int(entries.stop[origin])
        before = contracted.tables.following[entries.state[origin % 2, first:stop], kind]
        entry = first + int(np.flatnonzero(before == state)[0])
        ideal = origin
    return value, stages[::-1]
