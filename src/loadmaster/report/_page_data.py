"""What the page of a report draws, packed: one header of JSON and one block of arrays, deflated."""

from __future__ import annotations

import base64
import json
import math
import struct
import zlib
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from loadmaster.problem import Evaluation, Placement, Problem
from loadmaster.report._critical import Step, critical_path
from loadmaster.report._groups import scope_groups
from loadmaster.report._layout import layered_layout
from loadmaster.report._moves import move_costs
from loadmaster.report._palette import device_colours

__all__ = ["pack", "page_data"]

GROUP_ABOVE = 8000
"""Graphs of more ops are drawn as groups that open."""
CELL = (150.0, 60.0)
NODE = (126.0, 36.0)
"""Width and height of an op with and without the space around it, in the page's units."""
GROUP_CELL = (340.0, 210.0)
GROUP_BOX = (290.0, 150.0)
TYPES = {"f4": "<f4", "i4": "<i4", "u1": "|u1"}

Array = npt.NDArray[Any]


def page_data(
    problem: Problem,
    placement: Placement,
    evaluation: Evaluation,
    *,
    bound: float,
    measured: Mapping[str, Any] | None = None,
    effort: int | None = None,
) -> tuple[dict[str, Any], dict[str, Array]]:
    """The header and the arrays of one placement; seconds and bytes."""
    graph = problem.graph
    steps = critical_path(problem, placement, evaluation)
    limit = {} if effort is None else {"effort": effort}
    moved = move_costs(problem, placement, classes=_important_first(problem, evaluation, steps), **limit)
    types = {kind: i for i, kind in enumerate(sorted(set(graph.op_types)))}
    arrays: dict[str, Array] = {
        "device": placement.device.astype(np.int32),
        "type": np.array([types[kind] for kind in graph.op_types], np.int32),
        "time": problem.time.ravel(),
        "move": (moved - evaluation.cost).ravel(),
        "allowed": problem.class_allowed[problem.class_of].astype(np.uint8).ravel(),
        "pin": problem.pin,
        "class": problem.class_of,
        "memory": problem.memory,
        "flops": graph.flops,
        "producer": graph.tensor_producer,
        "bytes": graph.tensor_bytes,
        "consumerPtr": graph.consumer_ptr,
        "consumer": graph.consumer_op,
    }
    header: dict[str, Any] = {
        "name": graph.name,
        "names": list(graph.names),
        "types": list(types),
        "model": problem.model.name,
        "devices": [
            {"name": device.name, "kind": device.kind, "colour": colour}
            for device, colour in zip(problem.cluster.devices, device_colours(problem.devices), strict=True)
        ],
        "cost": _number(evaluation.cost),
        "bound": _number(bound),
        "busy": [_number(x) for x in evaluation.busy.tolist()],
        "comm": [_number(x) for x in evaluation.comm.tolist()],
        "load": [_number(x) for x in evaluation.load.tolist()],
        "node": NODE,
        "critical": [[step.kind, step.index, step.because] for step in steps],
        "actions": [
            [a.device, a.stage, a.microbatch, int(a.backward), a.start, a.end] for a in evaluation.actions
        ],
        "messages": [
            [m.source, m.target, m.stage, m.microbatch, int(m.backward), m.start, m.end]
            for m in evaluation.messages
        ],
        "calls": [[call.device, list(call.ops), call.start, call.end] for call in evaluation.calls],
    }
    if evaluation.start is not None and evaluation.end is not None:
        arrays["start"], arrays["end"] = evaluation.start, evaluation.end
        log = evaluation.transfers
        arrays["moved"] = np.array([(t.tensor, t.source, t.target) for t in log], np.int32).ravel()
        arrays["movedSpan"] = np.array([(t.start, t.end) for t in log]).ravel()
    _add_measured(problem, measured, arrays)
    _add_places(problem, header, arrays)
    return header, arrays


def _important_first(problem: Problem, evaluation: Evaluation, steps: list[Step]) -> npt.NDArray[np.int64]:
    """Colocation classes: those on the critical path, then the others by their time."""
    weight = np.bincount(problem.class_of, problem.mean_time, problem.classes)
    critical = [step.index for step in steps if step.kind == "op"]
    critical += [v for step in steps if step.kind == "call" for v in evaluation.calls[step.index].ops]
    weight[problem.class_of[np.array(critical, np.int64)]] += weight.sum() + 1
    return np.argsort(-weight, kind="stable")


def _add_measured(problem: Problem, measured: Mapping[str, Any] | None, arrays: dict[str, Array]) -> None:
    """A measured schedule: ``measured["schedule"]`` holds op, start and end, as ``evaluate --json`` does."""
    schedule = (measured or {}).get("schedule")
    if not isinstance(schedule, list):
        return
    span = np.full((2, problem.n), np.nan)
    for entry in schedule:
        v = problem.graph.index.get(str(entry.get("op"))) if isinstance(entry, dict) else None
        if v is not None:
            span[:, v] = entry["start"], entry["end"]
    arrays["measuredStart"], arrays["measuredEnd"] = span


def _add_places(problem: Problem, header: dict[str, Any], arrays: dict[str, Array]) -> None:
    """Where every op is drawn; beyond ``GROUP_ABOVE`` ops inside the box of its group."""
    graph = problem.graph
    tail, head = graph.arcs
    if graph.n <= GROUP_ABOVE:
        layout = layered_layout(tail, head, graph.topological_order, cell=CELL[0] / CELL[1])
        arrays["x"], arrays["y"] = layout.x * CELL[0], layout.y * CELL[1]
        header["size"] = [layout.width * CELL[0], layout.height * CELL[1]]
        return
    group_of, names = scope_groups(graph.names, graph.position)
    groups = len(names)
    middle = np.bincount(group_of, graph.position, groups) / np.bincount(group_of, minlength=groups)
    between = group_of[tail] != group_of[head]
    key = group_of[tail[between]].astype(np.int64) * groups + group_of[head[between]]
    arc, count = np.unique(key, return_counts=True)
    group_tail, group_head = (arc // groups).astype(np.int32), (arc % groups).astype(np.int32)
    layout = layered_layout(
        group_tail,
        group_head,
        np.argsort(middle, kind="stable").astype(np.int32),
        cell=GROUP_CELL[0] / GROUP_CELL[1],
    )
    centre_x, centre_y = layout.x * GROUP_CELL[0], layout.y * GROUP_CELL[1]
    scale = _inner_places(problem, group_of, groups, centre_x, centre_y, arrays)
    arrays |= {
        "group": group_of,
        "groupX": centre_x,
        "groupY": centre_y,
        "groupScale": scale,
        "groupTail": group_tail,
        "groupHead": group_head,
        "groupCount": count,
    }
    header["groups"] = names
    header["box"] = GROUP_BOX
    header["size"] = [layout.width * GROUP_CELL[0], layout.height * GROUP_CELL[1]]


def _inner_places(
    problem: Problem, group_of: Array, groups: int, centre_x: Array, centre_y: Array, arrays: dict[str, Array]
) -> Array:
    """Places of the ops inside their boxes, and how much smaller than usual each group is drawn."""
    graph = problem.graph
    tail, head = graph.arcs
    x, y = np.empty(graph.n), np.empty(graph.n)
    scale = np.empty(groups)
    inner = np.flatnonzero(group_of[tail] == group_of[head])
    inner = inner[np.argsort(group_of[tail[inner]], kind="stable")]
    arc_ptr = np.searchsorted(group_of[tail[inner]], np.arange(groups + 1))
    members = np.lexsort((graph.position, group_of))
    ptr = np.searchsorted(group_of[members], np.arange(groups + 1))
    local = np.empty(graph.n, np.int32)
    room = GROUP_BOX[0] - 12, GROUP_BOX[1] - 34  # below the title
    for g in range(groups):
        ops = members[ptr[g] : ptr[g + 1]]
        local[ops] = np.arange(len(ops))
        arcs = inner[arc_ptr[g] : arc_ptr[g + 1]]
        layout = layered_layout(
            local[tail[arcs]],
            local[head[arcs]],
            np.arange(len(ops), dtype=np.int32),
            aspect=room[0] / room[1],
            cell=CELL[0] / CELL[1],
        )
        width, height = layout.width * CELL[0], layout.height * CELL[1]
        scale[g] = min(room[0] / width, room[1] / height, 1.0)
        x[ops] = centre_x[g] + (layout.x * CELL[0] - width / 2) * scale[g]
        y[ops] = centre_y[g] + 11 + (layout.y * CELL[1] - height / 2) * scale[g]
    arrays["x"], arrays["y"] = x, y
    return scale


def _number(value: float) -> float | None:
    return value if math.isfinite(value) else None


def pack(header: Mapping[str, Any], arrays: Mapping[str, Array]) -> str:
    """Base64 of the deflated block: length of the header, header, arrays; each begins at a multiple of 4.

    Whole numbers travel as 32 bits, flags as bytes, all else as 32-bit floats: enough to draw.
    """
    table, parts, offset = {}, [], 0
    for name, array in arrays.items():
        kind = "u1" if array.dtype == np.uint8 else "i4" if np.issubdtype(array.dtype, np.integer) else "f4"
        with np.errstate(over="ignore"):
            content = array.astype(TYPES[kind]).tobytes()
        table[name] = [kind, offset, len(array)]
        parts.append(content + bytes(-len(content) % 4))
        offset += len(parts[-1])
    text = json.dumps({**header, "arrays": table}, allow_nan=False, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 4)
    block = struct.pack("<I", len(text)) + text + b"".join(parts)
    return base64.b64encode(zlib.compress(block, 9)).decode("ascii")
