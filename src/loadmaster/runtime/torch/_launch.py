"""Starting ranks with torchrun, and saying in one sentence what went wrong with them."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from loadmaster import errors
from loadmaster.errors import InputError, RunError, RunTimeoutError, WorkerError
from loadmaster.files import scratch_folder

__all__ = ["launch", "run_plan_on_ranks"]

EXIT = re.compile(r"rank\s*:\s*(\d+).*?exitcode\s*:\s*(-?\d+)", re.DOTALL)
"""In torchrun's report about the rank that failed first."""
GRACE = 20.0
"""Seconds that ranks are given to end once they are told to."""


def launch(
    module: str,
    arguments: Sequence[str],
    ranks: int,
    *,
    timeout: float | None = None,
    log: Path | None = None,
) -> None:
    """Run a module on several ranks of this machine, until all of them have ended.

    Raises
    ------
    WorkerError : a rank died; the message says which, and how.
    RunTimeoutError : they took longer than ``timeout`` seconds; they were ended.
    """
    command = [sys.executable, "-m", "loadmaster.runtime.torch._torchrun", str(os.getpid())]
    command += ["--standalone", "--nproc-per-node", str(ranks), "-m", module, *arguments]
    environment = {"OMP_NUM_THREADS": "1", **os.environ, "TORCHELASTIC_ERROR_FILE": os.devnull}
    with tempfile.TemporaryFile("w+") as said:
        process = subprocess.Popen(
            command, stdout=said, stderr=subprocess.STDOUT, env=environment, start_new_session=True
        )
        try:
            code = process.wait(timeout)
        except subprocess.TimeoutExpired:
            raise RunTimeoutError(f"{ranks} ranks took longer than {timeout:g} s and were stopped") from None
        finally:
            _end(process)
        said.seek(0)
        text = said.read()
        if log is not None:
            log.write_text(text)
    if code:
        raise WorkerError(_how_it_ended(text, ranks))


def _end(process: subprocess.Popen[bytes] | subprocess.Popen[str]) -> None:
    """End torchrun, which ends its ranks; nothing is left behind."""
    if process.poll() is None:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(GRACE)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _how_it_ended(text: str, ranks: int) -> str:
    # The root cause is listed last, behind what failed because of it.
    found = EXIT.findall(text.rpartition("Root Cause")[2]) or EXIT.findall(text)
    if not found:
        return f"torchrun could not run {ranks} ranks: {_last_line(text)}"
    rank, code = found[0][0], int(found[0][1])
    how = f"was ended by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"
    return f"rank {rank} of {ranks} {how}, and the others were stopped: {_last_line(text, rank)}"


def _last_line(text: str, rank: str = "") -> str:
    """The last line of a traceback, which says what was wrong: that of a rank, if it said something."""
    lines = [
        line
        for line in text.splitlines()
        if re.match(r"(\[rank\d+\]: )?\w[\w.]*(Error|Exception|Exit)\b", line)
    ]
    own = [line for line in lines if line.startswith(f"[rank{rank}]")] if rank else []
    return (own or lines)[0][:300] if lines else "it said nothing about it"


def run_plan_on_ranks(
    model: str,
    plan: str,
    ranks: int,
    *,
    steps: int = 10,
    microbatches: int | None = None,
    schedule: str | None = None,
    seed: int = 0,
    timeout: float | None = None,
    say: Callable[[str], None] = lambda text: None,
) -> dict[str, Any]:
    """Verify and measure a plan on so many ranks of this machine; what the first rank reports.

    Raises
    ------
    InputError, WrongOutputError : as a rank has it.
    WorkerError : a rank died.
    """
    if ranks < 1:
        raise InputError(f"there must be at least one rank, not {ranks}", option="--nproc")
    with scratch_folder() as folder:
        answer = Path(folder) / "answer.json"
        request = {
            "model": model,
            "plan": plan,
            "answer": str(answer),
            "steps": steps,
            "microbatches": microbatches,
            "schedule": schedule,
            "seed": seed,
        }
        path = Path(folder) / "request.json"
        path.write_text(json.dumps(request))
        say(f"starting {ranks} ranks: comparing with the unsplit model, then {steps} steps …")
        try:
            launch("loadmaster.runtime.torch._worker", [str(path)], ranks, timeout=timeout)
        except WorkerError as error:
            raise _said_by_a_rank(answer, ranks) or error from None
        found: dict[str, Any] = json.loads(answer.read_text())
        return found


def _said_by_a_rank(answer: Path, ranks: int) -> Exception | None:
    """The error that a rank wrote down, if one did, as it was raised there."""
    for rank in range(ranks):
        path = Path(f"{answer}.{rank}")
        if path.is_file():
            document = json.loads(path.read_text())
            kind = getattr(errors, document["error"], RunError)
            found: Exception = kind(document["message"])
            return found
    return None
