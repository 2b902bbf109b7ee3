"""``surrogate``: runs chosen by the cost model, whose errors are learnt from every run."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

from loadmaster.arrays import IntArray
from loadmaster.errors import InputError
from loadmaster.placers.frame.search import Budget, Search
from loadmaster.placers.frame.searcher import Searcher
from loadmaster.placers.learned._scalars import Scalars
from loadmaster.placers.learned.surrogate._loop import Loop, solved
from loadmaster.placers.search._incumbents import borrow
from loadmaster.placers.search._walkers import first_start
from loadmaster.placers.search.local_search import LocalSearch
from loadmaster.problem import Placement, SimulatedEvaluator

__all__ = ["Surrogate"]


@dataclass(frozen=True)
class Surrogate(Searcher):
    """For evaluators that measure: correct the model by all runs so far, solve it, run the answer, again.

    What the model may have wrong are few numbers (factors of op types and devices, prices of cuts, how much devices
    slow each other down: ``_residual.py``) with a normal posterior. Every other run is the best by the likeliest
    numbers, the others by numbers drawn from the posterior, which look where little is known. Where the model itself is
    the evaluator there is nothing to learn, and this is ``local-search``. See ``docs/wrong-models.md``.

    References
    ----------
    W. R. Thompson, "On the likelihood that one unknown probability exceeds another in view of the evidence of two
    samples", Biometrika 25, 1933. M. C. Kennedy, A. O'Hagan, "Bayesian calibration of computer models", Journal of the
    Royal Statistical Society B 63(3), 2001.
    """

    runs: int = 60
    """Placements that are run, at most: few numbers are learnt soon."""
    solving: int = 2000
    """Evaluations of the model for each of them, where a minimum cut does not solve it."""
    log_dir: str = ""
    """Write TensorBoard event files and CSV into this folder: of every run its cost, what was believed of it before,
    the best, and the share that no numbers explain."""

    keeps_start: ClassVar[bool] = True
    warm_up: ClassVar[int] = 4
    name: ClassVar[str] = "surrogate"
    summary: ClassVar[str] = "the model's errors are learnt from every run, and its solution is run next"
    unlimited: ClassVar[Budget] = Budget(evaluations=60)

    def __post_init__(self) -> None:
        if self.runs < 1 or self.solving < 1:
            raise InputError(f"runs and solving must be >= 1, not {self.runs} and {self.solving}")

    def explore(self, search: Search, start: Placement | None, seed: int) -> None:
        """Run and learn until the budget is used up, or nothing new comes up."""
        if search.simulated:
            first_start(search, start, seed)
            search.check()
            borrow(search, LocalSearch(), Budget(), seed)
            return
        if start is not None and SimulatedEvaluator(search.problem).evaluate(start).feasible:
            first = start.device
        else:
            first = solved(search.problem, self.solving, seed, None)
        loop = Loop(search.problem, seed, self.solving, lambda: search.seconds_left)
        scalars = Scalars(self.log_dir, search, every=0.0)

        def ask(device: IntArray) -> tuple[float, None]:
            believed = loop.residual.costs(loop.posterior.mean, device[None])[0] if self.log_dir else 0.0
            cost = search.try_device(device)
            if math.isfinite(cost):
                scalars.write(
                    len(loop.tried), cost=cost, believed=believed, unexplained=loop.posterior.structure
                )
            search.note = f"{len(loop.tried) + 1} runs, {100 * loop.posterior.structure:.1f} % unexplained"
            search.check()
            return cost, None

        loop.run(first, ask, self.runs)
