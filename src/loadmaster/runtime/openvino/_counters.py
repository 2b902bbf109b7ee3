"""Performance counters of one device, inside the worker."""

from __future__ import annotations

import math
import statistics
import time
from typing import Any

from loadmaster.runtime._measuring import timed, undisturbed
from loadmaster.runtime.openvino._devices import Devices
from loadmaster.runtime.openvino._inputs import draw_inputs

__all__ = ["read_counters"]


FEWEST = 3
"""Runs that will do where there is no time for more."""


def read_counters(
    model: Any, devices: Devices, device: str, repeats: int, clock: str, seconds_left: float = math.inf
) -> dict[str, Any]:
    """Seconds of every executed node, and what it was made of; after ``seconds_left`` with fewer repeats.

    Returns ``nodes``: a list of name, kind, seconds (median over undisturbed runs), the names of the original nodes,
    and the executed nodes that read its outputs; and ``wall``: undisturbed seconds of whole runs without counters.
    """
    end = time.monotonic() + seconds_left
    plain = devices.compile(model, device)
    counted = devices.compile(model, device, PERF_COUNT=True)
    request, counter = plain.create_infer_request(), counted.create_infer_request()
    # Counters do not see that a device is slowed down; they are scaled to these runs, which do.
    run = devices.specs[device].paced(request.infer)
    import openvino as ov

    tensors = [ov.Tensor(array) for array in draw_inputs(model, 0)]
    for at, tensor in enumerate(tensors):
        request.set_input_tensor(at, tensor)
        counter.set_input_tensor(at, tensor)
    for _ in range(3):
        run()
        counter.infer()
        if time.monotonic() >= end:
            break
    seconds: dict[str, list[float]] = {}
    wall: list[float] = []
    dropped = 0
    while len(wall) < repeats and dropped < 4 * repeats:
        if time.monotonic() >= end and (len(wall) >= FEWEST or dropped >= FEWEST):
            break
        sample = undisturbed(*timed(run), clock)
        counting = undisturbed(*timed(counter.infer), clock)
        if not (sample.clean and counting.clean):
            dropped += 1
            continue
        wall.append(sample.seconds)
        for entry in counter.profiling_info:
            seconds.setdefault(entry.node_name, []).append(entry.real_time.total_seconds())
    # Counters know nothing of other work: where it could not be dropped, the quickest run had least of it.
    typical = min if clock == "core" else statistics.median
    nodes = []
    for node in counted.get_runtime_model().get_ordered_ops():
        info, name = node.get_rt_info(), node.get_friendly_name()
        nodes.append(
            {
                "name": name,
                "kind": info["layerType"].astype(str),
                "seconds": typical(seconds.get(name, [0.0])),
                "originals": [x for x in info["originalLayersNames"].astype(str).split(",") if x],
                "readers": sorted(
                    {
                        port.get_node().get_friendly_name()
                        for output in node.outputs()
                        for port in output.get_target_inputs()
                    }
                ),
            }
        )
    return {"nodes": nodes, "wall": wall, "dropped": dropped}
