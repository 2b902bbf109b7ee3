"""The one protocol that every placer keeps."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any, ClassVar, Protocol, cast, runtime_checkable

from loadmaster.placers.frame.search import Budget, ProgressCallback
from loadmaster.problem import Evaluator, Placement, Problem, Solution

__all__ = ["Placer", "Portfolio", "parameters"]


class Placer(Protocol):
    """A way to place: a frozen dataclass whose fields are its hyper-parameters.

    ``place`` returns a feasible placement or raises :class:`InfeasibleError`. It is anytime: at the deadline
    or on Ctrl-C it returns the best so far. Under an evaluation budget a run repeats exactly for a seed, in
    another process too.
    """

    name: ClassVar[str]
    summary: ClassVar[str]
    """One line for ``loadmaster methods``."""

    def supports(self, problem: Problem) -> str | None:
        """None, or one sentence that says why this placer cannot handle the problem."""
        ...

    def place(
        self,
        problem: Problem,
        *,
        budget: Budget,
        seed: int = 0,
        start: Placement | None = None,
        evaluator: Evaluator | None = None,
        on_progress: ProgressCallback | None = None,
    ) -> Solution:
        """The best placement found within the budget."""
        ...


@runtime_checkable
class Portfolio(Protocol):
    """A placer that runs others."""

    def members(self, problem: Problem) -> tuple[Placer, ...]:
        """All that may run on the problem."""
        ...


def parameters(placer: Placer) -> dict[str, Any]:
    """The hyper-parameters of a placer by name."""
    return asdict(cast(Any, placer))
