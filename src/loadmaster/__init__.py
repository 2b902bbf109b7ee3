"""Loadmaster decides which device runs each operator of a neural network.

>>> # from loadmaster import Plan, api
>>> # problem = api.problem("zoo:layered-300", "2acc+1cpu")
>>> # solution = api.place(problem, budget=10.0)
>>> # Plan.from_solution(problem, solution).save("plan.json")

Names are imported when they are first used, so that ``import loadmaster`` is fast. ``api.problem`` is not
among them: ``loadmaster.problem`` is a package.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from loadmaster import api, zoo
    from loadmaster.api import compare, evaluate, load, place, read_placement
    from loadmaster.api import open_plan as open
    from loadmaster.errors import GraphError, InfeasibleError, InputError, LoadmasterError, UnsupportedError
    from loadmaster.graph import Graph, GraphBuilder
    from loadmaster.hardware import Cluster, Device, Link
    from loadmaster.plan import Plan
    from loadmaster.problem import Evaluation, Placement, Problem, Solution

__version__ = "0.1.0"

__all__ = [
    "Cluster",
    "Device",
    "Evaluation",
    "Graph",
    "GraphBuilder",
    "GraphError",
    "InfeasibleError",
    "InputError",
    "Link",
    "LoadmasterError",
    "Placement",
    "Plan",
    "Problem",
    "Solution",
    "UnsupportedError",
    "__version__",
    "api",
    "compare",
    "evaluate",
    "load",
    "open",
    "place",
    "read_placement",
    "zoo",
]

_HOME = {
    **dict.fromkeys(("compare", "evaluate", "load", "place", "read_placement"), "api"),
    **dict.fromkeys(
        ("GraphError", "InfeasibleError", "InputError", "LoadmasterError", "UnsupportedError"), "errors"
    ),
    **dict.fromkeys(("Graph", "GraphBuilder"), "graph"),
    **dict.fromkeys(("Cluster", "Device", "Link"), "hardware"),
    "Plan": "plan",
    **dict.fromkeys(("Evaluation", "Placement", "Problem", "Solution"), "problem"),
}


def __getattr__(name: str) -> Any:
    if name in ("api", "zoo"):
        return importlib.import_module(f"loadmaster.{name}")
    if name == "open":
        return importlib.import_module("loadmaster.api").open_plan
    if name in _HOME:
        return getattr(importlib.import_module(f"loadmaster.{_HOME[name]}"), name)
    raise AttributeError(f"module 'loadmaster' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
