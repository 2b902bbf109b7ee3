"""HiGHS on a mixed-integer program, in a process of its own."""

from __future__ import annotations

import json
import queue
import subprocess
import sys
import tempfile
import threading
from abc import ABC, abstractmethod
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from loadmaster.arrays import BoolArray
from loadmaster.errors import LoadmasterError
from loadmaster.files import scratch_folder
from loadmaster.placers.solvers._solving import Found, Proved, drained
from loadmaster.problem import Placement

__all__ = ["Arrays", "HighsSolver"]

WORKER = Path(__file__).with_name("highs_worker.py")

MARGIN = 5e-7
"""A bound of HiGHS is lowered by this share: its rows hold to 1e-9, but thousands of them make a proof."""

Arrays = dict[str, npt.NDArray[np.generic]]


class HighsSolver(ABC):
    """Runs ``highs_worker.py`` and talks with it over pipes; news is read by a thread.

    Subclasses know a program: its rows, and what its columns say about a placement. Costs are given to HiGHS as shares
    of the known one.
    """

    name = "milp"

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self._news: queue.SimpleQueue[Found | Proved] = queue.SimpleQueue()
        self._process: subprocess.Popen[str] | None = None
        self._reader: threading.Thread | None = None
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        self._unit = 1.0
        self._stopped = False

    @property
    @abstractmethod
    def binaries(self) -> int:
        """The first columns of the program, which are 0 or 1."""

    @abstractmethod
    def arrays(self, unit: float, cost: float) -> Arrays:
        """The program with costs in this unit (seconds), for placements of at most ``cost``: see the worker."""

    @abstractmethod
    def columns(self, placement: Placement) -> npt.NDArray[np.float64]:
        """All columns of a placement: what is left open HiGHS would complete by a program of its own."""

    @abstractmethod
    def placement(self, values: BoolArray) -> Placement:
        """What the (binaries,) columns say."""

    @property
    def running(self) -> bool:
        """Whether there may be more news."""
        return self._reader is not None and self._reader.is_alive()

    def start(self, placement: Placement, cost: float, seconds: float) -> None:
        """Start the process; costs are given to it as shares of the known one."""
        self._unit = cost if cost > 0.0 else 1.0
        self._folder = scratch_folder()
        path = Path(self._folder.name) / "program.npz"
        arrays = self.arrays(self._unit, cost)
        arrays |= {"seed": np.array(self.seed % 2**31), "start": self.columns(placement)}
        save: Any = np.savez  # its stubs take every keyword for an option
        save(path, **arrays)
        limit = str(seconds if np.isfinite(seconds) else 1e20)
        # -P: the worker's folder must not be searched for modules.
        self._process = subprocess.Popen(
            [sys.executable, "-P", str(WORKER), str(path), limit],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        self._reader = threading.Thread(target=self._read, name="milp", daemon=True)
        self._reader.start()

    def share(self, placement: Placement, cost: float) -> None:
        """Pass a better placement on."""
        assert self._process is not None
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(self.columns(placement).tolist()) + "\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            pass  # it has just ended

    def news(self) -> list[Found | Proved]:
        """What the reading thread left."""
        return drained(self._news)

    def stop(self) -> None:
        """End the process; an error of its own is raised here."""
        self._stopped = True
        process, self._process = self._process, None
        if process is None:
            return
        ended = process.poll()
        process.kill()
        _, complaint = process.communicate() if not self.running else (None, "")
        process.wait()
        if self._reader is not None:
            self._reader.join()
        for pipe in (process.stdin, process.stdout, process.stderr):
            if pipe is not None:
                pipe.close()
        if self._folder is not None:
            self._folder.cleanup()
        if ended:
            last = complaint.strip().splitlines()[-1:] or [f"exit code {ended}"]
            raise LoadmasterError(f"the HiGHS process failed: {last[0]}")

    def _read(self) -> None:
        assert self._process is not None
        assert self._process.stdout is not None
        for line in self._process.stdout:
            news = json.loads(line)
            if "solution" in news:
                values = np.zeros(self.binaries, np.bool_)
                values[news["solution"]] = True
                self._news.put(Found(self.placement(values)))
            elif "bound" in news:
                self._news.put(Proved(float(news["bound"]) * self._unit * (1.0 - MARGIN)))
            elif news["end"] == "infeasible":
                self._news.put(Proved(self._unit * (1.0 - MARGIN)))
            if "end" in news:
                return
