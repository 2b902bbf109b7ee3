"""Results as plain JSON values: the contract that scripts rely on. Seconds and bytes; null where not finite.

What ``place`` prints is :func:`loadmaster.plan.solution_document`.
"""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import numpy as np

from loadmaster.errors import NoPlacementError
from loadmaster.hardware import ORIGINS
from loadmaster.plan import finite, placement_document
from loadmaster.problem import (
    OPTIMAL_GAP,
    Evaluation,
    Offload,
    Pipeline,
    Placement,
    Problem,
    SimulatedEvaluator,
    relative_gap,
)
from loadmaster.problem.bounds import all_bounds, lower_bound
from loadmaster.problem.coarsening import Coarsening

__all__ = ["coarsening_document", "evaluation_document", "failure_document", "problem_document", "to_json"]


def to_json(document: Any) -> str:
    """The text of a document; NaN and Infinity in it are a programming error."""
    return json.dumps(document, indent=2, allow_nan=False)


def evaluation_document(
    problem: Problem, placement: Placement, evaluation: Evaluation, *, whole: bool = True
) -> dict[str, Any]:
    """What ``evaluate`` prints; not ``whole``: only what is said of the devices, not of every op and transfer."""
    names = problem.cluster.names

    def per_device(values: Any) -> dict[str, float | None]:
        return {name: finite(value) for name, value in zip(names, values.tolist(), strict=True)}

    return {
        "cost": finite(evaluation.cost),
        "feasible": evaluation.feasible,
        "why": evaluation.why,
        **(_quality(problem, evaluation) if whole else {}),
        "model": problem.model.name,
        "settings": problem.model.settings,
        "devices": _devices(problem),
        "load": per_device(evaluation.load),
        "busy": per_device(evaluation.busy),
        "comm": per_device(evaluation.comm),
        "memory": per_device(evaluation.memory),
        "peak": None if evaluation.peak is None else per_device(evaluation.peak),
        "violations": [
            {
                "kind": violation.kind,
                "text": violation.text,
                "ops": [problem.graph.names[v] for v in violation.ops],
                "device": None if violation.device is None else names[violation.device],
            }
            for violation in evaluation.violations
        ],
        "transfers": _transfers(problem, placement, evaluation) if whole else [],
        "calls": [
            {
                "device": names[call.device],
                "ops": [problem.graph.names[v] for v in call.ops],
                "start": finite(call.start),
                "end": finite(call.end),
            }
            for call in evaluation.calls
        ],
        "schedule": _schedule(problem, placement, evaluation) if whole else None,
        **_step(problem, evaluation),
        **placement_document(problem, placement),
    }


def _step(problem: Problem, evaluation: Evaluation) -> dict[str, Any]:
    """Of one step of microbatches: its stages, what they do when, and how much of the time the ranks are idle."""
    model, names = problem.model, problem.cluster.names
    if not isinstance(model, Pipeline) or not model.microbatches:
        return {}
    ranks = {stage.device for stage in evaluation.stages}
    busy = sum(float(evaluation.busy[d]) for d in ranks)
    whole = evaluation.cost * len(ranks)
    return {
        "bubble": 1.0 - busy / whole if whole > 0 and np.isfinite(whole) else None,
        "stages": [
            {
                "stage": number,
                "device": names[stage.device],
                "ops": [problem.graph.names[v] for v in stage.ops],
                "forward": finite(stage.forward),
                "backward": finite(stage.backward),
                "in_flight": stage.in_flight,
                "kept": stage.kept,
                "checkpoint": stage.checkpoint,
                "receives": stage.receives,
                "returns": stage.returns,
            }
            for number, stage in enumerate(evaluation.stages)
        ],
        "actions": [
            {
                "device": names[action.device],
                "stage": action.stage,
                "microbatch": action.microbatch,
                "pass": "backward" if action.backward else "forward",
                "start": action.start,
                "end": action.end,
            }
            for action in evaluation.actions
        ],
        "messages": [
            {
                "from": names[message.source],
                "to": names[message.target],
                "stage": message.stage,
                "microbatch": message.microbatch,
                "pass": "backward" if message.backward else "forward",
                "start": message.start,
                "end": message.end,
            }
            for message in evaluation.messages
        ],
        "reduced": [finite(end) for end in evaluation.reduced],
    }


def _quality(problem: Problem, evaluation: Evaluation) -> dict[str, Any]:
    """How good the placement is known to be; a broken constraint leaves nothing to compare."""
    bound = lower_bound(problem)
    gap = relative_gap(evaluation.cost, bound.value) if evaluation.feasible else None
    return {
        "bound": finite(bound.value),
        "bound_by": bound.name,
        "gap": gap,
        "optimal": gap is not None and gap <= OPTIMAL_GAP,
    }


def _devices(problem: Problem) -> list[dict[str, str]]:
    return [{"name": device.name, "kind": device.kind} for device in problem.cluster.devices]


def _transfers(problem: Problem, placement: Placement, evaluation: Evaluation) -> list[dict[str, Any]]:
    """One entry per tensor and destination device.

    ``pipeline`` and ``offload`` book communication on the devices, not in time: there ``seconds`` is what the
    receiving device pays; the sender pays too, once per tensor.
    """
    graph, names = problem.graph, problem.cluster.names

    def entry(
        tensor: int, source: int, target: int, start: float | None, end: float | None, seconds: float
    ) -> dict[str, Any]:
        return {
            "op": graph.names[graph.tensor_producer[tensor]],
            "tensor": tensor,
            "from": names[source],
            "to": names[target],
            "start": start,
            "end": end,
            "seconds": seconds,
        }

    if isinstance(problem.model, Pipeline) and problem.model.microbatches:
        return []  # they go in messages, hop by hop
    if not isinstance(problem.model, Pipeline | Offload):
        return [
            entry(t.tensor, t.source, t.target, t.start, t.end, t.end - t.start) for t in evaluation.transfers
        ]
    device = placement.device
    source, target = device[graph.tensor_producer[graph.edge_tensor]], device[graph.consumer_op]
    cut = np.flatnonzero(source != target)
    found = np.unique(np.stack([graph.edge_tensor[cut], source[cut], target[cut]], axis=1), axis=0)
    seconds = problem.recv_latency[found[:, 2]] + problem.size[found[:, 0]] * problem.recv_rate[found[:, 2]]
    return [
        entry(t, a, b, None, None, s) for (t, a, b), s in zip(found.tolist(), seconds.tolist(), strict=True)
    ]


def _schedule(problem: Problem, placement: Placement, evaluation: Evaluation) -> list[dict[str, Any]] | None:
    """Start and end of every op in the order of starting; None where there is no schedule."""
    if evaluation.start is None or evaluation.end is None:
        return None
    names, device = problem.cluster.names, placement.device
    return [
        {
            "op": problem.graph.names[v],
            "device": names[device[v]],
            "start": float(evaluation.start[v]),
            "end": float(evaluation.end[v]),
        }
        for v in np.lexsort((problem.graph.position, evaluation.start)).tolist()
    ]


def failure_document(problem: Problem, method: str, error: NoPlacementError, *, seed: int) -> dict[str, Any]:
    """What ``compare`` prints for a method that finds nothing: a ``place`` object without a placement."""
    return {
        "cost": None,
        "bound": None,
        "bound_by": None,
        "gap": None,
        "optimal": False,
        "feasible": False,
        "why": [str(error)],
        "model": problem.model.name,
        "settings": problem.model.settings,
        "method": method,
        "seed": seed,
        "seconds": None,
        "evaluations": None,
        "devices": _devices(problem),
        "placement": None,
    }


def problem_document(problem: Problem) -> dict[str, Any]:
    """What ``inspect`` prints."""
    graph = problem.graph
    levels = graph.levels
    return {
        "name": graph.name,
        "hash": graph.digest,
        "ops": graph.n,
        "tensors": graph.tensors,
        "edges": graph.edges,
        "levels": int(levels.max()) + 1 if graph.n else 0,
        "width": int(np.bincount(levels).max()) if graph.n else 0,
        "backward_ops": int(graph.backward.sum()),
        "op_types": dict(Counter(kind or "unknown" for kind in graph.op_types).most_common()),
        "flops": float(graph.flops.sum()),
        "memory": float(problem.memory.sum()),
        "tensor_bytes": float(graph.tensor_bytes.sum()),
        "colocated_ops": int((np.bincount(problem.class_of)[problem.class_of] > 1).sum()) if graph.n else 0,
        "pinned_ops": int((problem.pin >= 0).sum()),
        "model": problem.model.name,
        "settings": problem.model.settings,
        "costs_from": problem.provenance,
        "origins": _origins(problem),
        "devices": _single_devices(problem),
        "bounds": {bound.name: finite(bound.value) for bound in all_bounds(problem)},
    }


def coarsening_document(coarsening: Coarsening) -> dict[str, Any]:
    """What ``inspect --coarsen`` adds: how many groups there are, and what is left between them."""
    graph = coarsening.coarse.graph
    size = np.bincount(coarsening.group_of) if coarsening.fine.n else np.zeros(1, np.int64)
    return {
        "rules": list(coarsening.rules),
        "groups": graph.n,
        "tensors": graph.tensors,
        "edges": graph.edges,
        "largest": int(size.max()),
    }


def _origins(problem: Problem) -> dict[str, dict[str, int]] | None:
    """Device -> how many of its op times were estimated, imported or measured; None where it is not known."""
    if problem.origin is None:
        known = problem.provenance in ORIGINS
        return {name: {problem.provenance: problem.n} for name in problem.cluster.names} if known else None
    counts = [np.bincount(problem.origin[:, d], minlength=len(ORIGINS)) for d in range(problem.devices)]
    return {
        name: {origin: int(count[i]) for i, origin in enumerate(ORIGINS) if count[i]}
        for name, count in zip(problem.cluster.names, counts, strict=True)
    }


def _single_devices(problem: Problem) -> list[dict[str, Any]]:
    """Every device with what it costs to run everything on it alone, but for what is pinned elsewhere."""
    everywhere = np.repeat(np.arange(problem.devices, dtype=np.int32)[:, None], problem.n, axis=1)
    everywhere = np.where(problem.pin >= 0, problem.pin, everywhere)
    cost, feasible = SimulatedEvaluator(problem).evaluate_batch(everywhere)
    return [
        {
            "name": device.name,
            "kind": device.kind,
            "capacity": finite(problem.capacity[d]),
            "supported_ops": int(np.isfinite(problem.time[:, d]).sum()),
            "cost_alone": finite(cost[d]),
            "feasible_alone": bool(feasible[d]),
        }
        for d, device in enumerate(problem.cluster.devices)
    ]
