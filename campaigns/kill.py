"""Commands that are killed at random moments, on full disks, in folders that cannot be written, two at a time.

    python -m campaigns.kill --hours 1 [--only place]

A case is one command, a random moment, and kill -9 or SIGTERM; or the same command on a disk that is full, in a folder
that is read-only, or beside another that uses the same cache. Afterwards every file is whole or absent, no process is
left, the next run of the same command works, and nothing of the killed one is left behind it.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import resource
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from campaigns._campaign import Campaign, parser

__all__ = ["main"]

PATIENCE = 900.0
"""Wall seconds for a command; the machine may be busy, or stop it for minutes."""
MARKER = "LOADMASTER_KILL_CASE"
SMALL = "small"
"""The folder that is a full disk."""
SCRATCH = re.compile(r"loadmaster-(?!ray-)|session_\d")
"""What must not stay in the folder for scratch files; the home of Ray's sessions may, empty."""
CLI = (sys.executable, "-m", "loadmaster.cli")


@dataclass(frozen=True)
class Job:
    """A command, and what it writes."""

    name: str
    words: tuple[str, ...]
    files: tuple[str, ...] = ()
    """What it writes: JSON unless the name says otherwise."""
    weight: int = 4


JOBS = (
    Job("place", ("place", "zoo:layered-60", "--evaluations", "2000", "--method", "local-search", "-o", "plan.json"), ("plan.json",)),
    Job("milp", ("place", "zoo:layered-40", "--model", "pipeline", "--method", "milp", "--budget", "1.5", "-o", "plan.json"), ("plan.json",)),
    Job("pretrain", ("pretrain", "-o", "weights.npz", "--generations", "2", "--workers", "1", "--resume"), ("weights.npz",), weight=2),
    Job("profile", ("profile", "model.xml", "--device", "A=cpu", "--device", "B=cpu", "--clock", "core", "--cache", "cache.sqlite", "-o", "profile.json"), ("profile.json",)),
    Job("optimize", ("optimize", "model.xml", "--device", "A=cpu", "--device", "B=cpu", "--clock", "core", "--budget", "6", "--cache", "cache.sqlite", "-o", "plan.json"), ("plan.json",), weight=2),
    Job("split", ("split", "net.py:build", "--ranks", "2", "--cluster", "2acc", "--microbatches", "2", "--budget", "1", "-o", "plan.json"), ("plan.json",), weight=1),
    Job("torch", ("run", "net.py:build", "--runtime", "torch", "--plan", "stages.json", "--samples", "3", "-o", "plan.json"), ("plan.json",), weight=2),
    Job("ray", ("run", "model.xml", "--on", "local:2", "--plan", "nodes.json", "--clock", "core", "--samples", "3", "-o", "plan.json"), ("plan.json",), weight=1),
    Job("ray-optimize", ("optimize", "model.xml", "--on", "local:2", "-d", "node1/CPU", "-d", "node2/CPU", "--clock", "core", "--model", "pipeline", "--budget", "6", "--cache", "cache.sqlite", "-o", "plan.json"), ("plan.json",), weight=1),
    Job("reproduce", ("reproduce", "exact", "--quick", "--only", "gnmt_inference", "--out", "out"), ("out/exact-quick.md",), weight=1),
)  # fmt: skip

PLANS = {"stages.json": "split", "nodes.json": "ray-optimize"}
"""Plans that jobs run, and the jobs that make them."""

NET = """
import torch

def build():
    layers = [layer for _ in range(3) for layer in (torch.nn.Linear(16, 16), torch.nn.ReLU())]
    x = torch.ones(2, 16)
    return torch.nn.Sequential(*layers), x, torch.nn.functional.mse_loss, x
"""
"""What ``split`` cuts, and two ranks run."""


class Kill:
    """Cases in folders of their own."""

    def __init__(self, campaign: Campaign, only: str, without: str = "-") -> None:
        self.campaign = campaign
        self.jobs = [job for job in JOBS if only in job.name and not job.name.startswith(without)]
        self.model = campaign.folder / "model.xml"
        self.usual: dict[str, float] = {}
        """Seconds that a job takes when nobody disturbs it."""

    def case(self, number: int) -> None:
        """One job, disturbed in one way."""
        rng = random.Random(f"{self.campaign.seed} {number}")
        job = rng.choices(self.jobs, [job.weight for job in self.jobs])[0]
        way = rng.choice(["kill"] * 6 + ["term"] * 2 + ["full", "read-only", "two"])
        folder = Path(tempfile.mkdtemp(prefix="k"))
        try:
            self._prepare(job, folder)
            why = getattr(self, f"_{way.replace('-', '_')}")(job, folder, rng) or self._afterwards(
                job, folder
            )
        except Exception as error:
            why = error
        finally:
            subprocess.run(["chmod", "-R", "u+rwX", str(folder)], check=False)
            shutil.rmtree(folder, ignore_errors=True)
        self.campaign.counts[f"{way} {job.name}"] += 1
        self.campaign.counts[{"kill": "kills", "term": "kills"}.get(way, "other cases")] += 1
        if why is not None:
            self.campaign.finding(f"kill-{job.name}", f"{way} {' '.join(job.words)}".encode(), ".txt", why)

    def _prepare(self, job: Job, folder: Path) -> None:
        """Put what the jobs read into the folder."""
        from campaigns.soak import network

        (folder / "t").mkdir()  # short: Ray puts sockets there
        if "net.py:build" in job.words:
            (folder / "net.py").write_text(NET)
        if not self.model.exists():
            network(self.model)
        for suffix in (".xml", ".bin"):
            shutil.copy(self.model.with_suffix(suffix), folder)
        for name, maker in PLANS.items():
            if name in job.words:
                shutil.copy(self._plan(name, maker, folder), folder / name)

    def _plan(self, name: str, maker: str, folder: Path) -> Path:
        """A plan that a job runs, made once by another."""
        kept = self.campaign.folder / name
        if not kept.exists():
            code, said = self._run(next(job for job in JOBS if job.name == maker), folder)
            if code:
                raise RuntimeError(f"there is no plan to run: {said[-500:]}")
            shutil.move(folder / "plan.json", kept)
        return kept

    def start(self, job: Job, folder: Path, limit: int | None = None) -> subprocess.Popen[bytes]:
        """Start a job in a session of its own; files may have ``limit`` bytes."""
        environment = {
            **os.environ,
            "TMPDIR": str(folder / "t"),
            "LOADMASTER_CACHE": str(folder / "c.sqlite"),
            MARKER: str(folder),
        }

        def prepare() -> None:
            if limit is not None:
                signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
                resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))

        # Not on the disk that may be full: what is said there is looked at.
        with self._stderr(folder).open("wb") as err:
            return subprocess.Popen(
                [*CLI, *job.words],
                cwd=folder,
                env=environment,
                stdout=subprocess.DEVNULL,
                stderr=err,
                start_new_session=True,
                preexec_fn=prepare,
            )

    def _stderr(self, folder: Path) -> Path:
        return (folder.parent if folder.name == SMALL else folder) / "stderr"

    def _run(self, job: Job, folder: Path, limit: int | None = None) -> tuple[int, str]:
        began = time.monotonic()
        process = self.start(job, folder, limit)
        try:
            code = process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            return -1, "it did not end"
        if code == 0:
            self.usual[job.name] = time.monotonic() - began
        return code, self._stderr(folder).read_text(errors="replace")

    def _moment(self, job: Job, rng: random.Random) -> float:
        return rng.uniform(0.3, 1.05) ** 2 * self.usual.get(job.name, 8.0)

    def _kill(self, job: Job, folder: Path, rng: random.Random, how: int = signal.SIGKILL) -> str | None:
        if rng.random() < 0.15 and self._run(job, folder)[0] != 0:  # an older result is there
            return "it fails when nobody disturbs it: " + self._stderr(folder).read_text()[-500:]
        before = _whole_files(job, folder)
        process = self.start(job, folder)
        try:
            process.wait(self._moment(job, rng))
        except subprocess.TimeoutExpired:
            process.send_signal(how)
        process.wait()
        left = _children(folder)
        if left:
            return f"processes are left behind: {left}"
        for name in job.files:
            path = folder / name
            if path.is_file() and not _is_whole(path):
                return f"{name} is neither whole nor absent"
            if name in before and not path.exists():
                return f"{name} was there, and is gone"
        return None

    def _term(self, job: Job, folder: Path, rng: random.Random) -> str | None:
        return self._kill(job, folder, rng, signal.SIGTERM)

    def _full(self, job: Job, folder: Path, rng: random.Random) -> str | None:
        """A disk with little or no room left, where one can be mounted; else files that cannot grow."""
        small = folder / SMALL
        small.mkdir()
        room = 48 + rng.choice([0, 4, 16, 64])
        mounted = subprocess.run(
            ["mount", "-t", "tmpfs", "-o", f"size={room}k", "none", str(small)],
            capture_output=True,
            check=False,
        )
        if mounted.returncode:
            code, said = self._run(job, folder, limit=rng.choice([0, 1, 100, 2000]))
            return _said_why(code, said)
        try:
            self._prepare(job, small)
            code, said = self._run(job, small)
            torn = [name for name in job.files if (small / name).is_file() and not _is_whole(small / name)]
            self.campaign.counts["full disks that were mounted"] += 1
            return f"not whole on a full disk: {torn}" if torn else _said_why(code, said)
        finally:
            subprocess.run(["umount", "-l", str(small)], check=False)
            small.rmdir()

    def _read_only(self, job: Job, folder: Path, rng: random.Random) -> str | None:
        """A result that goes to where nobody may write, not even root."""
        words = [
            "/proc/nowhere.json" if word in ("plan.json", "profile.json", "weights.npz", "out") else word
            for word in job.words
        ]
        words = [
            "/proc/cache.sqlite" if word == "cache.sqlite" and rng.random() < 0.5 else word for word in words
        ]
        code, said = self._run(Job(job.name, tuple(words)), folder)
        return _said_why(code, said)

    def _two(self, job: Job, folder: Path, rng: random.Random) -> str | None:
        """Two at once, with one cache and one result; one of them may be killed."""
        first, second = self.start(job, folder), self.start(job, folder)
        if rng.random() < 0.5:
            time.sleep(self._moment(job, rng))
            first.kill()
        codes = []
        for process in (first, second):
            try:
                codes.append(process.wait(PATIENCE))
            except subprocess.TimeoutExpired:
                process.kill()
                return "two at once do not end"
        said = self._stderr(folder).read_text(errors="replace")
        if codes[1] != 0 or codes[0] not in (0, -signal.SIGKILL):
            return f"two at once end with {codes}: {said[-500:]}"
        return None

    def _afterwards(self, job: Job, folder: Path) -> str | None:
        """The next run works, and nothing of the one before is left."""
        code, said = self._run(job, folder)
        if code != 0:
            return f"the next run ends with exit code {code}: {said[-500:]}"
        for name in job.files:
            if not (folder / name).exists():
                return f"the next run did not write {name}"
        scratch = [path.name for path in (folder / "t").rglob("*") if SCRATCH.match(path.name)]
        new = [path.name for path in folder.rglob("*.new")]
        if scratch or new:
            return f"left behind: {scratch + new}"
        for cache in folder.glob("*.sqlite"):
            with sqlite3.connect(cache) as connection:
                found = connection.execute("PRAGMA integrity_check").fetchone()[0]
            connection.close()
            if found != "ok":
                return f"the cache is damaged: {found}"
        return None


def _said_why(code: int, said: str) -> str | None:
    """A command that cannot write says so in a sentence (or did not need to)."""
    if code not in (0, 2, 4) or "Traceback" in said or "this is a bug" in said:
        return f"exit code {code}: {said[-800:]}"
    return None


def _whole_files(job: Job, folder: Path) -> set[str]:
    return {name for name in job.files if (folder / name).is_file()}


def _is_whole(path: Path) -> bool:
    try:
        if path.suffix == ".npz":
            import numpy as np

            with np.load(path) as arrays:
                return all(arrays[name] is not None for name in arrays.files)
        if path.suffix == ".md":
            return path.read_text().endswith("\n")
        json.loads(path.read_bytes())
    except Exception:
        return False
    return True


def _children(folder: Path) -> list[str]:
    """Processes that a command has started, and that do not end within 200 looks, a tenth of a second apart."""
    found = _started_in(folder)
    for _ in range(200):
        if not found:
            break
        time.sleep(0.1)
        found = _started_in(folder)
    return found


def _started_in(folder: Path) -> list[str]:
    """Processes whose environment says that they come from a case."""
    found = []
    marker = f"{MARKER}={folder}\0"
    for entry in Path("/proc").iterdir():
        if not entry.name.isdecimal() or int(entry.name) == os.getpid():
            continue
        try:
            fields = (entry / "stat").read_text().rpartition(")")[2].split()
            if fields[0] in "ZX":
                continue
            if marker in (entry / "environ").read_text():
                found.append((entry / "cmdline").read_text().replace("\0", " ")[:200])
        except (OSError, IndexError, ValueError):
            continue
    return found


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    found = parser("kill", "Commands killed at random moments.")
    found.add_argument(
        "--only", default="", metavar="JOB", help="one job only: " + ", ".join(job.name for job in JOBS)
    )
    found.add_argument(
        "--without", default="-", metavar="JOB", help="all but this: a busy machine cannot start Ray in time"
    )
    return found.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the campaign."""
    options = _options(arguments)
    campaign = Campaign(f"kill-{options.only}" if options.only else "kill", options)
    return campaign.run(Kill(campaign, options.only, options.without).case)


if __name__ == "__main__":
    raise SystemExit(main())
