"""What a small command costs, against importing what it is built on.

    python -m benchmarks.startup [--repeats 9]

Prints the median CPU seconds (user and system, which other work on the machine hardly changes) of

- ``python -c 'import numba, rich, typer'``, the reference,
- ``loadmaster place tiny.json --method heft --json``,
- ``loadmaster evaluate tiny.json --placement tiny.json --json``,

run one after another, again and again, with warm caches; and their ratio to the reference. The aim is 2.
"""

from __future__ import annotations

import argparse
import os
import resource
import statistics
import subprocess
import sys
import tempfile
from functools import partial
from pathlib import Path

from loadmaster.studies import Case, Row, Scope, Study

__all__ = ["STUDY"]

REFERENCE = "import numba, rich, typer"


def cpu_seconds(command: list[str], folder: str) -> float:
    """CPU seconds of one run of a command, its children included."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, cwd=folder, check=True, stdout=subprocess.DEVNULL)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def options(parser: argparse.ArgumentParser) -> None:
    """How often."""
    parser.add_argument("--repeats", type=int, default=9)


def cases(scope: Scope) -> list[Case]:
    """One: the commands must be run in turns."""
    repeats = 1 if scope.quick else scope["repeats"]
    return [Case({"repeats": repeats}, partial(measured, repeats))]


def measured(repeats: int) -> Row:
    """Median CPU seconds of each command, and ratios to the reference."""
    command = [sys.executable, "-m", "loadmaster.cli"]
    commands = {
        "import": [sys.executable, "-c", REFERENCE],
        "place": [*command, "place", "tiny.json", "--method", "heft", "--json"],
        "evaluate": [*command, "evaluate", "tiny.json", "--placement", "tiny.json", "--json"],
    }
    if "PYTHONPATH" in os.environ:  # the commands run in another folder
        os.environ["PYTHONPATH"] = str(Path(os.environ["PYTHONPATH"]).resolve())
    with tempfile.TemporaryDirectory() as folder:
        make = [*command, "place", "zoo:layered-30", "--method", "heft", "-o", "tiny.json", "--json"]
        cpu_seconds(make, folder)
        for each in commands.values():  # compiles what is not in the cache
            cpu_seconds(each, folder)
        found: dict[str, list[float]] = {name: [] for name in commands}
        for _ in range(repeats):
            for name, each in commands.items():
                found[name].append(cpu_seconds(each, folder))
    median = {name: statistics.median(seconds) for name, seconds in found.items()}
    return {
        **{f"{name}, CPU s": seconds for name, seconds in median.items()},
        **{f"{name} / import": median[name] / median["import"] for name in ("place", "evaluate")},
    }


STUDY = Study("startup", "What a small command costs", cases, options=options, here=True)

if __name__ == "__main__":
    raise SystemExit(STUDY.main())
