"""Problem files: a whole problem as one JSON object, costs included."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from loadmaster.errors import InputError
from loadmaster.files import Record, named, shown
from loadmaster.graph import GraphBuilder
from loadmaster.hardware import Cluster, Device
from loadmaster.problem._model import ExecutionModel, named_model
from loadmaster.problem._problem import Problem
from loadmaster.problem._tie import Tie

__all__ = ["FORMAT", "dump_problem", "is_problem", "parse_problem"]

FORMAT = "loadmaster-problem/1"


def is_problem(data: Any) -> bool:
    """Whether parsed JSON looks like a problem file."""
    return isinstance(data, dict) and str(data.get("format", "")).startswith("loadmaster-problem/")


def parse_problem(data: Any, source: str, model: ExecutionModel) -> Problem:
    """A problem from parsed JSON; ``source`` is named in errors, ``model`` is for files that name none.

    Beyond the required fields an op may have ``type``, ``resident`` (bytes; default: its memory), ``kept`` (bytes;
    default: 0), ``backward`` and ``boundary`` (default: false), a tensor ``bytes`` (default: its size), and the file
    ``forbids`` (op -> list of devices), ``ties`` (ops, size, memory) and ``model`` (``"pipeline:chain"``).
    """
    record = Record(data, source)
    if record.text("format") != FORMAT:
        raise InputError(
            f"{source}: format is {shown(record.value['format'])}, but this version reads {FORMAT!r}"
        )
    if "model" in record:
        with named(source):
            model = named_model(record.text("model"))
    devices = tuple(
        Device(
            device.text("name"),
            device.text("kind"),
            math.inf if device.value.get("capacity") is None else device.number("capacity"),
        )
        for device in record.records("devices")
    )
    size = len(devices)
    builder = GraphBuilder(record.text("name", source.rsplit("/", 1)[-1].removesuffix(".json")))
    time, memory, resident, kept = [], [], [], []
    for op in record.records("ops"):
        name = op.text("name")
        op.where = f"{source}: op {name!r}"
        memory.append(op.number("memory", 0.0))
        resident.append(op.number("resident", memory[-1]))
        kept.append(op.number("kept", 0.0))
        builder.op(
            name,
            op.text("type", ""),
            param_bytes=resident[-1],
            backward=op.flag("backward", False),
            boundary=op.flag("boundary", False),
        )
        row = op.items("time")
        if len(row) != size:
            raise InputError(f"{op.where}: 'time' must have {size} entries, one per device, not {len(row)}")
        time.append([math.inf if x is None else Record({"time": x}, op.where).number("time") for x in row])
    sizes = []
    for tensor in record.records("tensors"):
        sizes.append(tensor.number("size"))
        consumers = [_op(tensor, u, builder) for u in tensor.items("consumers")]
        producer = _op(tensor, tensor.get("producer"), builder)
        builder.tensor(producer, bytes=tensor.number("bytes", sizes[-1]), consumers=consumers)
    graph = builder.build()
    pins = Record(record.value.get("pins", {}), f"{source}: pins")
    forbids = Record(record.value.get("forbids", {}), f"{source}: forbids")
    cluster = Cluster("given", devices)
    return Problem.make(
        graph,
        cluster,
        model,
        time=np.array(time, np.float64).reshape(graph.n, size),
        size=sizes,
        latency=record.matrix("latency", (size, size)),
        rate=record.matrix("rate", (size, size)),
        send_latency=record.matrix("send_latency", (size,)),
        send_rate=record.matrix("send_rate", (size,)),
        recv_latency=record.matrix("recv_latency", (size,)),
        recv_rate=record.matrix("recv_rate", (size,)),
        memory=memory,
        resident=resident,
        colocation=[[_op(record, v, builder) for v in group] for group in record.lists("colocation")],
        pins={_op(pins, op, builder): _device(pins, d, cluster) for op, d in pins.value.items()},
        forbids=[
            (_op(forbids, op, builder), _device(forbids, d, cluster))
            for op in forbids.value
            for d in forbids.items(op)
        ],
        kept=kept if any(kept) else None,
        ties=[
            Tie(
                tuple(_op(tie, v, builder) for v in tie.items("ops")),
                tie.number("size"),
                tie.number("memory", tie.number("size")),
            )
            for tie in (record.records("ties") if "ties" in record.value else ())
        ],
        provenance="imported",
    )


def _op(record: Record, value: Any, builder: GraphBuilder) -> int:
    """An op given by index (also as a string, for JSON keys) or by name."""
    if isinstance(value, str) and value in builder.index:
        return builder.index[value]
    number = int(value) if isinstance(value, str) and value.isdecimal() and len(value) < 20 else value
    if isinstance(number, bool) or not isinstance(number, int) or not 0 <= number < len(builder):
        raise InputError(f"{record.where}: {shown(value)} is not an op")
    return number


def _device(record: Record, value: Any, cluster: Cluster) -> int:
    """A device given by index or by name."""
    if isinstance(value, str) and value in cluster.index:
        return cluster.index[value]
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < len(cluster):
        raise InputError(f"{record.where}: {shown(value)} is not a device")
    return value


def dump_problem(problem: Problem) -> dict[str, Any]:
    """The problem as plain lists and dicts; :func:`parse_problem` gives it back (but for the execution model)."""
    graph = problem.graph
    ptr, member = problem.members
    groups = [member[ptr[c] : ptr[c + 1]].tolist() for c in range(problem.classes)]
    return {
        "format": FORMAT,
        "name": graph.name,
        "ops": [
            {
                "name": graph.names[v],
                "type": graph.op_types[v],
                "time": [None if math.isinf(x) else x for x in problem.time[v].tolist()],
                "memory": float(problem.memory[v]),
                "resident": float(problem.resident[v]),
                **({} if problem.kept is None else {"kept": float(problem.kept[v])}),
                "backward": bool(graph.backward[v]),
                **({"boundary": True} if graph.boundary[v] else {}),
            }
            for v in range(problem.n)
        ],
        "tensors": [
            {
                "producer": int(graph.tensor_producer[t]),
                "consumers": graph.consumers(t).tolist(),
                "size": float(problem.size[t]),
                "bytes": float(graph.tensor_bytes[t]),
            }
            for t in range(graph.tensors)
        ],
        "devices": [
            {"name": d.name, "kind": d.kind, "capacity": None if math.isinf(c) else c}
            for d, c in zip(problem.cluster.devices, problem.capacity.tolist(), strict=True)
        ],
        **{
            key: getattr(problem, key).tolist()
            for key in ("latency", "rate", "send_latency", "send_rate", "recv_latency", "recv_rate")
        },
        "colocation": [group for group in groups if len(group) > 1],
        **(
            {"ties": [{"ops": list(tie.ops), "size": tie.size, "memory": tie.memory} for tie in problem.ties]}
            if problem.ties
            else {}
        ),
        "pins": {str(v): int(d) for v, d in enumerate(problem.pin.tolist()) if d >= 0},
        "forbids": {
            str(v): np.flatnonzero(row).tolist() for v, row in enumerate(problem.forbidden) if row.any()
        },
    }
