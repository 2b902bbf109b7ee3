"""A linear relaxation of ``concurrent``: paths, loads, windows and transfers with shared fractional places."""

from __future__ import annotations

import math
import time as clock
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from loadmaster.arrays import BoolArray, FloatArray
from loadmaster.problem._model import Concurrent
from loadmaster.problem._problem import Problem
from loadmaster.problem.bounds._apart import NOWHERE, Apart
from loadmaster.problem.bounds._around import Following, Stretch
from loadmaster.problem.bounds._bound import EPS, Bound
from loadmaster.problem.bounds._paths import op_arcs
from loadmaster.problem.bounds._schedule import Paths, placed_paths
from loadmaster.problem.bounds._view import Arcs, View, least_memory, view_of
from loadmaster.problem.bounds._windows import best_window

# scipy.optimize takes longer to import than the rest of the package, and few runs solve a relaxation.
if TYPE_CHECKING:
    from scipy.sparse import csr_array

__all__ = ["linear_bound"]

IndexArray = npt.NDArray[np.int64]

LARGEST = 40_000
"""Most variables of a relaxation that is solved."""
ROUNDS = 12
"""Most rounds in which windows are added."""
LEVELS = (1.0 - 1e-6, 0.75, 0.5, 0.25)
"""Windows are looked for among the ops of which a kind has at least such a share."""
STRETCHES = 40
"""Most ops in a round, forwards and backwards each, whose descendants or ancestors get a row for each kind."""


def linear_bound(
    problem: Problem, *, known: float = math.inf, seconds: float = math.inf, apart: Apart = NOWHERE
) -> Bound:
    """A bound on the makespan by linear programming; too slow to be one of ``all_bounds``.

    Variables: the share x[c, k] of class c on kind k, the start s[v] of every op, for every arc its transfer,
    and the makespan T. Minimise T such that

    - an op starts after its inputs have been computed and brought over: an arc costs at least the cheapest
      link out of kind k (into kind k) times what leaves k (arrives at k) along it;
    - an op starts after its head on kind k and leaves its tail on kind k behind, in proportion to x (the
      longest paths of ``placed critical path``, with queueing);
    - the pairs (v, k) with head >= a and tail >= b run between a and T - b: T >= (a + b) Σ_j x[u, j] + their
      time on k per device, for any one u and its places j of that sort. Violated windows are added round by round;
    - all that follows an op m and has a tail of at least b runs between the end of m and T - b (``_around.py``), and
      all that precedes it and has a head of at least a between a and the start of m;
    - what is known to be ``apart`` is so.

    With ``known``, the cost of some placement, pairs that alone cost more are excluded; the bound is then
    one on everything that is better than ``known``.

    The value is not the solver's: for any multipliers >= 0 of the rows the least value of the Lagrangian over
    0 <= T, s, transfers <= limit and the simplices of x bounds every schedule of at most ``limit`` seconds, so
    tolerances of the solver cannot make it invalid. A bound of 0 says that the relaxation was too large.
    """
    assert isinstance(problem.model, Concurrent)
    view = view_of(problem)
    nothing = Bound(0.0, "linear relaxation")
    if view is None or problem.n == 0:
        return nothing
    arcs = op_arcs(problem)
    between = view.of[arcs.tail] != view.of[arcs.head]
    size = view.cost.size + problem.n + 3 * int(between.sum()) * (len(view.kinds) + 1) * (len(view.kinds) > 2)
    if size > LARGEST:
        return nothing
    paths = placed_paths(problem, view, apart=apart)
    if not math.isfinite(paths.through.min(axis=1).max()):
        return nothing
    relaxation = _Relaxation(problem, view, arcs, paths, known)
    relaxation.keep_apart(apart)
    return Bound(min(relaxation.solve(seconds), known), "linear relaxation")


class _Relaxation:
    """Rows A z >= b over z = (x, s, transfers, what leaves, what arrives, T), in units of ``scale`` seconds."""

    def __init__(self, problem: Problem, view: View, arcs: Arcs, paths: Paths, known: float) -> None:
        self._view, self._paths = view, paths
        classes, kinds = view.cost.shape
        n = len(view.of)
        self._classes, self._kinds, self._n = classes, kinds, n
        self.scale = float(max(paths.through.min(axis=1).max(), 1e-300))
        allowed = np.isfinite(paths.through) & (paths.through <= known * (1.0 + 1e-9))
        allowed[~allowed.any(axis=1)] = np.isfinite(paths.through)[~allowed.any(axis=1)]
        self._allowed = allowed
        between = (view.of[arcs.tail] != view.of[arcs.head]) & (kinds > 1)
        self._arcs, self._between = arcs, np.flatnonzero(between)
        # Between two kinds a transfer is one way or the other: two rows say so without variables of its own.
        self._moves = len(self._between) if kinds > 2 else 0
        self._first_start = classes * kinds
        self._first_transfer = self._first_start + n
        self._first_leaving = self._first_transfer + self._moves
        self._first_arriving = self._first_leaving + self._moves * kinds
        self._columns = self._first_arriving + self._moves * kinds + 1
        self._row: list[IndexArray] = []
        self._column: list[IndexArray] = []
        self._value: list[FloatArray] = []
        self._right: list[FloatArray] = []
        self._rows = 0
        self._build()
        self._memory(problem)
        head, tail = (np.where(np.isfinite(a), a, math.inf).min(axis=1) for a in (paths.head, paths.tail))
        urgency = head + view.time.min(axis=1) + tail
        self._after = Following(n, arcs, tail, urgency)
        self._before = Following(n, arcs.reversed(), head, urgency)
        self._had: set[tuple[bool, int, float]] = set()

    # -- rows ------------------------------------------------------------------------------------------------

    def _add(self, rows: int, right: FloatArray | None, *parts: tuple[Any, Any, Any]) -> None:
        """``rows`` rows from (row, column, value) parts."""
        for row, column, value in parts:
            row, column, value = np.broadcast_arrays(row, column, np.asarray(value, np.float64))
            self._row.append(row.ravel().astype(np.int64) + self._rows)
            self._column.append(column.ravel().astype(np.int64))
            self._value.append(value.ravel())
        self._right.append(np.zeros(rows) if right is None else right)
        self._rows += rows

    def _x(self, ops: npt.NDArray[Any]) -> IndexArray:
        """(ops, K) columns of the shares of these ops."""
        return np.asarray(self._view.of[ops].astype(np.int64)[:, None] * self._kinds + np.arange(self._kinds))

    def _build(self) -> None:
        view, paths, kinds = self._view, self._paths, self._kinds
        every, last = np.arange(self._n), self._columns - 1
        ok = self._allowed[view.of]
        time, head, tail = (np.where(ok, a, 0.0) / self.scale for a in (view.time, paths.head, paths.tail))
        start = self._first_start
        rows = every[:, None]
        self._add(self._n, None, (every, start + every, 1.0), (rows, self._x(every), -head))
        self._add(
            self._n, None, (every, last, 1.0), (every, start + every, -1.0), (rows, self._x(every), -(time + tail))
        )  # fmt: skip
        arcs = self._arcs
        moves, move = self._between[: self._moves], np.arange(self._moves)

        def follow(a: IndexArray, *transfer: tuple[Any, Any, Any]) -> None:
            """Along the arcs a, what ends of the transfer included."""
            row = np.arange(len(a))
            self._add(
                len(a), None, (row, start + arcs.head[a], 1.0), (row, start + arcs.tail[a], -1.0),
                (row[:, None], self._x(arcs.tail[a]), -time[arcs.tail[a]]), *transfer,
            )  # fmt: skip

        follow(np.arange(len(arcs.tail)), (moves, self._first_transfer + move, -1.0))
        if not len(self._between):
            return
        out, into = self._cheapest_links()
        if kinds == 2:
            here, there = self._x(arcs.tail[self._between]), self._x(arcs.head[self._between])
            row = np.arange(len(self._between))
            for k in range(kinds):
                follow(self._between, (row, here[:, k], -out[:, k]), (row, there[:, k], out[:, k]))
            return
        leaving = self._first_leaving + (move[:, None] * kinds + np.arange(kinds))
        arriving = self._first_arriving + (move[:, None] * kinds + np.arange(kinds))
        for link, column in ((out, leaving), (into, arriving)):
            self._add(
                self._moves, None, (move, self._first_transfer + move, 1.0), (move[:, None], column, -link)
            )
        cell = np.arange(self._moves * kinds).reshape(self._moves, kinds)
        here, there = self._x(arcs.tail[moves]), self._x(arcs.head[moves])
        self._add(cell.size, None, (cell, leaving, 1.0), (cell, here, -1.0), (cell, there, 1.0))
        self._add(cell.size, None, (cell, arriving, 1.0), (cell, here, 1.0), (cell, there, -1.0))

    def keep_apart(self, apart: Apart) -> None:
        """Rows for what is known: s[second] >= s[first] + its time + the seconds; from the start, until the end."""
        if not len(apart.seconds):
            return
        time = np.where(self._allowed[self._view.of], self._view.time, 0.0) / self.scale
        row, after = np.arange(len(apart.seconds)), np.flatnonzero(apart.first >= 0)
        first = apart.first[after]
        until = np.where(apart.second < 0, self._columns - 1, self._first_start + apart.second)
        self._add(
            len(row), apart.seconds / self.scale * (1.0 - 1e-12), (row, until, 1.0),
            (after, self._first_start + first, -1.0), (after[:, None], self._x(first), -time[first]),
        )  # fmt: skip

    def _memory(self, problem: Problem) -> None:
        """What is on a kind fits into its devices together."""
        bytes_of = least_memory(problem)
        total = float(bytes_of.sum())
        for k, kind in enumerate(self._view.kinds):
            room = float(problem.capacity[kind].sum()) * (1.0 + 1e-8)
            if room < total:
                column = self._view.of.astype(np.int64) * self._kinds + k
                self._add(1, np.array([-room / total]), (np.zeros(self._n), column, -bytes_of / total))

    def _cheapest_links(self) -> tuple[FloatArray, FloatArray]:
        """(moves, K) the least transfer of an arc out of a kind to another, and into it, in units."""
        view, arcs, moves = self._view, self._arcs, self._between
        off = ~np.eye(self._kinds, dtype=bool)
        number, size = arcs.number[moves][:, None, None], arcs.size[moves][:, None, None]
        latency, rate = np.where(off, view.latency, 0.0), np.where(off, view.rate, 0.0)
        link = np.where(off[None], number * latency + size * rate, math.inf) / self.scale
        return link.min(axis=2), link.min(axis=1)

    def _window(self, k: int, a: float, b: float, inside: BoolArray, op: int) -> None:
        """T >= (a + b) Σ x[op, j] + the time of the ops inside on kind k, per device; j with (op, j) inside.

        ``inside``: (n, K) the pairs with head >= a and tail >= b. If ``op`` is at one of its places inside,
        T >= a + b, and all pairs inside on kind k run between a and T - b. If it is not, the row is only the
        load of the kind.
        """
        ops, places = np.flatnonzero(inside[:, k]), np.flatnonzero(inside[op])
        share = self._view.time[ops, k] / (self.scale * self._view.number[k])
        self._add(
            1, None, (0, self._columns - 1, 1.0), (0, self._view.of[op] * self._kinds + places, -(a + b) / self.scale),
            (np.zeros(len(ops)), self._view.of[ops].astype(np.int64) * self._kinds + k, -share),
        )  # fmt: skip

    def _stretches(self, z: FloatArray | None) -> bool:
        """Add rows for the ops whose descendants or ancestors have too little time; False if there are none.

        Without a solution: for those that are urgent if every class is where it takes least.
        """
        view, ok = self._view, self._allowed[self._view.of]
        time = np.where(ok, view.time, 0.0)
        if z is None:
            share = np.zeros(self._allowed.shape)
            share[np.arange(self._classes), np.where(self._allowed, view.cost, math.inf).argmin(axis=1)] = 1.0
            soonest = np.where(ok, self._paths.head, math.inf).min(axis=1)
            latest = np.where(ok, self._paths.tail, math.inf).min(axis=1)
            before, after = soonest, latest
        else:
            share = z[: self._first_start].reshape(self._allowed.shape)
            start = z[self._first_start : self._first_start + self._n] * self.scale
            before, after = start, z[-1] * self.scale - start
        work = (time * share[view.of]).sum(axis=1)
        amounts = time * share[view.of] / view.number
        added = False
        for forward in (True, False):
            following = self._after if forward else self._before
            ops = following.ops
            for k in range(self._kinds):
                value, rest = following.longest(np.ascontiguousarray(amounts[:, k]))
                if z is None:
                    excess = (before[ops] + work[ops] if forward else after[ops] + work[ops]) + value
                else:
                    excess = value - (after[ops] - work[ops] if forward else before[ops]) - 1e-6 * self.scale
                for i in np.argsort(-excess, kind="stable")[:STRETCHES].tolist():
                    key = (forward, int(ops[i]), float(rest[i]))
                    if excess[i] > 0 and key not in self._had:
                        self._had.add(key)
                        self._room(forward, following.stretch(key[1], key[2]))
                        added = True
        return added

    def _room(self, forward: bool, stretch: Stretch) -> None:
        """T >= the end of the op + the time of the stretch on kind k per device + its rest, for each kind k.

        Backwards: the start of the op >= rest + that time. The rest holds whatever the places of the ops, for it
        is the least of all kinds.
        """
        op, ops = stretch.op, stretch.ops
        ok = self._allowed[self._view.of]
        time = np.where(ok, self._view.time, 0.0) / self.scale
        last, start = self._columns - 1, self._first_start + op
        ends: tuple[tuple[Any, Any, Any], ...] = ((0, start, 1.0),)
        if forward:
            ends = (
                (0, last, 1.0),
                (0, start, -1.0),
                (np.zeros(self._kinds), self._x(np.array([op]))[0], -time[op]),
            )
        for k in range(self._kinds):
            column = self._view.of[ops].astype(np.int64) * self._kinds + k
            self._add(
                1, np.array([stretch.rest / self.scale * (1.0 - 1e-12)]), *ends,
                (np.zeros(len(ops)), column, -time[ops, k] / self._view.number[k]),
            )  # fmt: skip

    # -- solving ---------------------------------------------------------------------------------------------

    def solve(self, seconds: float) -> float:
        """The best bound of all rounds, in seconds of time."""
        stop = clock.perf_counter() + seconds
        best, worst = 0.0, -math.inf
        for k in range(self._kinds):
            self._window(k, 0.0, 0.0, self._allowed[self._view.of], 0)
        self._stretches(None)
        for _ in range(ROUNDS):
            left = stop - clock.perf_counter()
            if left <= 0:
                break
            found = self._optimum(left)
            if found is None:
                break
            z, multiplier = found
            best = max(best, self._proved(multiplier))
            if z[-1] <= worst * (1.0 + 1e-5):
                break
            more = self._stretches(z)
            if not self._violated(z) and not more:
                break
            worst = z[-1]
        return best * self.scale

    def _matrix(self) -> tuple[csr_array, FloatArray]:
        from scipy.sparse import coo_array

        triple = (
            np.concatenate(self._value),
            (np.concatenate(self._row), np.concatenate(self._column)),
        )
        matrix = coo_array(triple, shape=(self._rows, self._columns)).tocsr()
        return matrix, np.concatenate(self._right)

    def _optimum(self, seconds: float) -> tuple[FloatArray, FloatArray] | None:
        """A solution and the multipliers of the rows."""
        from scipy.optimize import linprog
        from scipy.sparse import coo_array

        matrix, right = self._matrix()
        classes, kinds = self._classes, self._kinds
        cell = np.arange(classes * kinds)
        one = coo_array(
            (np.ones(classes * kinds), (cell // kinds, cell)), shape=(classes, self._columns)
        ).tocsr()
        upper = np.full(self._columns, np.inf)
        upper[: self._first_start] = self._allowed.ravel()
        upper[self._first_leaving : -1] = 1.0
        objective = np.zeros(self._columns)
        objective[-1] = 1.0
        solve: Any = linprog  # its stubs know no sparse matrices
        limits = {} if math.isinf(seconds) else {"time_limit": seconds}
        done = solve(
            objective,
            A_ub=-matrix,
            b_ub=-right,
            A_eq=one,
            b_eq=np.ones(classes),
            bounds=np.stack([np.zeros(self._columns), upper], axis=1),
            method="highs-ipm" if self._columns > 5000 else "highs",
            options=limits,
        )
        if done.x is None or done.ineqlin is None or done.ineqlin.marginals is None:
            return None
        return done.x, np.maximum(-done.ineqlin.marginals, 0.0)

    def _proved(self, multiplier: FloatArray) -> float:
        """The least value of the Lagrangian, less what rounding can have added; in units.

        For schedules of at most ``limit`` units; a longer one costs more than that.
        """
        matrix, right = self._matrix()
        reduced = -(matrix.T @ multiplier)
        reduced[-1] += 1.0
        magnitude = abs(matrix).T @ multiplier
        magnitude[-1] += 1.0
        limit = 2.0
        most = np.ones(self._columns)
        most[self._first_start : self._first_leaving] = limit
        most[-1] = limit
        share = np.where(self._allowed, reduced[: self._first_start].reshape(self._allowed.shape), math.inf)
        rest = reduced[self._first_start :]
        value = float(right @ multiplier) + float(share.min(axis=1).sum())
        value += float((np.minimum(rest, 0.0) * most[self._first_start :]).sum())
        error = float(np.abs(right) @ multiplier) + float((magnitude * most).sum())
        terms = self._rows + self._columns + 2 * int(np.diff(matrix.tocsc().indptr).max(initial=0)) + 64
        return min(value - 4.0 * EPS * terms * error, limit)

    def _violated(self, z: FloatArray) -> bool:
        """Add for each kind the window that the shares overfill most; False if there is none."""
        share = z[: self._first_start].reshape(self._classes, self._kinds)[self._view.of]
        ok, added = self._allowed[self._view.of], False
        head, tail, time = (
            np.where(ok, table, 0.0) for table in (self._paths.head, self._paths.tail, self._view.time)
        )
        soonest, shortest = (np.where(ok, t, math.inf).min(axis=1) for t in (head, tail))
        for k in range(self._kinds):
            amount = time[:, k] * share[:, k] / self._view.number[k]
            found = [best_window(soonest, shortest, amount)[1:]]
            for level in LEVELS:
                some = np.flatnonzero(ok[:, k] & (share[:, k] >= level))
                if len(some):
                    _, a, b = best_window(level * head[some, k], level * tail[some, k], amount[some])
                    found.append((a / level, b / level))
            for a, b in set(found):
                a, b = a * (1.0 - 1e-12), b * (1.0 - 1e-12)
                inside = ok & (head >= a) & (tail >= b)
                present = np.where(inside, share, 0.0).sum(axis=1)
                op = int(present.argmax())
                value = (a + b) * present[op] + float(amount[inside[:, k]].sum())
                if value > (z[-1] + 1e-6) * self.scale:
                    self._window(k, a, b, inside, op)
                    added = True
        return added
