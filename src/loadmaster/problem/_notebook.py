"""How a notebook shows a problem."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from loadmaster.notebook import facts_html, rows_html
from loadmaster.units import bytes_text, seconds_text

if TYPE_CHECKING:
    from loadmaster.problem._problem import Problem

__all__ = ["problem_html"]


def problem_html(problem: Problem) -> str:
    """The facts of a problem, and a row per device."""
    facts = [
        ("graph", f"{problem.graph.name or 'unnamed'}, {problem.n:,} ops"),
        ("execution model", repr(problem.model)),
        ("op times", problem.provenance),
        ("pinned", f"{int((problem.pin >= 0).sum()):,} ops"),
    ]
    rows = [
        (
            device.name,
            device.kind,
            "unlimited" if np.isinf(problem.capacity[d]) else bytes_text(float(problem.capacity[d])),
            f"{int(np.isfinite(problem.time[:, d]).sum()):,}",
            seconds_text(float(problem.time[np.isfinite(problem.time[:, d]), d].sum())),
        )
        for d, device in enumerate(problem.cluster.devices)
    ]
    head = ("device", "kind", "memory", "supported ops", "time of all")
    return facts_html("Problem", facts) + rows_html(head, rows)
