"""Who does what next: independent tasks over workers that may die, whoever the workers are.

The scheduler knows neither Ray nor a clock. It is told what has happened (:class:`Ready`, :class:`Ended`,
:class:`Died`) by its *hands* and tells them what to start: real workers of a cluster (``_crew.py``), or simulated ones,
so that its limits with hundreds of workers can be studied without having them (``benchmarks/scaling.py``).

A task whose worker dies is begun again, first of all that wait; what has ended stays ended. Results are kept by the
number of the task, so that it does not matter in what order they were made.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

from loadmaster.errors import RunError

__all__ = ["Died", "Ended", "Event", "Hands", "Ready", "Scheduler"]

TRIES = 3
"""Times that a task is begun anew whose worker has died, and that a worker is replaced which never was ready."""


class Ready(NamedTuple):
    """A worker can begin."""

    worker: int


class Ended(NamedTuple):
    """A worker has done a task."""

    worker: int
    task: int
    result: Any


class Died(NamedTuple):
    """A worker is gone, with what it was doing."""

    worker: int
    why: str


Event = Ready | Ended | Died


class Hands(Protocol):
    """Workers, by their numbers."""

    def start(self, worker: int, task: int) -> None:
        """Give a worker a task; it does them in the order in which it got them."""
        ...

    def replace(self, worker: int) -> None:
        """Start another worker under the number of one that died; it says when it is ready."""
        ...

    def wait(self, seconds: float | None) -> Sequence[Event]:
        """What has happened, after at most so many seconds: nothing, perhaps."""
        ...


class Scheduler:
    """Tasks 0 to ``count`` - 1, each done once.

    ahead : tasks that a worker has at a time. More than one hides the way to the worker and back where tasks are
        short; at the end it may leave one worker with two tasks and another with none.
    ready : workers that can begin at once.
    """

    def __init__(self, hands: Hands, count: int, *, ahead: int = 1, ready: Sequence[int] = ()) -> None:
        self._hands = hands
        self._ahead = ahead
        self._waiting = deque(range(count))
        self._held: dict[int, list[int]] = {worker: [] for worker in ready}
        self._free = deque(ready)
        self._begun = [0] * count
        self._stillborn: dict[int, int] = {}
        self.results: dict[int, Any] = {}
        self.count = count
        self.deaths = 0

    @property
    def ready(self) -> list[int]:
        """Workers that have nothing to do."""
        return [worker for worker, held in self._held.items() if not held]

    @property
    def over(self) -> bool:
        """Every task has ended."""
        return len(self.results) == self.count

    def run(
        self,
        *,
        started: Callable[[int], None] = lambda task: None,
        ended: Callable[[int, Any], None] = lambda task, result: None,
        tick: Callable[[], bool] = lambda: True,
        every: float | None = None,
    ) -> None:
        """Until all tasks have ended, or ``tick`` says that it is enough.

        started, ended : called as a task is begun (perhaps again), and with its result.
        tick : called after ``every`` so many seconds at the latest; False ends the run with what has ended.

        Raises
        ------
        RunError : a task was begun too often, or workers die before they can begin.
        """
        self._give(started)
        while not self.over:
            for event in self._hands.wait(every):
                self._note(event, ended)
            self._give(started)
            if not tick():
                return

    def drain(self, ended: Callable[[int, Any], None] = lambda task, result: None) -> bool:
        """Hear once more what has happened, and begin nothing; whether somebody is at work still."""
        if any(self._held.values()):
            for event in self._hands.wait(0.1):
                if isinstance(event, Died):
                    self._held.pop(event.worker, None)
                else:
                    self._note(event, ended)
        return any(self._held.values())

    def _note(self, event: Event, ended: Callable[[int, Any], None]) -> None:
        match event:
            case Ready(worker):
                self._held[worker] = []
                self._free.append(worker)
                self._stillborn.pop(worker, None)
            case Ended(worker, task, result):
                self._held[worker].remove(task)
                self._free.append(worker)
                if task not in self.results:
                    self.results[task] = result
                    ended(task, result)
            case Died(worker, why):
                self.deaths += 1
                held = self._held.pop(worker, None)
                if held is None:
                    self._stillborn[worker] = self._stillborn.get(worker, 0) + 1
                    if self._stillborn[worker] > TRIES:
                        raise RunError(f"workers of the Ray cluster cannot be started ({why})")
                for task in reversed(held or ()):
                    # The one that it was doing may be what killed it.
                    if task == (held or [task])[0] and self._begun[task] > TRIES:
                        raise RunError(f"a task on the Ray cluster failed {TRIES + 1} times ({why})")
                    self._waiting.appendleft(task)
                self._hands.replace(worker)

    def _give(self, started: Callable[[int], None]) -> None:
        while self._waiting and self._free:
            worker = self._free.popleft()
            held = self._held.get(worker)
            if held is None or len(held) >= self._ahead:  # it has died since, or has been served twice
                continue
            task = self._waiting.popleft()
            held.append(task)
            self._begun[task] += 1
            if len(held) < self._ahead:
                self._free.append(worker)
            started(task)
            self._hands.start(worker, task)
