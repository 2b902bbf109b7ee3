"""What all campaigns share: options, figures that survive a kill, findings as files."""

from __future__ import annotations

import argparse
import faulthandler
import json
import os
import resource
import signal
import sys
import threading
import time
import traceback
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from loadmaster.files import write_atomically

__all__ = ["Campaign", "parser"]

HANG = 120.0
"""CPU seconds after which a process that came back from nothing is ended; kernels compile."""
STUCK = 1800.0
"""Wall seconds after which it is ended although it needs no CPU time: a machine may stop a process for minutes."""
BEAT = 0.5
GAP = 2.0
"""Seconds between two beats of a process that is running; what is beyond them, it was stopped, and is not counted."""
EVERY = 10.0
"""Seconds between two writes of the figures."""


def parser(name: str, what: str, *, hours: float = 0.1) -> argparse.ArgumentParser:
    """The options that every campaign has."""
    found = argparse.ArgumentParser(prog=f"python -m campaigns.{name}", description=what)
    found.add_argument(
        "--hours",
        type=float,
        default=hours,
        metavar="H",
        help=f"time of this run, without the time in which the process is stopped ({hours:g})",
    )
    found.add_argument("--cases", type=int, metavar="N", help="stop after so many cases in all")
    found.add_argument("--seed", type=int, default=0, help="which cases are drawn (0)")
    found.add_argument(
        "--folder",
        type=Path,
        default=Path("build/campaigns"),
        help="where figures and findings are kept (build/campaigns)",
    )
    found.add_argument("--fresh", action="store_true", help="begin anew, in place of going on")
    found.add_argument("--json", action="store_true", help="print the figures as JSON")
    return found


class Campaign:
    """Cases 0, 1, 2, … of a seed, what has been counted so far, and what was found.

    The folder ``FOLDER/NAME-SEED`` holds ``figures.json``, written every ten seconds, and ``findings/``. A campaign
    that is started again goes on with the case after the last one that was counted.
    """

    def __init__(self, name: str, options: argparse.Namespace) -> None:
        self.name, self.seed = name, int(options.seed)
        self.folder = Path(options.folder) / f"{name}-{self.seed}"
        self.findings = self.folder / "findings"
        self.findings.mkdir(parents=True, exist_ok=True)
        self._file = self.folder / "figures.json"
        self._json = bool(options.json)
        self._most: int | None = options.cases
        self._began, self._cpu = time.monotonic(), _cpu_seconds()
        self._hours = float(options.hours)
        self.awake = 0.0
        """Seconds of this run in which the process was not stopped (by a freezer, say)."""
        self._written = self._began
        self.cases = 0
        self.counts: Counter[str] = Counter()
        self.found: Counter[str] = Counter()
        self.extra: dict[str, Any] = {}
        self._before = {"seconds": 0.0, "awake_seconds": 0.0, "cpu_seconds": 0.0}
        if self._file.exists() and not options.fresh:
            kept = json.loads(self._file.read_text())
            self.cases = kept["cases"]
            self.counts.update(kept["counts"])
            self.found.update(kept["found"])
            self.extra = kept["extra"]
            self._before = {key: kept[key] for key in self._before}
        self._current = self.folder / "current"
        self._after_crash(options.fresh)

    def _after_crash(self, fresh: bool) -> None:
        """A case that the last run did not come back from is a finding, and not run again."""
        if not self._current.exists():
            return
        what = self._current.read_text().split("\n", 1)
        self._current.unlink()
        if fresh or not what[0].isdecimal():
            return
        self.cases = max(self.cases, int(what[0]))
        self.finding("crash", what[-1].encode(), ".txt", "the process died or hung in this case: " + what[-1])
        self.cases += 1

    def begins(self, what: str, seconds: float = HANG) -> None:
        """Note what is run now, for the case that it takes this process down; after so long it counts as hanging."""
        self._current.write_text(f"{self.cases}\n{what}")
        signal.setitimer(signal.ITIMER_PROF, seconds)
        faulthandler.dump_traceback_later(STUCK, exit=True)

    def ended(self) -> None:
        """What was begun has come back."""
        self.disarm()
        self._current.unlink(missing_ok=True)

    def disarm(self) -> None:
        """Do not end this process, however long it runs."""
        signal.setitimer(signal.ITIMER_PROF, 0)
        faulthandler.cancel_dump_traceback_later()

    @property
    def done(self) -> bool:
        """Whether time or cases are used up."""
        return self.seconds_left <= 0 or (self._most is not None and self.cases >= self._most)

    @property
    def seconds_left(self) -> float:
        """Time that is left to this run."""
        return max(0.0, 3600 * self._hours - self.awake)

    def run(self, case: Callable[[int], None]) -> int:
        """Run case after case until time is up or Ctrl-C; the exit code, 1 where something was found."""
        before = sum(self.found.values())
        faulthandler.register(signal.SIGPROF, chain=True)
        threading.Thread(target=self._beat, daemon=True).start()
        try:
            while not self.done:
                case(self.cases)
                self.cases += 1
                self.tick()
        except KeyboardInterrupt:
            pass
        self.close()
        return 1 if sum(self.found.values()) > before else 0

    def _beat(self) -> None:
        last = time.monotonic()
        while True:
            time.sleep(BEAT)
            now = time.monotonic()
            self.awake += min(now - last, GAP)
            last = now

    def tick(self) -> None:
        """Write the figures, and say them, every now and then."""
        if time.monotonic() - self._written >= EVERY:
            self.write()
            print(
                f"{self.name}: {self.cases:,} cases, {sum(self.found.values())} findings",
                file=sys.stderr,
                flush=True,
            )

    def write(self) -> None:
        """Put the figures on the disk."""
        self._written = time.monotonic()
        write_atomically(self._file, json.dumps(self.figures(), indent=1).encode())

    def close(self) -> None:
        """Write and print the figures."""
        self.write()
        figures = self.figures()
        if self._json:
            print(json.dumps(figures))
            return
        print(
            f"{self.name}, seed {self.seed}: {self.cases:,} cases in {figures['awake_seconds'] / 3600:.2f} h"
        )
        for key, count in sorted(self.counts.items()):
            print(f"  {key}: {count:,}")
        for key, value in self.extra.items():
            print(f"  {key}: {value}")
        for key, count in sorted(self.found.items()):
            print(f"  FOUND {key}: {count:,}  (in {self.findings})")

    def figures(self) -> dict[str, Any]:
        """What has been counted."""
        return {
            "campaign": self.name,
            "seed": self.seed,
            "cases": self.cases,
            "seconds": self._before["seconds"] + time.monotonic() - self._began,
            "awake_seconds": self._before["awake_seconds"] + self.awake,
            "cpu_seconds": self._before["cpu_seconds"] + _cpu_seconds() - self._cpu,
            "largest_memory": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
            "counts": dict(self.counts),
            "found": dict(self.found),
            "extra": self.extra,
        }

    def finding(self, what: str, content: bytes, suffix: str, why: object) -> Path:
        """Keep a case: its content in a file, and beside it what was wrong. The first fifty of a kind are kept."""
        self.found[what] += 1
        file = self.findings / f"{what}-{self.cases}{suffix}"
        if self.found[what] <= 50:
            file.write_bytes(content)
            text = "".join(traceback.format_exception(why)) if isinstance(why, BaseException) else str(why)
            file.with_name(file.name + ".txt").write_text(f"case {self.cases} of seed {self.seed}\n{text}\n")
            print(f"{self.name}: FOUND {what}: {str(why)[:300]} ({file})", file=sys.stderr, flush=True)
        self.write()
        return file


def _cpu_seconds() -> float:
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


def chosen(names: Sequence[str], only: str) -> list[str]:
    """The names that contain a text."""
    return [name for name in names if only in name]
