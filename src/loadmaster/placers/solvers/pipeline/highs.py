"""HiGHS on the 0/1 program of pipelined throughput (``program.py``), in a process of its own."""

from __future__ import annotations

import json
import queue
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from loadmaster.errors import LoadmasterError
from loadmaster.files import scratch_folder
from loadmaster.placers.solvers._solving import Found, Proved, drained
from loadmaster.placers.solvers.pipeline.program import Program
from loadmaster.problem import Placement, Problem

__all__ = ["HighsLoads"]

WORKER = Path(__file__).with_name("highs_worker.py")

MARGIN = 5e-7
"""A bound of HiGHS is lowered by this share: its rows hold to 1e-9, but thousands of them make a proof."""


class HighsLoads:
    """Runs ``highs_worker.py`` and talks with it over pipes; news is read by a thread."""

    name = "milp"

    def __init__(self, problem: Problem, program: Program, seed: int) -> None:
        self.problem, self.program, self.seed = problem, program, seed
        self._news: queue.SimpleQueue[Found | Proved] = queue.SimpleQueue()
        self._process: subprocess.Popen[str] | None = None
        self._reader: threading.Thread | None = None
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        self._unit = 1.0
        self._stopped = False

    @property
    def running(self) -> bool:
        """Whether there may be more news."""
        return self._reader is not None and self._reader.is_alive()

    def start(self, placement: Placement, cost: float, seconds: float) -> None:
        """Start the process; costs are given to it as shares of the known one."""
        self._unit = cost if cost > 0.0 else 1.0
        self._folder = scratch_folder()
        path = Path(self._folder.name) / "program.npz"
        arrays = _arrays(self.program, self._unit, cost)
        arrays |= {"seed": np.array(self.seed % 2**31), "start": self._columns(placement)}
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
            self._process.stdin.write(json.dumps(self._columns(placement).tolist()) + "\n")
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
                values = np.zeros(self.program.variables, np.bool_)
                values[news["solution"]] = True
                device = self.program.placement(values)[self.problem.class_of]
                self._news.put(Found(Placement(device)))
            elif "bound" in news:
                self._news.put(Proved(float(news["bound"]) * self._unit * (1.0 - MARGIN)))
            elif news["end"] == "infeasible":
                self._news.put(Proved(self._unit * (1.0 - MARGIN)))
            if "end" in news:
                return

    def _columns(self, placement: Placement) -> npt.NDArray[np.float64]:
        """All columns of a placement: what is left open HiGHS would complete by a program of its own."""
        ptr, member = self.problem.members
        values = self.program.assignment(placement.device[member[ptr[:-1]]]).astype(np.float64)
        part = values[self.program.load_var] * self.program.load_cost / self._unit
        load = np.add.reduceat(part, self.program.load_ptr[:-1]) if len(part) else np.zeros(0)
        terms = np.zeros(self.program.terms)
        np.maximum.at(terms, self.program.load_term, load)
        return np.concatenate([values, terms])


def _arrays(program: Program, unit: float, upper: float) -> dict[str, npt.NDArray[np.generic]]:
    """Rows of the mixed-integer program: choices, clauses, loads, memories."""
    n, terms = program.variables, program.terms
    literal = program.clause
    negative = (literal < 0).astype(np.float64)
    clauses = len(program.clause_ptr) - 1
    row_of = np.repeat(np.arange(clauses), np.diff(program.clause_ptr))
    negated = np.bincount(row_of, negative, clauses) if clauses else np.zeros(0)
    loads = len(program.load_term)
    # A load row is its sum minus its term: the term goes to the end of the row.
    ends = program.load_ptr[1:]
    load_index = np.insert(program.load_var, ends, n + program.load_term)
    load_value = np.insert(program.load_cost / unit, ends, -1.0)
    most = np.maximum(program.memory_limit, 1e-300)
    memories = np.diff(program.memory_ptr)
    sizes = [
        np.diff(program.choice_ptr),
        np.diff(program.clause_ptr),
        np.diff(program.load_ptr) + 1,
        memories,
    ]
    infinite = np.inf
    choices = len(program.choice_ptr) - 1
    return {
        "binaries": np.array(n),
        "cost": np.concatenate([np.zeros(n), np.ones(terms)]),
        "upper": np.concatenate([np.ones(n), np.full(terms, upper / unit * (1.0 + 1e-9))]),
        "ptr": np.concatenate([[0], np.cumsum(np.concatenate(sizes))]).astype(np.int32),
        "index": np.concatenate(
            [program.choice, np.where(literal < 0, ~literal, literal), load_index, program.memory_var]
        ).astype(np.int32),
        "value": np.concatenate(
            [
                np.ones(len(program.choice)),
                1.0 - 2.0 * negative,
                load_value,
                program.memory_size / np.repeat(most, memories),
            ]
        ),
        "row_lower": np.concatenate(
            [np.ones(choices), 1.0 - negated, np.full(loads + len(memories), -infinite)]
        ),
        "row_upper": np.concatenate(
            [
                np.ones(choices),
                np.full(clauses, infinite),
                np.zeros(loads),
                np.full(len(memories), 1.0 + 1e-9),
            ]
        ),
    }
