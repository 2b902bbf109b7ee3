"""The command line as a process: standard output, Ctrl-C, pipes."""

from __future__ import annotations

import subprocess
import sys

from commands import run, strict_json, write

from loadmaster import __version__
from loadmaster.graph import layered
from loadmaster.graph._file import dump_graph
from loadmaster.plan import Plan

COMMAND = [sys.executable, "-m", "loadmaster.cli"]


INTERRUPTED = """
import signal
from loadmaster.cli import main
from loadmaster.report import LiveProgress

signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored in what a script runs in the background
told = []

def interrupt(progress, state):
    told.append(state)
    if sum(state.cost < float("inf") for state in told) == 1:
        signal.raise_signal(signal.SIGINT)

LiveProgress.__call__ = interrupt
main()
"""


def test_version_and_help():
    assert run("--version").stdout == f"loadmaster {__version__}\n"
    for command in ("inspect", "place", "evaluate", "compare", "methods", "export"):
        assert command in run("--help").stdout
        assert run(command, "--help").exit_code == 0
    assert (
        __version__
        in subprocess.run([*COMMAND, "--version"], capture_output=True, text=True, check=True).stdout
    )


def test_standard_output_is_json_and_nothing_else(tmp_path):
    file = write(tmp_path / "graph.json", dump_graph(layered(12)))
    arguments = ["place", str(file), "--evaluations", "30", "--json"]
    done = subprocess.run([*COMMAND, *arguments], capture_output=True, text=True, check=True)
    assert strict_json(done.stdout)["feasible"] is True
    assert done.stderr == ""


def test_ctrl_c_keeps_the_best(tmp_path):
    plan = tmp_path / "plan.json"
    arguments = ["place", "zoo:layered-60", "--method", "random", "--budget", "1h", "-o", str(plan), "--json"]
    done = subprocess.run([sys.executable, "-c", INTERRUPTED, *arguments], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert strict_json(done.stdout)["stopped"] == "interrupted"
    assert done.stderr == "loadmaster: interrupted: this is the best placement so far\n"
    assert Plan.load(plan).document["stopped"] == "interrupted"


DROPPED = """
import signal, sys, time, weakref
from loadmaster.cli._startup import keep_interrupts

signal.signal(signal.SIGINT, signal.default_int_handler)
keep_interrupts()

class Lock:
    pass

def callback(_):  # as that of a module's lock, while the module is imported
    signal.raise_signal(signal.SIGINT)
    sum(range(1000))

lock = Lock()
watching = weakref.ref(lock, callback)
try:
    del lock
    for _ in range(3000):
        time.sleep(0.01)
except KeyboardInterrupt:
    print("interrupted")
"""


def test_ctrl_c_that_python_drops_is_raised_again():
    done = subprocess.run([sys.executable, "-c", DROPPED], capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, "interrupted\n", "")


def test_ctrl_c_ends_a_comparison_with_what_is_there():
    arguments = [
        "compare",
        "zoo:layered-60",
        "--methods",
        "single,random,annealing",
        "--budget",
        "1h",
        "--json",
    ]
    done = subprocess.run([sys.executable, "-c", INTERRUPTED, *arguments], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert [entry["stopped"] for entry in strict_json(done.stdout)][-1] == "interrupted"
    assert done.stderr == "loadmaster: interrupted: these are the results so far\n"


def test_a_closed_pipe_is_no_error():
    script = f"{' '.join(COMMAND)} methods --json | true"
    done = subprocess.run(["sh", "-c", script], capture_output=True, text=True, check=True)
    assert "Traceback" not in done.stderr
    assert "Error" not in done.stderr
