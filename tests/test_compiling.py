"""Ctrl-C while kernels are compiled."""

from __future__ import annotations

import _thread
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator

import pytest

from loadmaster.compiling import interruptible


@pytest.fixture(autouse=True)
def heard() -> Iterator[None]:
    """Ctrl-C is heard: what a script runs in the background begins without it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def press_ctrl_c_when(moment: threading.Event) -> None:
    def press() -> None:
        moment.wait(60)
        _thread.interrupt_main()

    threading.Thread(target=press, daemon=True).start()


def test_work_that_is_not_interrupted_ends_or_fails_as_it_would() -> None:
    done = []
    interruptible(lambda left: done.append(left()))
    assert done == [False]

    def fail(left: Callable[[], bool]) -> None:
        raise ValueError("broken")

    with pytest.raises(ValueError, match="broken"):
        interruptible(fail)


def test_ctrl_c_does_not_wait_and_the_work_learns_of_it() -> None:
    begun, go_on, told = threading.Event(), threading.Event(), threading.Event()

    def compile_for_long(left: Callable[[], bool]) -> None:
        begun.set()
        go_on.wait(60)
        if left():
            told.set()

    press_ctrl_c_when(begun)
    with pytest.raises(KeyboardInterrupt):
        interruptible(compile_for_long)
    assert not told.is_set()
    go_on.set()
    assert told.wait(60)


def test_what_an_answer_needs_is_finished_first() -> None:
    begun, ended = threading.Event(), threading.Event()
    latest = time.monotonic() + 60

    def compile_briefly(left: Callable[[], bool]) -> None:
        begun.set()
        while not left() and time.monotonic() < latest:
            time.sleep(0.01)
        ended.set()

    press_ctrl_c_when(begun)
    with pytest.raises(KeyboardInterrupt):
        interruptible(compile_briefly, finish=True)
    assert ended.is_set()


WARMED = """
import importlib
from loadmaster import api
from loadmaster.api import _placing
from loadmaster.placers.auto import Auto

_placing.warm_for(Auto(), api.problem("zoo:layered-300?width=8", "3acc+1cpu", model="{model}"))
for name in "{kernels}".split():
    module, kernel = name.split(":")
    assert getattr(importlib.import_module("loadmaster." + module), kernel).signatures, name
"""


@pytest.mark.parametrize(
    ("model", "kernels"),
    [
        (
            "concurrent",
            "placers.solvers.concurrent.stretches:_cuts_kernel problem.bounds._around:_longest "
            "placers.search._beam_kernel:_search placers.rules._insertion:insert_ops",
        ),
        ("pipeline", "placers.cuts._balls:route placers.rules.greedy:_least_loaded"),
    ],
)
def test_a_warm_up_reaches_the_kernels_of_bounds_too(model: str, kernels: str) -> None:
    """What a tiny problem does not reach is compiled within the budget of the first run."""
    code = WARMED.format(model=model, kernels=kernels)
    subprocess.run([sys.executable, "-c", code], check=True, timeout=300)
