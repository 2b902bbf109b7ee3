"""Turns: several searches share a few lanes, and those that have improved of late are let on more often.

Every member of a portfolio has a :class:`Turn` of its own and runs in a thread of its own, so that it keeps what it
has built up. It asks for the lane each time it looks at the clock (:meth:`Turn.pass_on`); while it waits its own clock
stands still. A small bandit: after some turns for everybody, of two turns that are given out, one goes to the member
with the best gain per second of late, the other to the one that has had the least time for its weight, so that nobody
is forgotten. Whoever has gained nothing for some turns counts for less until it gains again.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

__all__ = ["OPENING", "Turn", "Turns", "taking", "turn_of"]

FADING = 0.7
"""What is left of earlier gains and seconds in a member's rate after another turn."""
VAIN, LEAST = 2.0, 0.25
"""After so many turns in vain a member counts for half, and at last for this share of its weight."""
OPENING = 2
"""Turns that every member has before any has more: what somebody is good for shows after some time, and whoever gained
first would have half of all turns from then on."""
OVERDUE = 2.0
"""Seconds over its time after which a member no longer keeps others from the lane."""

Clock = Callable[[], float]


class Turn:
    """One member's share of the lanes."""

    def __init__(self, turns: Turns, name: str, weight: float = 1.0, passing: bool = False) -> None:
        self.name = name
        self.passing = passing
        """It will be done soon: nobody expects to have less time because of it."""
        self.weight = weight
        """Its fair share of the time, in those of a usual member."""
        self.waited = 0.0
        """Seconds that it has waited so far."""
        self.spent = 0.0
        """Seconds that it has had the lane."""
        self._turns = turns
        self.since = 0.0
        self.gain = 0.0
        self.rate_gain = 0.0
        self.rate_seconds = 0.0
        self.had = 0
        """Turns that it has had."""
        self.vain = 0
        """Turns in a row without gain."""

    @property
    def fair(self) -> float:
        """The time that it will have had after another turn, in that of a usual member: the least is next."""
        after = self.spent + self._turns.seconds
        return after / (self.weight * max(1.0 / (1.0 + self.vain / VAIN), LEAST))

    @property
    def rate(self) -> float:
        """Gain per second of late; none after some turns in vain."""
        return self.rate_gain / self.rate_seconds if self.rate_seconds > 0 and self.vain <= VAIN else 0.0

    @property
    def expected(self) -> float:
        """Seconds that it will still have the lane, if it goes on as so far."""
        return self._turns.expected(self)

    def gained(self, share: float) -> None:
        """The best cost known to all has fallen by this share, through this member."""
        self.gain += share

    def pass_on(self) -> None:
        """Give the lane to another if the time is over, and wait for it to come back."""
        self._turns.pass_on(self)


class Turns:
    """Who may run: at most ``lanes`` members at a time.

    seconds : length of a turn.
    over : whether the run has ended; then nobody waits any longer.
    clock : seconds from some moment on; tests bring their own.
    left : seconds until the run ends.
    opening : turns of every member before any has more.
    """

    def __init__(
        self,
        seconds: float,
        over: Callable[[], bool],
        lanes: int = 1,
        clock: Clock = time.perf_counter,
        left: Clock = lambda: math.inf,
        opening: int = OPENING,
    ) -> None:
        self.seconds = seconds
        self._opening = opening
        self._left = left
        self._lanes = lanes
        self._over = over
        self._clock = clock
        self._condition = threading.Condition()
        self._waiting: list[Turn] = []
        self._running: list[Turn] = []
        self._given = 0

    @property
    def waiting(self) -> int:
        """Members in line."""
        return len(self._waiting)

    def expected(self, turn: Turn) -> float:
        """See :class:`Turn`: by weight at first, then by what it has had of the time so far."""
        had = turn.spent + max(self._clock() - turn.since, 0.0)
        members = [member for member in (*self._waiting, *self._running) if not member.passing]
        fair = self._lanes * turn.weight / max(sum(member.weight for member in members), turn.weight)
        # As if it had had its fair share for some turns before.
        some = 4.0 * self.seconds
        share = (had + min(fair, 1.0) * some) / (had + turn.waited + some)
        return min(share, 1.0) * max(self._left(), 0.0)

    def widen(self, lanes: int) -> None:
        """Let so many members run at a time from now on."""
        with self._condition:
            self._lanes = lanes
            self._condition.notify_all()

    def join(self, name: str, weight: float = 1.0, *, passing: bool = False) -> Turn:
        """A new member; it waits in line until its first turn."""
        turn = Turn(self, name, weight, passing)
        with self._condition:
            self._wait(turn)
        return turn

    def leave(self, turn: Turn) -> None:
        """The member is done."""
        with self._condition:
            self._book(turn)
            self._condition.notify_all()

    def pass_on(self, turn: Turn) -> None:
        """See :class:`Turn`."""
        if self._clock() - turn.since < self.seconds:
            return
        with self._condition:
            self._book(turn)
            self._wait(turn)

    def _book(self, turn: Turn) -> None:
        if turn not in self._running:
            return
        self._running.remove(turn)
        seconds = max(self._clock() - turn.since, 0.0)
        turn.spent += seconds
        turn.had += 1
        turn.rate_gain = FADING * turn.rate_gain + turn.gain
        turn.rate_seconds = FADING * turn.rate_seconds + seconds
        turn.vain = 0 if turn.gain > 0 else turn.vain + 1
        turn.gain = 0.0

    def _wait(self, turn: Turn) -> None:
        """Wait until the lane is given to this member."""
        began = self._clock()
        self._waiting.append(turn)
        self._condition.notify_all()
        while not self._over() and not (self._room() and self.chosen() is turn):
            self._condition.wait(0.02)
        self._waiting.remove(turn)
        self._running.append(turn)
        self._given += 1
        turn.since = self._clock()
        turn.waited += turn.since - began
        self._condition.notify_all()

    def _room(self) -> bool:
        now = self._clock()
        on_time = [turn for turn in self._running if now - turn.since < self.seconds + OVERDUE]
        return len(on_time) < self._lanes

    def chosen(self) -> Turn:
        """Who is next: at first all, then by turns the one that improves fastest and the one that has had the least
        time."""
        new = [turn for turn in self._waiting if turn.had < self._opening]
        if new:
            return min(new, key=lambda turn: (turn.had, -turn.weight))
        least = min(self._waiting, key=lambda turn: turn.fair)
        best = max(self._waiting, key=lambda turn: turn.rate)
        return best if self._given % 2 and best.rate > 0 else least


_here: ContextVar[Turn | None] = ContextVar("turn", default=None)


def turn_of() -> Turn | None:
    """The turn that searches which begin in this thread depend on."""
    return _here.get()


@contextmanager
def taking(turn: Turn) -> Iterator[None]:
    """Searches that begin in this thread inside the block pass on the lane when their time is over."""
    token = _here.set(turn)
    try:
        yield
    finally:
        _here.reset(token)
