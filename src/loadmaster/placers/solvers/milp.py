"""HiGHS on the 0/1 program of pipeline throughput."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from loadmaster.placers.solvers.pipeline.portfolio import PipelineSolver, SolverName

__all__ = ["Milp"]


@dataclass(frozen=True)
class Milp(PipelineSolver):
    """HiGHS: branch and cut on the linear relaxation, in a process of its own.

    Solves ``pipeline`` with contiguity ``none`` or ``device``, memory included, as the 0/1 program of
    ``pipeline/program.py``. Exact if it finishes; else the best placement found, with the bound that HiGHS has
    proved (lowered by its tolerance). Local search has the first tenth of the time,
    at most three seconds.

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
    summary: ClassVar[str] = "pipeline throughput as an integer program, by HiGHS"
    solvers: ClassVar[tuple[SolverName, ...]] = ("milp",)
