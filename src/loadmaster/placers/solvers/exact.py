"""CP-SAT and HiGHS in parallel on the 0/1 program of pipeline throughput."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from loadmaster.placers.solvers.pipeline.portfolio import PipelineSolver, SolverName

__all__ = ["Exact"]


@dataclass(frozen=True)
class Exact(PipelineSolver):
    """CP-SAT and HiGHS in parallel: each learns what the other has found, and the better bound counts.

    Solves the same problems as :class:`~loadmaster.placers.solvers.milp.Milp`, and is exact if either of the two
    finishes. CP-SAT mostly wins under contiguity ``device``, HiGHS often without contiguity.

    Complexity: that of the quicker one; both run at once (HiGHS in a process of its own, CP-SAT in ``workers``
    threads).

    References
    ----------
    J. Tarnawski et al., "Efficient algorithms for device placement of DNN graph operators", NeurIPS 2020, section
    5 (the program). C. P. Gomes, B. Selman, "Algorithm portfolios", Artificial Intelligence 126, 2001.
    """

    workers: int = 4
    """Number of CP-SAT threads."""

    name: ClassVar[str] = "exact"
    summary: ClassVar[str] = "pipeline throughput by CP-SAT and HiGHS in parallel"
    solvers: ClassVar[tuple[SolverName, ...]] = ("milp", "cp-sat")
