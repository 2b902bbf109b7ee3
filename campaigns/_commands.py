"""Commands in processes of their own, forked from one that has imported Loadmaster: a tenth of a second each."""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import resource
import signal
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import astuple, dataclass
from functools import cache
from pathlib import Path

__all__ = ["Commands", "Ran", "complaint"]

SECONDS = 10.0
MEMORY = 10**9
PATIENT = 60.0
"""Wall seconds after which a process is ended; what counts is its CPU time, for machines are busy."""


@dataclass(frozen=True)
class Ran:
    """What a command did."""

    code: int
    stdout: str
    stderr: str
    seconds: float
    cpu: float
    memory: int


class Commands:
    """Runs commands in children of a process that is forked here, before this one has threads: a fork copies the locks
    of threads that it does not copy."""

    def __init__(self) -> None:
        asked, self._ask = os.pipe()
        self._answers, answering = os.pipe()
        self._server = os.fork()
        if self._server == 0:
            os.close(self._ask)
            os.close(self._answers)
            _serve(asked, answering)
        os.close(asked)
        os.close(answering)
        self._reading = os.fdopen(self._answers, "r")

    def run(self, words: Sequence[str], folder: Path) -> Ran:
        """Run ``loadmaster WORDS`` in a folder."""
        os.write(self._ask, json.dumps([list(words), str(folder)]).encode() + b"\n")
        return Ran(*json.loads(self._reading.readline()))

    def close(self) -> None:
        """End the process."""
        os.close(self._ask)
        self._reading.close()
        os.waitpid(self._server, 0)


def _serve(asked: int, answering: int) -> None:
    """In the server: never returns."""
    try:
        with os.fdopen(asked, "r") as questions, os.fdopen(answering, "w") as answers:
            for line in questions:
                words, folder = json.loads(line)
                answers.write(json.dumps(astuple(_run_command(words, Path(folder)))) + "\n")
                answers.flush()
    finally:
        os._exit(0)


def _run_command(words: Sequence[str], folder: Path) -> Ran:
    """Run a command in a child of this process."""
    import loadmaster.cli

    _preload()

    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        began = time.monotonic()
        child = os.fork()
        if child == 0:
            _be_the_command(list(words), folder, out.fileno(), err.fileno(), loadmaster.cli.main)
        status, usage = _waited(child, PATIENT)
        seconds = time.monotonic() - began
        texts = []
        for file in (out, err):
            file.seek(0)
            texts.append(file.read(10**6).decode(errors="replace"))
    code = os.waitstatus_to_exitcode(status)
    return Ran(code, *texts, seconds, usage.ru_utime + usage.ru_stime, usage.ru_maxrss * 1024)


@cache
def _preload() -> None:
    """Import, once for all children, what most commands import; nothing that starts threads."""
    for name in (
        "api",
        "report",
        "plan",
        "problem.bounds",
        "placers.rules.greedy",
        "placers.frame.searcher",
        "export",
    ):
        importlib.import_module(f"loadmaster.{name}")
    with contextlib.suppress(ModuleNotFoundError):
        importlib.import_module("onnx")
        importlib.import_module("onnx.inliner")
        importlib.import_module("loadmaster.graph.onnx._network")


def _waited(child: int, patient: float) -> tuple[int, resource.struct_rusage]:
    """Wait for a child, and end it after so many seconds in which this process was not stopped itself."""
    pause, waited, last = 0.002, 0.0, time.monotonic()
    while True:
        found, status, usage = os.wait4(child, os.WNOHANG)
        if found:
            return status, usage
        now = time.monotonic()
        waited, last = waited + min(now - last, 1.0), now
        if waited > patient:
            os.kill(child, signal.SIGKILL)
            _, status, usage = os.wait4(child, 0)
            return status, usage
        time.sleep(pause)
        pause = min(0.05, pause * 1.5)


def _be_the_command(words: list[str], folder: Path, out: int, err: int, main: object) -> None:
    """In the child: never returns."""
    code = 70
    try:
        os.setsid()
        os.chdir(folder)
        null = os.open(os.devnull, os.O_RDONLY)
        for source, target in ((null, 0), (out, 1), (err, 2)):
            os.dup2(source, target)
        sys.stdout = open(1, "w", closefd=False)  # noqa: SIM115
        sys.stderr = open(2, "w", closefd=False)  # noqa: SIM115
        sys.argv = ["loadmaster", *words]
        main()  # type: ignore[operator]
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 1 if end.code else 0
    except BaseException:
        import traceback

        traceback.print_exc()
    finally:
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(OSError, ValueError):
                stream.flush()
        os._exit(code & 255)


def complaint(ran: Ran, *, refused: bool = False) -> str | None:
    """What is wrong about how a command ended; with ``refused`` it must have ended with exit code 2."""
    last = ran.stderr.strip().splitlines()[-1:] or [""]
    if ran.code not in (0, 1, 2, 3, 4, 5):
        return f"exit code {ran.code}: {last[0][:500]}"
    if "Traceback" in ran.stderr or "Traceback" in ran.stdout:
        return f"a traceback: {ran.stderr[-3000:]}"
    if ran.cpu > SECONDS:
        return f"{ran.cpu:.1f} CPU seconds"
    if ran.memory > MEMORY:
        return f"{ran.memory:,} bytes of memory"
    if refused and ran.code != 2:
        return f"exit code {ran.code}, not 2: {last[0][:500]}"
    if ran.code >= 2:
        lines = [line for line in ran.stderr.splitlines() if "error: " in line]
        if not lines or len(max(lines, key=len)) > 1300:
            return f"exit code {ran.code} with {len(lines)} sentences: {ran.stderr[:500]}"
        if ran.stdout:
            return f"exit code {ran.code}, but standard output has {ran.stdout[:200]!r}"
    return None
