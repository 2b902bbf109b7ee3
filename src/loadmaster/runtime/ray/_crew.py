"""Workers of a cluster, one process per core, whom a scheduler gives tasks; and objects that all of them share."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

from loadmaster.errors import LoadmasterError, RunError
from loadmaster.runtime.ray._connection import current
from loadmaster.runtime.ray._scheduling import Died, Ended, Event, Ready, Scheduler

__all__ = ["Call", "Crew", "cores", "crew", "run_tasks", "shared_actor"]

ANSWER = 5.0
"""Seconds in which a shared object answers, or is done without for this time."""


def cores() -> int:
    """Cores of the cluster, as Ray counts them; at least one."""
    import ray

    current()
    return max(int(ray.cluster_resources().get("CPU", 1)), 1)


class _Worker:
    """One process; it keeps what it has imported, compiled and been sent."""

    def hello(self, paths: Sequence[str]) -> None:
        """Find modules where the driver finds them, as far as there is such a folder here."""
        sys.path += [path for path in paths if path not in sys.path and os.path.isdir(path)]

    def run(self, function: Callable[..., Any], shared: Any, given: Sequence[Any]) -> Any:
        try:
            return function(*shared, *given)
        except LoadmasterError as error:
            return error


class Crew:
    """The workers (``Hands`` of a scheduler) and what they are to do."""

    def __init__(self, workers: int) -> None:
        import ray

        self._ray = ray
        self._class = ray.remote(_Worker).options(num_cpus=1)
        self._actors: dict[int, Any] = {}
        self._calls: dict[Any, tuple[int, int | None]] = {}
        self._idle: list[int] = []
        self._function: Any = None
        self._shared: list[Any] = []
        self._arguments: Sequence[Sequence[Any]] = ()
        self.workers = workers
        for worker in range(workers):
            self.replace(worker)

    def scheduled(
        self,
        function: Callable[..., Any],
        arguments: Sequence[Sequence[Any]],
        *,
        shared: Sequence[Any] = (),
        ahead: int = 1,
    ) -> Scheduler:
        """A scheduler of ``function(*shared, *arguments[i])`` for each i; ``shared`` travels once to every node.

        An error of ours is a result, not an exception. One at a time.
        """
        self._function = self._ray.put(function)
        # A call's own arguments are fetched before it begins; those inside a list are not, so each is put by itself.
        self._shared = [self._ray.put(tuple(shared))]
        self._arguments = arguments
        ready, self._idle = self._idle, []
        return Scheduler(self, len(arguments), ahead=ahead, ready=ready)

    def map(
        self,
        function: Callable[..., Any],
        arguments: Sequence[Sequence[Any]],
        *,
        shared: Sequence[Any] = (),
        ahead: int = 1,
    ) -> list[Any]:
        """All results, in the order of the arguments.

        Raises
        ------
        LoadmasterError : the first that is among them.
        """
        scheduler = self.scheduled(function, arguments, shared=shared, ahead=ahead)
        scheduler.run()
        self.take_back(scheduler)
        found = [scheduler.results[task] for task in range(len(arguments))]
        for result in found:
            if isinstance(result, LoadmasterError):
                raise result
        return found

    def take_back(self, scheduler: Scheduler) -> None:
        """Its workers may be given other tasks."""
        self._idle = scheduler.ready

    # -- hands -----------------------------------------------------------------------------------------------

    def start(self, worker: int, task: int) -> None:
        """See ``Hands``."""
        ref = self._actors[worker].run.remote(self._function, *self._shared, tuple(self._arguments[task]))
        self._calls[ref] = (worker, task)

    def replace(self, worker: int) -> None:
        """See ``Hands``."""
        self._actors[worker] = self._class.remote()
        self._calls[self._actors[worker].hello.remote(_paths())] = (worker, None)

    def wait(self, seconds: float | None) -> Sequence[Event]:
        """See ``Hands``."""
        ray = self._ray
        refs = list(self._calls)
        done, left = ray.wait(refs, timeout=seconds)
        if done and left:
            done += ray.wait(left, num_returns=len(left), timeout=0)[0]
        return [event for ref in done if (event := self._event(ref)) is not None]

    def _event(self, ref: Any) -> Event | None:
        if ref not in self._calls:  # of a worker that has just been found dead
            return None
        worker, task = self._calls.pop(ref)
        try:
            result = self._ray.get(ref)
        except self._ray.exceptions.RayTaskError as error:
            line = " ".join(str(error.cause or error).split())[:200]
            raise RunError(
                f"a task on the Ray cluster failed: {type(error.cause).__name__}: {line}"
            ) from None
        except self._ray.exceptions.RayError as error:
            self._calls = {call: by for call, by in self._calls.items() if by[0] != worker}
            return Died(worker, " ".join(str(error).split())[:200])
        return Ready(worker) if task is None else Ended(worker, task, result)

    def end(self) -> None:
        """End all workers."""
        for actor in self._actors.values():
            with suppress(Exception):
                self._ray.kill(actor)


def _paths() -> list[str]:
    """Where this process finds modules; its own folder by name."""
    return [path or os.getcwd() for path in sys.path]


@contextmanager
def crew(most: int | None = None) -> Iterator[Crew]:
    """As many workers as the cluster has cores, or ``most``; they end with the block."""
    count = cores()
    found = Crew(count if most is None else max(min(count, most), 1))
    try:
        yield found
    finally:
        found.end()


def run_tasks(
    function: Callable[..., Any],
    arguments: Sequence[Sequence[Any]],
    *,
    shared: Sequence[Any] = (),
    started: Callable[[int], None] = lambda task: None,
    ended: Callable[[int, Any], None] = lambda task, result: None,
) -> dict[int, Any]:
    """Task -> what ``function(*shared, *arguments[task])`` gives; an error of ours in place of what raised it.

    ``started`` and ``ended`` are called in this process. After Ctrl-C what has not ended is given up.

    Raises
    ------
    RunError : a task failed in another way, or was begun too often.
    """
    if not arguments:
        return {}
    with crew(len(arguments)) as workers:
        scheduler = workers.scheduled(function, arguments, shared=shared)
        with suppress(KeyboardInterrupt):
            scheduler.run(started=started, ended=ended)
        return scheduler.results


class Call:
    """An object that lives in a process of its own, called from any worker; None where it does not answer."""

    def __init__(self, actor: Any) -> None:
        self._actor = actor

    def __call__(self, method: str, *arguments: Any) -> Any:
        """What the method gives, or None."""
        import ray

        try:
            return ray.get(getattr(self._actor, method).remote(*arguments), timeout=ANSWER)
        except ray.exceptions.RayError:
            return None


@contextmanager
def shared_actor(kind: type, *arguments: Any) -> Iterator[Call]:
    """An object of this class for all workers, on the machine of this process if it has a node.

    If its process dies, another one begins anew: those who use it must bear that.
    """
    import ray
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    here = NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=True)
    made = ray.remote(kind).options(num_cpus=0, max_restarts=-1, scheduling_strategy=here)
    actor = made.remote(*arguments)
    try:
        yield Call(actor)
    finally:
        with suppress(Exception):
            ray.kill(actor)
