"""A line on the terminal while a search runs: incumbent, bound and gap."""

from __future__ import annotations

import sys
import threading
from types import TracebackType
from typing import Protocol, Self

from loadmaster.report._units import percent, seconds_text

__all__ = ["LiveProgress"]

PATIENCE = 2.0
"""Seconds of silence before anything is shown."""


class State(Protocol):
    """What a search says about itself; see ``placers.Progress``."""

    @property
    def method(self) -> str: ...
    @property
    def seconds(self) -> float: ...
    @property
    def evaluations(self) -> int: ...
    @property
    def cost(self) -> float: ...
    @property
    def bound(self) -> float: ...
    @property
    def note(self) -> str: ...


class LiveProgress:
    """Shows the latest state on standard error, if that is a terminal and the search takes over two seconds.

    A timer brings up the display, and rich redraws it from a thread of its own, so that it also lives while
    the first call compiles kernels and no state arrives.
    """

    def __init__(self, *, patience: float = PATIENCE) -> None:
        self._state: State | None = None
        self._lock = threading.Lock()
        self._over = False
        self._live: object | None = None
        self._timer = threading.Timer(patience, self._show)
        self._timer.daemon = True

    def __call__(self, state: State) -> None:
        self._state = state

    def __enter__(self) -> Self:
        if sys.stderr.isatty():
            self._timer.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._timer.cancel()
        with self._lock:
            self._over = True
            if self._live is not None:
                self._live.stop()  # type: ignore[attr-defined]

    def _show(self) -> None:
        from rich.console import Console
        from rich.live import Live
        from rich.spinner import Spinner

        spinner = Spinner("dots")

        def render() -> Spinner:
            spinner.update(text=describe(self._state))
            return spinner

        with self._lock:
            if not self._over:
                self._live = Live(
                    get_renderable=render, console=Console(stderr=True), refresh_per_second=8, transient=True
                )
                self._live.start()


def describe(state: State | None) -> str:
    """One line about where a search stands; before the first evaluation, numba is still compiling."""
    if state is None or state.evaluations == 0:
        return "compiling kernels (first run only) …"
    line = f"{state.method}  {seconds_text(round(state.seconds, 1))}  {state.evaluations:,} evaluations"
    if state.cost == float("inf"):
        return f"{line}  no feasible placement yet"
    gap = max(0.0, (state.cost - state.bound) / state.cost) if state.cost > 0 else 0.0
    line += f"  cost {seconds_text(state.cost)}  bound {seconds_text(state.bound)}  gap {percent(gap)}"
    return f"{line}  {state.note}" if state.note else line
