"""A budget of seconds for a job of several phases, and what each of them took."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["Spending"]


def monotonic() -> float:
    """The clock of the budget; tests have another."""
    return time.monotonic()


class Spending:
    """Begins when it is made, or at the time ``began`` before."""

    def __init__(self, budget: float, began: float | None = None) -> None:
        self.budget = budget
        self.needed = 0.0
        """Seconds that cannot be saved, as far as they are known."""
        self.phases: dict[str, float] = {}
        self._began = monotonic() if began is None else began
        if self.seconds > 0:
            self.phases["starting"] = self.seconds

    @property
    def seconds(self) -> float:
        """Since the beginning."""
        return monotonic() - self._began

    @property
    def end(self) -> float:
        """When all must be done, on the clock of ``time.monotonic``."""
        return self._began + max(self.budget, self.needed)

    @property
    def left(self) -> float:
        """Until then; below 0 when it is over."""
        return self.end - monotonic()

    def at(self, share: float) -> float:
        """The time at which so much of what is left from now on will be spent."""
        return monotonic() + share * max(0.0, self.left)

    def free(self, seconds: float) -> None:
        """So many that do not count: the end is so much later."""
        self._began += seconds

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Count what is inside under a name."""
        began = monotonic()
        try:
            yield
        finally:
            self.phases[name] = self.phases.get(name, 0.0) + monotonic() - began
