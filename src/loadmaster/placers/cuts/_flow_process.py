"""Maximum flows of large networks in a process of their own.

The solver holds Python's lock until it is done: a second for a graph of 200,000 ops, many for a million. In this
process no search could go on meanwhile, and no deadline nor Ctrl-C would be seen.
"""

from __future__ import annotations

import atexit
import contextlib
import select
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from loadmaster.errors import UndecidedError

__all__ = ["Solved", "solve_apart"]

WORKER = Path(__file__).with_name("flow_worker.py")
LOOK = 0.05
"""Seconds between two looks at the clock."""

Units = npt.NDArray[np.int64]
Nodes = npt.NDArray[np.int32]


class Solved(NamedTuple):
    """value : of the maximum flow. source_side : nodes on the source's side of the smallest minimum cut. along :
    (arcs,) the flow, where asked for."""

    value: int
    source_side: Nodes
    along: Units | None


_idle: list[subprocess.Popen[bytes]] = []


def solve_apart(
    tail: Nodes, head: Nodes, units: Units, source: int, sink: int, flows: bool, look: Callable[[], None]
) -> Solved:
    """The maximum flow from source to sink; ``look`` is called 20 times a second: what it raises ends the process."""
    process = _idle.pop() if _idle else _started()
    try:
        assert process.stdin is not None
        asked = np.array([len(tail), source, sink, flows], np.int64)
        for part in (asked, tail, head, units):
            process.stdin.write(part.tobytes())
        process.stdin.flush()
        ok, value, count = np.frombuffer(_read(process, 24, look), np.int64).tolist()
        side = np.frombuffer(_read(process, 4 * count, look), np.int32)
        along = np.frombuffer(_read(process, 8 * len(tail), look), np.int64) if flows else None
    except BaseException as error:
        _end(process)
        if isinstance(error, BrokenPipeError | EOFError):
            raise UndecidedError(
                f"the process that solves a maximum flow of {len(tail):,} arcs has ended by itself "
                f"(exit code {process.returncode}): is there enough memory?"
            ) from None
        raise
    assert ok
    _idle.append(process)
    return Solved(value, side, along)


def _started() -> subprocess.Popen[bytes]:
    # -P: the worker's folder must not be searched for modules.
    return subprocess.Popen(
        [sys.executable, "-P", str(WORKER)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        start_new_session=True,
    )


def _read(process: subprocess.Popen[bytes], size: int, look: Callable[[], None]) -> bytes:
    assert process.stdout is not None
    parts: list[bytes] = []
    while size > 0:
        look()
        if not select.select([process.stdout], [], [], LOOK)[0]:
            continue
        part = process.stdout.read1(size)  # type: ignore[attr-defined]
        if not part:
            raise EOFError
        parts.append(part)
        size -= len(part)
    return b"".join(parts)


def _end(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.wait()
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            with contextlib.suppress(BrokenPipeError):  # what was still to be written
                pipe.close()


@atexit.register
def _end_all() -> None:
    while _idle:
        _end(_idle.pop())
