"""Lower bounds: what no feasible placement can beat, whatever its ``order`` or ``call``.

Every bound is a relaxation of the problem's own execution model (``docs/bounds.md`` explains them to users):

- ``serial``: every op on its fastest device; the same with transfers, a Lagrangian dual of the labelling
  problem.
- ``concurrent``, ``offload``: the longest path over pairs (op, device), on which ops that must share a device
  queue; the load dual; both together over windows of the schedule.
- ``pipeline`` with microbatches: the way of one microbatch through all stages together with the load dual.
- ``pipeline``: the load dual, with transfers where they add to the load; the largest colocation class; more heavy
  classes than devices.

The parameters of a bound (device weights, messages, windows) are searched for as long as that is cheap. Any
value of theirs gives a valid bound: stopping early costs tightness, never validity. Contiguity,
``max_calls`` and memory are relaxed, except that a class never goes where it alone does not fit, and for the
crowded critical path of ``offload``. Devices
that are alike in every respect are one *kind* with a count; k, j, a and b below are kinds. An op which no
device may run (the problem is then infeasible) counts as free everywhere.
"""

from __future__ import annotations

from loadmaster.problem._model import Concurrent, Offload, Pipeline, Serial
from loadmaster.problem._problem import Problem
from loadmaster.problem.bounds._apart import NOWHERE, Apart
from loadmaster.problem.bounds._bound import EPS, Bound
from loadmaster.problem.bounds._crowding import each_has_its_own
from loadmaster.problem.bounds._glance import Glances, glance
from loadmaster.problem.bounds._ignored import ignored_by
from loadmaster.problem.bounds._linear import linear_bound
from loadmaster.problem.bounds._load_dual import load_dual
from loadmaster.problem.bounds._pipeline import pipeline_bounds
from loadmaster.problem.bounds._schedule import Paths, placed_paths, schedule_bounds
from loadmaster.problem.bounds._serial import serial_bounds
from loadmaster.problem.bounds._step import step_bounds
from loadmaster.problem.bounds._view import View, class_tensors, view_of

__all__ = [
    "NOWHERE",
    "Apart",
    "Bound",
    "Glances",
    "Paths",
    "View",
    "all_bounds",
    "class_tensors",
    "each_has_its_own",
    "glance",
    "ignored_by",
    "linear_bound",
    "load_dual",
    "lower_bound",
    "placed_paths",
    "view_of",
]


def lower_bound(problem: Problem) -> Bound:
    """The best of :func:`all_bounds`; computed once per problem.

    >>> from loadmaster.graph import layered
    >>> from loadmaster.hardware import accelerators, roofline
    >>> graph, cluster = layered(20), accelerators(1, cpus=0)
    >>> problem = Problem.make(graph, cluster, Serial(), time=roofline(graph, cluster))
    >>> float(round(lower_bound(problem).value / problem.time.sum(), 9))
    1.0
    """
    return max(all_bounds(problem), key=lambda bound: bound.value)


def all_bounds(problem: Problem) -> tuple[Bound, ...]:
    """Every bound that applies to the problem's execution model and settings, simple ones first.

    Values are rounded towards zero by more than floating point can have added to them. Complexity: near
    linear in ops and edges; times are in ``docs/bounds.md``.
    """
    return problem.derived(_all_bounds)


def _all_bounds(problem: Problem) -> tuple[Bound, ...]:
    return tuple(_rounded_down(problem, bound) for bound in _bounds(problem))


def _rounded_down(problem: Problem, bound: Bound) -> Bound:
    """Sums of non-negative numbers have a relative error below eps times the number of their terms."""
    slack = 2 * EPS * (2 * problem.n + problem.graph.edges + 2 * problem.devices + 32)
    return Bound(max(0.0, bound.value * (1.0 - slack)), bound.name)


def _bounds(problem: Problem) -> list[Bound]:
    view = view_of(problem)
    if view is None:
        return [Bound(0.0, "nothing to run")]
    match problem.model:
        case Serial():
            return serial_bounds(problem, view)
        case Pipeline(microbatches=microbatches) if microbatches:
            return step_bounds(problem, view)
        case Pipeline():
            return pipeline_bounds(problem, view)
        case Concurrent() | Offload():
            return schedule_bounds(problem, view)
    raise TypeError(f"{problem.model!r} is not an execution model")
