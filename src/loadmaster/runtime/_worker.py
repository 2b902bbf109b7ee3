"""The parent's end of a worker process: requests with a time limit, deaths with a reason, nothing left behind."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable
from types import TracebackType
from typing import Any, Self

from loadmaster import errors
from loadmaster.errors import LoadmasterError, RunError, RunTimeoutError, WorkerError
from loadmaster.runtime._cores import require_pinning
from loadmaster.runtime._worker_main import LENGTH, send

__all__ = ["Worker"]

PATIENCE = 600.0
"""Seconds for a request that has no limit of its own."""


class Worker:
    """A process pinned to some cores that answers requests. A context manager: leaving it ends the process.

    ``host`` is the engine's :class:`~loadmaster.runtime._host.ModelHost` as ``module:class``; its methods are what
    can be asked for.
    """

    def __init__(self, cores: Iterable[int], host: str) -> None:
        require_pinning()
        self.cores = tuple(sorted(cores))
        self._noise = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the worker
        self._process = subprocess.Popen(
            [
                sys.executable,
                "-m",
                "loadmaster.runtime._worker_main",
                ",".join(map(str, self.cores)),
                host,
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._noise,
            start_new_session=True,  # Ctrl-C is the parent's to handle
            env={**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
        )

    @property
    def pid(self) -> int:
        """The process."""
        return self._process.pid

    @property
    def alive(self) -> bool:
        """Whether it still answers."""
        return self._process.poll() is None

    def ask(self, command: str, *, limit: float | None = None, **arguments: Any) -> Any:
        """The answer to a request.

        Raises
        ------
        RunTimeoutError : there is none in ``limit`` seconds; the worker is ended.
        WorkerError : the worker died.
        LoadmasterError : what the worker raised.
        """
        stdin = self._process.stdin
        assert stdin is not None
        try:
            send(stdin, (command, arguments))  # type: ignore[arg-type]
        except (BrokenPipeError, OSError, ValueError):
            raise self._death() from None
        try:
            head = self._read(LENGTH.size, command, limit)
            content = self._read(LENGTH.unpack(head)[0], command, limit)
        except BaseException:
            self.close()  # half an answer is of no use to the next request
            raise
        import pickle

        good, value = pickle.loads(content)
        if good:
            return value
        name, text, option = value
        kind = getattr(errors, name, None)
        if isinstance(kind, type) and issubclass(kind, LoadmasterError):
            raise kind(text, option=option)
        raise RunError(f"{command} failed: {text}")

    def _read(self, count: int, command: str, limit: float | None) -> bytes:
        stdout = self._process.stdout
        assert stdout is not None
        end = time.monotonic() + (PATIENCE if limit is None else limit)
        content = bytearray()
        while len(content) < count:
            ready, _, _ = select.select([stdout], [], [], max(0.0, end - time.monotonic()))
            if not ready:
                given = PATIENCE if limit is None else limit
                raise RunTimeoutError(
                    f"the worker took longer than {given:g} s to {command}, and was stopped"
                )
            part = os.read(stdout.fileno(), min(count - len(content), 1 << 20))
            if not part:
                raise self._death()
            content += part
        return bytes(content)

    def _death(self) -> WorkerError:
        code = self._process.wait()
        how = f"of signal {signal.Signals(-code).name}" if code < 0 else f"with exit code {code}"
        said = ""
        if not self._noise.closed:
            self._noise.seek(0)
            lines = [line.strip() for line in self._noise.read().decode(errors="replace").splitlines()]
            said = next((f": {line[:200]}" for line in reversed(lines) if line), "")
        return WorkerError(f"the worker process died {how}{said}")

    def close(self) -> None:
        """End the process, whatever it does."""
        if self.alive:
            self._process.kill()
        self._process.wait()
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                with contextlib.suppress(BrokenPipeError):
                    stream.close()
        if not self._noise.closed:
            self._noise.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
