"""A line on the terminal while something takes its time: a search, or a training run."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Generic, Protocol, Self, TypeVar

from loadmaster.units import percent, seconds_text

__all__ = ["LiveProgress", "describe_lessons", "describe_search", "describe_training"]

PATIENCE = 2.0
"""Seconds of silence before anything is shown."""


State = TypeVar("State")


class SearchState(Protocol):
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


class TrainingState(Protocol):
    """What a training run says about itself."""

    @property
    def generation(self) -> int: ...
    @property
    def seconds(self) -> float: ...
    @property
    def gain(self) -> Mapping[str, float]: ...


class LiveProgress(Generic[State]):
    """Shows the latest state on standard error, if that is a terminal and the work takes over two seconds.

    It is called with a state; ``describe`` makes a line of it, or of None before there is one. A timer brings up the
    display, and rich redraws it from a thread of its own, so that it also lives while the first call compiles
    kernels and no state arrives.
    """

    def __init__(self, describe: Callable[[State | None], str], *, patience: float = PATIENCE) -> None:
        self._describe = describe
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
            spinner.update(text=self._describe(self._state))
            return spinner

        with self._lock:
            if not self._over:
                self._live = Live(
                    get_renderable=render, console=Console(stderr=True), refresh_per_second=8, transient=True
                )
                self._live.start()


def describe_search(state: SearchState | None) -> str:
    """One line about where a search stands; before the first evaluation, numba is still compiling."""
    if state is None or state.evaluations == 0:
        return "compiling kernels (first run only) …"
    line = f"{state.method}  {seconds_text(round(state.seconds, 1))}  {state.evaluations:,} evaluations"
    if state.cost == float("inf"):
        return f"{line}  no feasible placement yet"
    gap = max(0.0, (state.cost - state.bound) / state.cost) if state.cost > 0 else 0.0
    line += f"  cost {seconds_text(state.cost)}  bound {seconds_text(state.bound)}  gap {percent(gap)}"
    return f"{line}  {state.note}" if state.note else line


def describe_training(state: TrainingState | None) -> str:
    """One line about where a training run stands."""
    if state is None:
        return "compiling kernels and sampling problems …"
    gain = ", ".join(f"{kind} {100 * value:+.2f} %" for kind, value in state.gain.items())
    return f"generation {state.generation:,}  {state.seconds:.0f} s  cost vs start: {gain}"


def describe_lessons(state: TrainingState | None) -> str:
    """One line about where a pre-training by imitation stands."""
    if state is None:
        return "compiling kernels and sampling problems …"
    values = ", ".join(f"{name} {value:.4g}" for name, value in state.gain.items())
    return f"step {state.generation:,}  {state.seconds:.0f} s  {values}"
