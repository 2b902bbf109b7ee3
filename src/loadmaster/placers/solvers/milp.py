"""HiGHS on programs of two execution models."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from loadmaster.placers.frame.search import Search
from loadmaster.placers.search._incumbents import construct, has_room_to_solve, quick_answers
from loadmaster.placers.solvers.pipeline.portfolio import PipelineSolver, SolverName, first_part, unsolvable
from loadmaster.placers.solvers.serial import solve_serial, unsuited
from loadmaster.problem import Placement, Problem, Serial

__all__ = ["Milp"]


@dataclass(frozen=True)
class Milp(PipelineSolver):
    """HiGHS: branch and cut on the linear relaxation, in a process of its own.

    Solves ``pipeline`` with contiguity ``none`` or ``device``, memory included, as the 0/1 program of
    ``pipeline/program.py``, and ``serial`` where memory is short (``serial.py``). Exact if it finishes; else the best
    placement found, with the bound that HiGHS has proved (lowered by its tolerance). Local search has the first tenth
    of the time, at most three seconds.

    Complexity: exponential in the worst case; the program has classes · devices binaries and about tensors ·
    devices more, and each node of the tree solves its linear relaxation. Programs of more than 120,000 clauses
    are left to local search.

    References
    ----------
    Q. Huangfu, J. A. J. Hall, "Parallelizing the dual revised simplex method", Mathematical Programming
    Computation 10(1), 2018 (HiGHS). J. Tarnawski et al., "Efficient algorithms for device placement of DNN graph
    operators", NeurIPS 2020, section 5 (the program).
    """

    name: ClassVar[str] = "milp"
    summary: ClassVar[str] = (
        "pipeline throughput, or serial with short memory, as an integer program, by HiGHS"
    )
    solvers: ClassVar[tuple[SolverName, ...]] = ("milp",)

    def supports(self, problem: Problem) -> str | None:
        """``pipeline`` without chains, and ``serial`` where memory is short."""
        return unsuited(problem) if isinstance(problem.model, Serial) else unsolvable(problem)

    def explore(self, search: Search, start: Placement | None, seed: int) -> None:
        """By execution model."""
        if not isinstance(search.problem.model, Serial):
            super().explore(search, start, seed)
            return
        construct(search, start, seed)
        if not has_room_to_solve(search):
            quick_answers(search, search.budget, seed)
            return
        quick_answers(search, first_part(search), seed)
        solve_serial(search, seed)
