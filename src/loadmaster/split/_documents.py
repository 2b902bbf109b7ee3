"""What ``loadmaster split`` prints, as plain values."""

from __future__ import annotations

from typing import Any

import numpy as np

from loadmaster.plan import finite
from loadmaster.problem import Evaluation
from loadmaster.split._job import Split

__all__ = ["split_document"]


def split_document(found: Split) -> dict[str, Any]:
    """Stages, the step, its bubble, bound and gap, and what the rules give in the same simulation."""
    problem, solution, evaluation = found.problem, found.solution, found.evaluation
    return {
        "model": found.capture.name,
        "training": found.capture.training,
        "ranks": problem.devices,
        "microbatches": found.model.microbatches,
        "schedule": found.model.schedule,
        "layers": len(found.units),
        "costs": problem.provenance,
        "step": finite(solution.cost),
        "bubble": finite(bubble(evaluation)),
        "bound": finite(solution.bound),
        "bound_by": solution.bound_by,
        "gap": finite(solution.gap),
        "optimal": solution.optimal,
        "method": solution.method,
        "found_by": solution.found_by or solution.method,
        "stopped": solution.stopped,
        "feasible": evaluation.feasible,
        "stages": _stages(found, evaluation),
        "rules": {rule: _rule(found, entry) for rule, entry in found.rules.items()},
    }


def bubble(evaluation: Evaluation) -> float:
    """The share of all ranks' time in a step in which they neither compute nor send nor receive.

    Only ranks that have a stage count.
    """
    used = np.array([stage.device for stage in evaluation.stages])
    if not len(used) or not evaluation.cost > 0:
        return float("nan")
    used = np.unique(used)
    return float(1 - evaluation.busy[used].sum() / (len(used) * evaluation.cost))


def _stages(found: Split, evaluation: Evaluation) -> list[dict[str, Any]]:
    problem = found.problem
    rows = []
    for number, stage in enumerate(evaluation.stages):
        ops = [v for v in stage.ops if found.layers[v] and not problem.graph.backward[v]]
        ops.sort(key=lambda v: problem.graph.position[v])
        names = list(dict.fromkeys(found.layers[v] for v in ops))
        rows.append(
            {
                "stage": number,
                "rank": problem.cluster.names[stage.device],
                "first": names[0] if names else "",
                "last": names[-1] if names else "",
                "layers": len(names),
                "parameters": float(problem.graph.param_bytes[list(stage.ops)].sum()),
                "forward": stage.forward,
                "backward": stage.backward,
                "in_flight": stage.in_flight,
                "sends": _sent(evaluation, number),
                "memory": float(evaluation.memory[stage.device]),
                "limit": finite(float(problem.capacity[stage.device])),
            }
        )
    return rows


def _sent(evaluation: Evaluation, stage: int) -> float:
    """Bytes per microbatch to the next stage."""
    after = evaluation.stages[stage + 1 : stage + 2]
    return after[0].receives if after else 0.0


def _rule(found: Split, entry: Any) -> dict[str, Any]:
    if isinstance(entry, str):
        return {"step": None, "why": entry}
    _, evaluation = entry
    ratio = evaluation.cost / found.solution.cost if found.solution.cost > 0 else float("nan")
    return {
        "step": finite(evaluation.cost),
        "ratio": finite(ratio),
        "bubble": finite(bubble(evaluation)),
        "feasible": evaluation.feasible,
        "why": evaluation.violations[0].text if evaluation.violations else "",
        "stages": [
            {
                "forward": row["forward"],
                "backward": row["backward"],
                "first": row["first"],
                "last": row["last"],
            }
            | {"memory": row["memory"]}
            for row in _stages(found, evaluation)
        ],
    }
