"""Pipelines on like devices: what the bounds by cuts and flows are about."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from hypothesis import strategies as st

from loadmaster.problem import Pipeline

__all__ = ["LOADS", "like"]

LOADS = st.builds(
    Pipeline, st.sampled_from(["none", "device", "chain"]), st.just("sum"), st.sampled_from(["sum", "fw+bw"])
)
"""Pipelines whose transfers add to the load."""
ENDS = ("send_latency", "send_rate", "recv_latency", "recv_rate")


def like(problem, first):
    """All devices from ``first`` on are made like that one, and nothing is pinned there."""
    if problem.devices <= first:
        return problem
    of = np.minimum(np.arange(problem.devices), first)
    ends = {name: getattr(problem, name)[of] for name in ENDS}
    pin = np.where(problem.pin >= first, -1, problem.pin).astype(np.int32)
    return replace(problem, time=problem.time[:, of], forbidden=problem.forbidden[:, of], pin=pin, **ends)
