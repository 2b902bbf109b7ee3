"""A quick start and a quick end of the command's own process. A library must not decide this for others."""

from __future__ import annotations

import atexit
import contextlib
import gc
import os
import signal
import sys
import threading
import time
from typing import Any

__all__ = [
    "announce_compiling",
    "began",
    "calm_collector",
    "keep_interrupts",
    "keep_output_clean",
    "leave_threads",
    "note_start",
    "start_numba",
]

SOON = 0.02
"""Seconds after which an interrupt that was dropped is raised again."""

_BLAS = "scipy.linalg.cython_blas"


def keep_output_clean() -> None:
    """Let what libraries in C print go to standard error, and only what Python prints to standard output.

    For the whole process: what they print may wait in a buffer until it ends.
    """
    try:
        sys.stdout.flush()
        out = os.dup(1)
        os.dup2(2, 1)
    except (AttributeError, OSError):  # there is no standard output, or no standard error
        return
    old = sys.stdout
    line_by_line = getattr(old, "line_buffering", False) or getattr(old, "write_through", False)
    sys.stdout = open(  # noqa: SIM115 - as long as the process
        out, "w", buffering=1 if line_by_line else -1, encoding=old.encoding, errors=old.errors
    )


def keep_interrupts() -> None:
    """Raise Ctrl-C again where Python has dropped it.

    What is raised inside a finalizer or the callback of a weak reference goes nowhere, and importing a module runs such
    callbacks (those of its lock): a Ctrl-C that arrives in one is printed as ignored, and the command goes on.
    """
    if not hasattr(signal, "setitimer") or threading.current_thread() is not threading.main_thread():
        return
    usual = sys.unraisablehook

    def again(*_: object) -> None:
        raise KeyboardInterrupt

    def dropped(what: Any) -> None:
        if issubclass(what.exc_type, KeyboardInterrupt):
            signal.setitimer(signal.ITIMER_REAL, SOON)  # outside of whatever dropped it
        else:
            usual(what)

    signal.signal(signal.SIGALRM, again)
    sys.unraisablehook = dropped


def calm_collector() -> None:
    """Let Python look for cyclic garbage rarely, and not at all at the end.

    A small command makes a few hundred thousand objects, nearly all by importing, and keeps them: looking
    through them again and again takes a quarter of its time.
    """
    gc.set_threshold(100_000, 20, 20)
    atexit.register(gc.freeze)


_began: list[float] = []


def note_start() -> None:
    """Remember that this process is the command's own, so that its budget begins with the process."""
    _began.append(time.monotonic())
    try:
        with open("/proc/self/stat") as file:
            ticks = int(file.read().rpartition(")")[2].split()[19])
        _began[-1] -= time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK")
    except (OSError, ValueError, IndexError, AttributeError):  # only Linux says when a process began
        return


def began() -> float:
    """The time of ``time.monotonic`` at which the command began."""
    return _began[-1] if _began else time.monotonic()


def start_numba() -> None:
    """Import numba, and spare it the import of ``scipy.linalg`` at the first call of a kernel.

    Numba asks there whether BLAS exists, which takes longer than to load all kernels of a small command
    together. The answer matters to ``np.convolve`` and ``np.correlate`` in kernels alone, which nothing here
    uses; ``np.dot`` and its like look again when they are compiled.
    """
    if "numba.np.arraymath" in sys.modules or _BLAS in sys.modules:
        return
    sys.modules[_BLAS] = None  # type: ignore[assignment] # the import fails as if scipy were not there
    try:
        import numba.np.arraymath  # noqa: F401
    finally:
        del sys.modules[_BLAS]


def announce_compiling() -> None:
    """Say on standard error when kernels are being compiled; on a terminal, the line of progress says it."""
    if sys.stderr.isatty():
        return
    from loadmaster.cli._output import say
    from loadmaster.compiling import on_compiling

    on_compiling(
        lambda: say(
            "compiling kernels, once for this machine: it takes a minute or two, which is no part of the budget "
            "('loadmaster warm' does it ahead) …"
        )
    )


def leave_threads(code: object) -> None:
    """End the process now, if threads are still in the middle of a step that the answer did not wait for.

    These are members of ``auto`` after its deadline, and the compiler after Ctrl-C. Nothing else is under way then; an
    orderly end of the interpreter would wait for them, or pull the rug from under them.
    """
    import threading

    # Not is_alive: a join that Ctrl-C has interrupted takes its thread for dead.
    if not any(thread.name in ("auto", "compiling") for thread in threading.enumerate()):
        return
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(AttributeError, OSError, ValueError):  # nobody reads it any more
            stream.flush()
    os._exit(code if isinstance(code, int) else 0 if code is None else 1)
