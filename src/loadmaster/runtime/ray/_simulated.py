"""Workers that are not there: they take simulated seconds, so that a scheduler can be tried with any number of them."""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Sequence
from itertools import count
from typing import Any

from loadmaster.runtime.ray._scheduling import Died, Ended, Event, Ready

__all__ = ["SimulatedCrew"]


class SimulatedCrew:
    """``Hands`` of a scheduler with a clock of their own.

    workers : how many.
    seconds : how long a task takes.
    result : what it gives.
    give, take : seconds that the scheduler's process is busy with giving out a task, and with one that has ended: it
        does one thing at a time.
    way : seconds from there to a worker, and back.
    startup : seconds until a worker can begin.
    life : (worker, how many it had before) -> seconds after which it dies.
    """

    def __init__(
        self,
        workers: int,
        seconds: Callable[[int], float],
        *,
        result: Callable[[int], Any] = lambda task: None,
        give: float = 0.0,
        take: float = 0.0,
        way: float = 0.0,
        startup: float = 0.0,
        life: Callable[[int, int], float] = lambda worker, before: math.inf,
    ) -> None:
        self.now = 0.0
        """The time in the scheduler's process."""
        self.busy = 0.0
        """Seconds that it has spent with giving and taking."""
        self._seconds, self._result, self._life = seconds, result, life
        self._give, self._take, self._way, self._startup = give, take, way, startup
        self._number = count()
        self._events: list[tuple[float, int, Event]] = []
        self._lives = [-1] * workers
        self._until = [0.0] * workers
        self._dies = [math.inf] * workers
        for worker in range(workers):
            self.replace(worker)

    def start(self, worker: int, task: int) -> None:
        """See ``Hands``."""
        self._spend(self._give)
        begin = max(self.now + self._way, self._until[worker])
        self._until[worker] = begin + self._seconds(task)
        if self._until[worker] < self._dies[worker]:
            self._push(self._until[worker] + self._way, Ended(worker, task, self._result(task)))

    def replace(self, worker: int) -> None:
        """See ``Hands``."""
        self._lives[worker] += 1
        self._until[worker] = self.now + self._startup
        self._dies[worker] = self.now + self._life(worker, self._lives[worker])
        if self._until[worker] < self._dies[worker]:
            self._push(self._until[worker], Ready(worker))
        if math.isfinite(self._dies[worker]):
            self._push(self._dies[worker] + self._way, Died(worker, "simulated"))

    def wait(self, seconds: float | None) -> Sequence[Event]:
        """See ``Hands``."""
        latest = math.inf if seconds is None else self.now + seconds
        if not self._events or self._events[0][0] > latest:
            assert math.isfinite(latest), "nothing will ever happen"
            self.now = latest
            return ()
        self.now = max(self.now, self._events[0][0])
        found = []
        while self._events and self._events[0][0] <= self.now:
            event = heapq.heappop(self._events)[2]
            if isinstance(event, Ended):
                self._spend(self._take)
            found.append(event)
        return found

    def _spend(self, seconds: float) -> None:
        self.now += seconds
        self.busy += seconds

    def _push(self, at: float, event: Event) -> None:
        heapq.heappush(self._events, (at, next(self._number), event))
