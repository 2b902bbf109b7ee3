"""Independent pieces of work on the cores of a cluster: each is a task on one core, whoever has a free one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from loadmaster.errors import LoadmasterError, RunError
from loadmaster.runtime.ray._connection import current

__all__ = ["run_tasks"]

TRIES = 3
"""Times that a task is begun anew whose worker or node has died."""


def run_tasks(
    function: Callable[..., Any],
    arguments: Sequence[tuple[Any, ...]],
    *,
    done: Callable[[int], None] = lambda _: None,
) -> list[Any]:
    """What a function gives for each of the arguments, in their order; an error of ours in place of what raised it.

    ``done`` is called with the number of tasks that have ended, whenever another one has. After Ctrl-C what has not
    ended is given up, and the answer stops at the first of those.

    Raises
    ------
    RunError : a task failed in another way, or was begun too often.
    """
    import ray

    current()
    shared = [ray.put(value) for value in arguments[0][:1]] if arguments else []
    same = bool(arguments) and all(given[0] is arguments[0][0] for given in arguments)
    task = ray.remote(_guarded).options(num_cpus=1, max_retries=TRIES)
    refs = [
        task.remote(function, *(shared if same else given[:1]), *given[1:])  # the problem travels once
        for given in arguments
    ]
    waiting, interrupted = list(refs), False
    try:
        while waiting:
            _, waiting = ray.wait(waiting)
            done(len(refs) - len(waiting))
    except KeyboardInterrupt:
        interrupted = True
        for ref in waiting:
            ray.cancel(ref, force=True)
    found = []
    for ref in refs:
        if interrupted and ref in waiting:
            break
        try:
            found.append(ray.get(ref))
        except ray.exceptions.RayError as error:
            line = " ".join(str(error).split())[:200]
            raise RunError(f"a task on the Ray cluster failed: {line}") from None
    return found


def _guarded(function: Callable[..., Any], *arguments: Any) -> Any:
    try:
        return function(*arguments)
    except LoadmasterError as error:
        return error
