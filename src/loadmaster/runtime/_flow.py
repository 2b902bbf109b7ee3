"""Submodels running on all their devices at once: one thread per device, several requests in flight."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from loadmaster.errors import RunError
from loadmaster.runtime._cores import pin

__all__ = ["Flow", "Job", "Request"]

LOOKING = 2e-3
"""Seconds that a device looks for work before it goes to sleep, while there are requests."""
REMEMBERED = 2000
"""Jobs that are remembered, for those who watch."""


@dataclass
class Job:
    """One submodel of one slot: what to call, on which device, and which jobs of the slot wait for it."""

    name: str
    device: str
    run: Callable[[], object]
    readers: Sequence[int]
    waits: int
    """For how many jobs it waits."""


@dataclass(eq=False)
class Request:
    """One run of the whole model."""

    number: int
    slot: int
    left: list[int]
    """Per job, how many it still waits for."""
    at: dict[str, int]
    """Per device, how many jobs of its sequence have begun."""
    undone: int
    running: int = 0
    error: BaseException | None = None
    released: bool = False
    """Its slot is to be given back as soon as nothing uses it."""
    finished: threading.Event = field(default_factory=threading.Event)
    begun: float = 0.0
    ended: float = 0.0
    spans: list[tuple[int, float, float, float]] = field(default_factory=list)
    """(job, start, end, seconds on the core) of what ran."""


class Flow:
    """Runs the jobs of requests as soon as what they wait for is done.

    Every device has one thread, on a core of its own where it was given one, and keeps to its sequence of jobs
    within a request; between requests it takes the oldest that can go on. A slot is what one request needs for itself
    (tensors): with all slots taken :meth:`submit` waits. The first error of a request ends that request; ``said`` makes
    one line of what the engine says in it.
    """

    def __init__(
        self,
        slots: Sequence[Sequence[Job]],
        cores: dict[str, int | None],
        *,
        name: str = "loadmaster",
        said: Callable[[BaseException], str] = str,
    ) -> None:
        self._said = said
        self._slots = slots
        jobs = slots[0]
        self._sequence: dict[str, list[int]] = {device: [] for device in cores}
        for number, job in enumerate(jobs):
            self._sequence[job.device].append(number)
        self._check()
        self._lock = threading.Lock()
        self._awake = {device: threading.Condition(self._lock) for device in cores}
        self._free_slot = threading.Condition(self._lock)
        self._free = deque(range(len(slots)))
        self._open: list[Request] = []
        self._count = 0
        self._closed = False
        self._busy: set[str] = set()
        self.log: deque[tuple[int, int, float, float]] = deque(maxlen=REMEMBERED)
        """(request, job, start, end) of what ran last."""
        self._threads = [
            threading.Thread(target=self._work, args=(device, core), name=f"{name} {device}", daemon=True)
            for device, core in cores.items()
            if self._sequence[device]
        ]
        for thread in self._threads:
            thread.start()

    def _check(self) -> None:
        """Sequences that wait for each other would hang for ever."""
        jobs = self._slots[0]
        left = [job.waits for job in jobs]
        at = dict.fromkeys(self._sequence, 0)
        moved, done = True, 0
        while moved:
            moved = False
            for device, sequence in self._sequence.items():
                while at[device] < len(sequence) and not left[sequence[at[device]]]:
                    for reader in jobs[sequence[at[device]]].readers:
                        left[reader] -= 1
                    at[device] += 1
                    moved, done = True, done + 1
        if done < len(jobs):
            stuck = next(s[at[d]] for d, s in self._sequence.items() if at[d] < len(s))
            raise RunError(f"the submodels wait for each other: {jobs[stuck].name} never starts")

    @property
    def slots(self) -> int:
        """How many requests may be in flight."""
        return len(self._slots)

    def queues(self) -> dict[str, int]:
        """Device -> jobs that could run there or do."""
        with self._lock:
            found = {device: int(device in self._busy) for device in self._sequence}
            for request in self._open:
                for device, sequence in self._sequence.items():
                    found[device] += sum(not request.left[job] for job in sequence[request.at[device] :])
            return found

    def ran(self) -> list[tuple[int, int, float, float]]:
        """The log, as it is now."""
        with self._lock:
            return list(self.log)

    def reserve(self) -> int:
        """A slot to fill; waits until one is free."""
        with self._lock:
            while not self._free and not self._closed:
                self._free_slot.wait()
            if self._closed:
                raise RunError("the model is closed")
            return self._free.popleft()

    def give_back(self, slot: int) -> None:
        """Free a reserved slot that could not be filled."""
        with self._lock:
            self._free.append(slot)
            self._free_slot.notify()

    def submit(self, slot: int) -> Request:
        """Start a request in a reserved slot."""
        jobs = self._slots[slot]
        with self._lock:
            if self._closed:
                raise RunError("the model is closed")
            request = Request(
                self._count,
                slot,
                [job.waits for job in jobs],
                dict.fromkeys(self._sequence, 0),
                len(jobs),
                begun=time.perf_counter(),
            )
            self._count += 1
            self._open.append(request)
            for condition in self._awake.values():
                condition.notify()
        return request

    def wait(self, request: Request) -> None:
        """Until a request is done; its slot stays taken until :meth:`release`.

        Raises
        ------
        RunError : a submodel failed, or the model was closed before it was done.
        """
        request.finished.wait()
        if request.error is not None:
            if isinstance(request.error, RunError):
                raise request.error
            raise RunError(str(request.error)) from request.error

    def release(self, request: Request) -> None:
        """Give the slot back, when the request is done: an interrupted wait may end before that."""
        with self._lock:
            request.released = True
            if request.finished.is_set():
                self._free.append(request.slot)
                self._free_slot.notify()

    def close(self) -> None:
        """End the threads, when the submodels that run just now are done; requests in flight fail."""
        with self._lock:
            self._closed = True
            for condition in (*self._awake.values(), self._free_slot):
                condition.notify_all()
        for thread in self._threads:
            thread.join()
        with self._lock:
            for request in self._open:
                request.error = request.error or RunError("the model was closed while it ran")
                request.finished.set()
            self._open.clear()

    # -- a device's thread -----------------------------------------------------------------------------------

    def _work(self, device: str, core: int | None) -> None:
        if core is not None:
            pin({core})
        awake = self._awake[device]
        looked = False
        with self._lock:
            while True:
                found = self._next(device)
                if found is None:
                    if self._closed:
                        return
                    if self._open and not looked:
                        self._look(device)
                        looked = True
                    else:
                        awake.wait()
                        looked = False
                    continue
                looked = False
                if self._closed:
                    return
                request, number = found
                request.at[device] += 1
                request.running += 1
                self._busy.add(device)
                job = self._slots[request.slot][number]
                self._lock.release()
                error = None
                start, core_start = time.perf_counter(), time.thread_time()
                try:
                    job.run()
                except BaseException as raised:
                    error = raised
                end, core_end = time.perf_counter(), time.thread_time()
                self._lock.acquire()
                self._busy.discard(device)
                request.spans.append((number, start, end, core_end - core_start))
                self.log.append((request.number, number, start, end))
                self._done(request, job, error, end)

    def _look(self, device: str) -> None:
        """Go on looking for work for a while, without the lock: a core that sleeps takes long to wake up."""
        self._lock.release()
        try:
            end = time.perf_counter() + LOOKING
            while time.perf_counter() < end and not self._closed and self._next(device) is None:
                time.sleep(0)  # lets go of the interpreter
        finally:
            self._lock.acquire()

    def _next(self, device: str) -> tuple[Request, int] | None:
        sequence = self._sequence[device]
        for request in self._open:
            at = request.at[device]
            if request.error is None and at < len(sequence) and not request.left[sequence[at]]:
                return request, sequence[at]
        return None

    def _done(self, request: Request, job: Job, error: BaseException | None, end: float) -> None:
        request.running -= 1
        request.undone -= 1
        if error is not None and request.error is None:
            request.error = RunError(f"{job.name} on device {job.device!r} failed: {self._said(error)}")
        jobs = self._slots[request.slot]
        for reader in job.readers:
            request.left[reader] -= 1
            if not request.left[reader] and jobs[reader].device != job.device:
                self._awake[jobs[reader].device].notify()
        if (request.undone == 0 or request.error is not None) and request.running == 0:
            request.ended = end
            self._open.remove(request)
            request.finished.set()
            if request.released:
                self._free.append(request.slot)
                self._free_slot.notify()
