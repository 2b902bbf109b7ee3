"""A quick start and a quick end of the command's own process. A library must not decide this for others."""

from __future__ import annotations

import atexit
import gc
import os
import sys

__all__ = ["announce_compiling", "calm_collector", "keep_output_clean", "start_numba"]

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


def calm_collector() -> None:
    """Let Python look for cyclic garbage rarely, and not at all at the end.

    A small command makes a few hundred thousand objects, nearly all by importing, and keeps them: looking
    through them again and again takes a quarter of its time.
    """
    gc.set_threshold(100_000, 20, 20)
    atexit.register(gc.freeze)


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
