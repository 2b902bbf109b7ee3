"""Bounds on ``pipeline``: largest op, load dual, with transfers where they add to the load."""

from __future__ import annotations

import math

import numpy as np

from loadmaster.arrays import BoolArray, FloatArray
from loadmaster.problem._model import Pipeline
from loadmaster.problem._problem import Problem
from loadmaster.problem.bounds._bound import Bound
from loadmaster.problem.bounds._crowding import crowding
from loadmaster.problem.bounds._load_dual import load_dual, tightened
from loadmaster.problem.bounds._serial import Links, transfer_dual
from loadmaster.problem.bounds._view import View, class_sums, class_tensors

__all__ = ["pipeline_bounds"]


def pipeline_bounds(problem: Problem, view: View) -> list[Bound]:
    """Loads: what no division of the work gets below, and what a single class brings wherever it goes.

    Compute is part of every load, so the dual of compute alone always holds, as do single classes with the
    transfers that they cannot avoid. ``"fw+bw"``, max_d FW_d + max_d BW_d, is at least max_d (FW_d + BW_d).
    """
    model = problem.model
    assert isinstance(model, Pipeline)
    forced = _forced_transfers(problem, view)
    through = view.cost + forced if model.comm == "sum" else np.maximum(view.cost, forced)
    flush = _Flush(problem, view) if model.objective == "fw+bw" else None
    weight: FloatArray | None = None

    def compute(left: BoolArray) -> float:
        nonlocal weight
        value, weight = load_dual(np.where(left, view.cost, math.inf), view.number, weight)
        return value if flush is None else max(value, flush.bound(left))

    def loads(left: BoolArray) -> float:
        value = compute(left)
        if model.comm == "overlap":
            return value
        assert weight is not None
        unary = np.where(left, np.where(left, view.cost, 0.0) * weight, math.inf)
        return max(value, transfer_dual(problem, view, unary, _weighted_links(problem, view, weight)))

    everything = np.isfinite(through)
    bounds = [
        Bound(float(through.min(axis=1).max()), "largest op"),
        Bound(load_dual(view.cost, view.number)[0], "load dual"),
    ]
    if flush is not None:
        bounds.append(Bound(compute(everything), "forward and backward"))
    if model.comm == "sum":
        bounds.append(Bound(loads(everything), "load dual and transfers"))
    bounds.append(Bound(crowding(view.cost, through, view.number), "crowding"))
    best = max(bound.value for bound in bounds)
    return [*bounds, Bound(tightened(through, loads, best), "pruned load dual")]


def _forced_transfers(problem: Problem, view: View) -> FloatArray:
    """(C, K) seconds that class c on kind k sends to and receives from classes that may not be on k."""
    tensor, own, reader = class_tensors(problem, view)
    forced = np.zeros_like(view.cost)
    for k, kind in enumerate(view.kinds):
        apart = np.isinf(view.cost[:, k])
        taken = apart[own]
        receive = (
            problem.recv_latency[kind].min() + problem.size[tensor[taken]] * problem.recv_rate[kind].min()
        )
        forced[:, k] += np.bincount(reader[taken], receive, len(forced))
        given = np.unique(tensor[apart[reader]])
        send = problem.send_latency[kind].min() + problem.size[given] * problem.send_rate[kind].min()
        forced[:, k] += np.bincount(view.of[problem.graph.tensor_producer[given]], send, len(forced))
    return forced


def _weighted_links(problem: Problem, view: View, weight: FloatArray) -> Links:
    """What a transfer adds to the weighted sum of all loads."""

    def least(*tables: FloatArray) -> FloatArray:
        return weight * np.array([[table[kind].min() for kind in view.kinds] for table in tables])

    return Links.sums(
        least(problem.send_latency, problem.send_rate), least(problem.recv_latency, problem.recv_rate)
    )


class _Flush:
    """max_d FW_d + max_d BW_d: forward and backward apart, with weights of their own."""

    def __init__(self, problem: Problem, view: View) -> None:
        self.number = view.number
        self.cost = []
        for side in (~problem.graph.backward, problem.graph.backward):
            time = np.where(side[:, None] | np.isinf(view.time), view.time, 0.0)
            self.cost.append(class_sums(view.of, time))
        self.weight: list[FloatArray | None] = [None, None]

    def bound(self, left: BoolArray) -> float:
        """The sum of a bound on each side, or both duals under one minimum per class: more than their sum.

        Σ_c min_k (w_k FW_ck + u_k BW_ck) holds for any two sets of weights w and u, as each mean is at most
        its max.
        """
        apart, joint = 0.0, np.zeros_like(left, np.float64)
        for i in range(2):
            cost = np.where(left, self.cost[i], math.inf)
            value, weight = load_dual(cost, self.number, self.weight[i])
            self.weight[i] = weight
            apart += max(value, float(cost.min(axis=1).max()))
            joint += np.where(left, weight * np.where(left, cost, 0.0), math.inf)
        return max(apart, float(joint.min(axis=1).sum()))
