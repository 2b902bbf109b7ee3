"""What a bound leaves out of the problem: where it can be too low."""

from __future__ import annotations

import numpy as np

from loadmaster.problem._model import Concurrent, Offload, Pipeline
from loadmaster.problem._problem import Problem

__all__ = ["ignored_by"]

BETWEEN_LIKE = "transfers between devices of one kind"
WHOLE = "that an op is on one device only"
ORDER = "that ops wait for their device"

_LEAVES_OUT = {
    "fastest devices": ("transfers",),
    "fastest devices and transfers": (BETWEEN_LIKE,),
    "min cut": (),
    "min cut with priced memory": (WHOLE,),
    "split over like devices": ("transfers among devices on one side of a split",),
    "largest op": ("all other ops",),
    "crowding": ("transfers", "all but the heaviest ops"),
    "crowding and windows": ("all but the heaviest ops", "transfers between them"),
    "heavy classes that share a device": ("all but the heaviest ops",),
    "fair share and transfers": ("transfers of all devices but one",),
    "spread over like devices": (
        "that like devices cannot share the work just equally",
        "transfers of other kinds of devices",
    ),
    "forward and backward": ("transfers", WHOLE),
    "load dual and transfers": (BETWEEN_LIKE, WHOLE),
    "pruned load dual": (BETWEEN_LIKE, WHOLE),
    "load of atoms": ("transfers", WHOLE),
    "frontier": ("that every device has one bundle and not parts of several",),
    "convex": ("that every device has one set and not parts of several",),
    "divided heavy classes": ("that lighter ops are on one device only", "transfers in the busiest stretch"),
    "stretches of a path": ("that ops outside a stretch use the same devices",),
    "critical path": ("transfers", ORDER),
    "placed critical path": (f"{ORDER}, but for a few before each op",),
    "crowded critical path": (ORDER,),
    "largest class": ("all other ops",),
    "windows": ("transfers in the busiest stretch", WHOLE),
    "pruned windows": ("transfers in the busiest stretch", WHOLE),
}
_EXACT = {"enumeration", "ideal-dp", "cp-sat", "CP-SAT schedule", "milp", "exact"}
"""Bounds of methods that leave nothing out, and have not come to an end."""
_KNOW_MEMORY = {
    "split over like devices",
    "crowded critical path",
    "min cut with priced memory",
    "calls",
    "convex",
}


def ignored_by(problem: Problem, name: str) -> tuple[str, ...] | None:
    """What the bound of this name does not count, as phrases that follow "ignores"; None where nothing is known of it.

    Constraints are named only where they may matter: memory, if not everything fits on each device.

    >>> from loadmaster.graph import layered
    >>> from loadmaster.hardware import accelerators, roofline
    >>> graph, cluster = layered(20), accelerators(1, cpus=0)
    >>> problem = Problem.make(graph, cluster, "serial", time=roofline(graph, cluster))
    >>> ignored_by(problem, "fastest devices (min-cut)")
    ('transfers',)
    """
    base = name.split(" (")[0]
    if base in _EXACT:
        return ()
    left = _LEAVES_OUT.get(base)
    if base == "load dual":
        queues = isinstance(problem.model, Pipeline)
        left = ("transfers", WHOLE) if queues else ("transfers", "that ops wait for their inputs", WHOLE)
    elif base == "linear relaxation":
        left = (WHOLE,)
    elif base == "calls":
        left = ("that every call is made or not",)
    if left is None:
        return None
    found = list(left)
    knows_memory = base in _KNOW_MEMORY or (
        base == "linear relaxation" and isinstance(problem.model, Concurrent)
    )
    if not knows_memory and bool(np.any(problem.memory.sum() > problem.capacity)):
        found.append("memory limits")
    model = problem.model
    if isinstance(model, Pipeline) and model.contiguity != "none" and base != "convex":
        found.append("contiguity")
    if isinstance(model, Offload) and base != "calls":
        found.append("the number of calls")
    return tuple(found)
