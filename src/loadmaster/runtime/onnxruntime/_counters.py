"""What ONNX Runtime's profiler says about one device, inside the worker."""

from __future__ import annotations

import json
import math
import statistics
import time
from pathlib import Path
from typing import Any

from loadmaster.files import scratch_folder
from loadmaster.runtime._measuring import timed, undisturbed
from loadmaster.runtime.onnxruntime._executors import Devices, open_part
from loadmaster.runtime.onnxruntime._library import session
from loadmaster.runtime.onnxruntime._model import FlatModel

__all__ = ["read_counters", "shared_out"]

KERNEL = "_kernel_time"
"""How the events of the profiler end that say how long a node took."""
FEWEST, SKIPPED = 3, 3
"""Runs that will do where there is no time for more; and the first ones, which are slower."""
LAYOUT = "_nchwc"
"""What ONNX Runtime appends to the name of a tensor for the node that makes it in its own layout."""


def read_counters(
    model: FlatModel,
    devices: Devices,
    device: str,
    repeats: int,
    clock: str,
    seconds_left: float = math.inf,
) -> dict[str, Any]:
    """Seconds of every executed node, and what it was made of: as
    :func:`loadmaster.runtime.openvino._counters.read_counters` has it.

    The profiler cannot be switched on and off, so that its runs come after those that are timed. Both are fewer
    where they take more than half of ``seconds_left``.
    """
    end = time.monotonic() + seconds_left / 2
    part = model.whole(device)
    plain = open_part(part, devices)
    feed = {name: array for (name, _, _), array in zip(model.inputs, model.draw(0), strict=True)}
    feed = {name: feed[name] for _, name in part.inputs}

    # The profiler does not see that a device is slowed down; its times are scaled to these runs, which do.
    run = devices[device].paced(lambda: plain.run(part.outputs, feed))
    for _ in range(SKIPPED):
        run()
    wall: list[float] = []
    dropped = 0
    while len(wall) < repeats and dropped < 4 * repeats:
        if time.monotonic() >= end and (len(wall) >= FEWEST or dropped >= FEWEST):
            break
        sample = undisturbed(*timed(run), clock)
        if sample.clean:
            wall.append(sample.seconds)
        else:
            dropped += 1
    with scratch_folder() as folder:
        optimised = Path(folder) / "optimised.onnx"
        counting = session(
            part.content,
            devices[device],
            entries={
                "enable_profiling": True,
                "profile_file_prefix": str(Path(folder) / "profile"),
                "optimized_model_filepath": str(optimised),
            },
        )
        for _ in range(SKIPPED + max(FEWEST, len(wall))):
            counting.run(part.outputs, feed)
        events = json.loads(Path(counting.end_profiling()).read_text())
        nodes = _nodes(optimised)
    seconds: dict[str, list[float]] = {}
    for event in events:
        if event.get("cat") == "Node" and event["name"].endswith(KERNEL):
            seconds.setdefault(event["name"].removesuffix(KERNEL), []).append(event["dur"] * 1e-6)
    # The first runs are slower; the profiler knows nothing of other work, and the quickest run had least of it.
    typical = min if clock == "core" else statistics.median
    made_of = shared_out(model, nodes)
    makers = {name: node["name"] for node in nodes for name in node["outputs"]}
    readers: dict[str, set[str]] = {node["name"]: set() for node in nodes}
    for node in nodes:
        for name in node["inputs"]:
            if name in makers:
                readers[makers[name]].add(node["name"])
    return {
        "nodes": [
            {
                "name": node["name"],
                "kind": node["kind"],
                "seconds": typical(seconds.get(node["name"], [0.0])[SKIPPED:] or [0.0]),
                "originals": made_of[node["name"]],
                "readers": sorted(readers[node["name"]]),
            }
            for node in nodes
        ],
        "wall": wall,
        "dropped": dropped,
    }


def _nodes(path: Path) -> list[dict[str, Any]]:
    """Name, kind, inputs and outputs of every node that is executed."""
    import onnx

    model = onnx.load(str(path), load_external_data=False)
    return [
        {
            "name": node.name or f"{node.op_type} {number}",
            "kind": node.op_type,
            "inputs": list(node.input),
            "outputs": [name for name in node.output if name],
        }
        for number, node in enumerate(model.graph.node)
    ]


def shared_out(model: FlatModel, nodes: list[dict[str, Any]]) -> dict[str, list[str]]:
    """Executed node -> the ops that it was made of, the last of them first.

    The last op is the one that makes the node's output, or whose output or name the node is called after. With it go
    the ops before it that no other executed node stands for. A node of ONNX Runtime's own (a change of layout)
    has none.
    """
    graph = model.network.graph
    last: dict[str, str] = {}
    for node in nodes:
        op = _named_after(model, node)
        if op is not None and op not in last.values():
            last[node["name"]] = op
    taken = set(last.values())
    ptr, sources = graph.predecessors
    found: dict[str, list[str]] = {node["name"]: [] for node in nodes}
    for name, op in last.items():
        left, ops = [graph.index[op]], found[name]
        while left:
            v = left.pop()
            ops.append(graph.names[v])
            for u in sources[ptr[v] : ptr[v + 1]].tolist():
                if graph.names[u] not in taken and model.network.ports[u]:
                    taken.add(graph.names[u])
                    left.append(u)
    return found


def _named_after(model: FlatModel, node: dict[str, Any]) -> str | None:
    for name in node["outputs"]:
        if name in model.op_of:
            return model.op_of[name]
    name = node["name"].removesuffix(LAYOUT)
    if name in model.op_of:
        return model.op_of[name]
    known = model.network.graph.index
    while name:
        if name in known:
            return name
        name = name.rpartition("/")[0] if "/" in name else ""
    return None
