"""The clock of the main job: the wall's, until the machine is too busy for it, then the time on the cores."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from loadmaster.errors import BusyError
from loadmaster.optimize._budget import Spending, monotonic
from loadmaster.runtime import Candidate, Measurement, Session, machine_is_busy

__all__ = ["FEWEST_AT_ALL", "WARMED", "Clock"]

FEWEST_AT_ALL = 3
"""Samples of anything where there is hardly any time."""
WARMED = 2.0
"""Runs per sample: one before it is thrown away."""
GIVING_UP = 0.6
"""Of the time for measuring, after which a machine without clean samples counts as too busy for the clock ``wall``."""


class Clock:
    """What times are by now."""

    def __init__(self, clock: str, spending: Spending, say: Callable[[str], None]) -> None:
        self.name, self._may_switch = ("wall" if clock == "auto" else clock), clock == "auto"
        self._spending, self._say = spending, say
        self.run_seconds = 0.0
        """Of the model on the fastest device, once it is known."""

    def look(self) -> None:
        """Begin with the other clock where the machine is busy already."""
        if self._may_switch and machine_is_busy():
            self.name = "core"
            self._say("the machine is busy: all is by the time on the cores (--clock core)")

    def switch(self, session: Session, error: BusyError) -> None:
        """From the clock ``wall`` to ``core``, if that is allowed; else the error stands."""
        if not self._may_switch or self.name == "core":
            raise error
        self.name = session.clock = "core"
        self._say(
            f"{error}; going on by the time on the cores (--clock core), which other work disturbs less"
        )

    def measure(
        self,
        session: Session,
        candidates: Sequence[Candidate],
        *,
        samples: int,
        until: float,
        fewest: int,
        optional: Sequence[Candidate] = (),
    ) -> list[Measurement | None]:
        """By the clock so far; from the moment at which the machine is too busy for it, by the other.

        Until then there are the ``fewest`` samples, if there is time for so many, and at least a few; of the
        ``optional`` candidates there may be none.
        """
        a_round = WARMED * self.run_seconds * sum(candidate.items for candidate in candidates)
        room = int((until - monotonic()) / a_round) if a_round else fewest
        fewest = min(fewest, samples, max(FEWEST_AT_ALL, room))
        try:
            give_up = self._spending.end
            if self._may_switch and self.name == "wall":
                give_up = monotonic() + GIVING_UP * max(0.0, until - monotonic())
            return session.measure_most(
                candidates, samples=samples, until=until, fewest=fewest, give_up=give_up, optional=optional
            )
        except BusyError as error:
            self.switch(session, error)
        fewest = min(fewest, FEWEST_AT_ALL)
        return session.measure_most(
            candidates, samples=samples, until=until, fewest=fewest, optional=optional
        )
