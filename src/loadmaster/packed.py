"""A whole problem packed into a plan or a profile, bit for bit, and unpacked as if a stranger had written it.

Arrays are compressed and in base64. A hash beside them finds damage, not malice, for anybody can compute it: so
everything that comes out goes through the checks that a builder's graph and a new problem go through, and
nothing is unpacked to more than the file can justify.
"""

from __future__ import annotations

import base64
import json
import math
import zlib
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, fields
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from loadmaster.errors import InputError
from loadmaster.files import Record, limit, parse_json, shown
from loadmaster.graph import Graph, check_graph
from loadmaster.hardware import ORIGINS, Cluster, Device, Link
from loadmaster.problem import ExecutionModel, Problem, Tie

__all__ = ["finite", "pack_problem", "plain", "unpack_problem"]

DTYPES = {"float64": "<f8", "int32": "<i4", "uint8": "|u1", "bool": "|b1"}
"""The types of arrays, always little-endian in the file."""
LONG = 2**22
"""Bytes beyond which arrays are compressed less, but faster."""
ROOM = 2**26
"""Bytes that a file may unpack to, however small it is."""
RATIO = 100
"""Beyond that, bytes per character of the packed text, up to the limit ``unpacked``. zlib reaches 1000, but not on
what describes a model."""


def finite(value: float) -> float | None:
    """The number, or None (JSON null) where it is infinite or undefined."""
    return float(value) if math.isfinite(value) else None


def plain(value: Any) -> Any:
    """Values as JSON has them: numbers, strings, lists, objects, null."""
    if isinstance(value, Mapping):
        return {str(key): plain(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [plain(entry) for entry in value]
    if isinstance(value, np.generic):
        return plain(value.item())
    if isinstance(value, float):
        return finite(value)
    return value if value is None or isinstance(value, bool | int | str) else str(value)


# -- packing -------------------------------------------------------------------------------------------------


def pack_problem(problem: Problem) -> dict[str, Any]:
    """The problem as JSON values; its execution model and the name of its graph stand elsewhere."""
    graph, cluster = problem.graph, problem.cluster
    labels = {"names": graph.names, "op_types": graph.op_types, "output_shapes": graph.output_shapes}
    return {
        "hash": problem.digest,
        "graph": {"labels": _pack(json.dumps(labels).encode()), "arrays": _pack_arrays(graph)},
        "arrays": _pack_arrays(problem),
        "surplus": list(problem.surplus),
        **(
            {"ties": [{"ops": list(tie.ops), "size": tie.size, "memory": tie.memory} for tie in problem.ties]}
            if problem.ties
            else {}
        ),
        "provenance": problem.provenance,
        "cluster": {
            "name": cluster.name,
            "host": cluster.host,
            "devices": [
                {field.name: plain(getattr(device, field.name)) for field in fields(device)}
                for device in cluster.devices
            ],
            "links": [
                [None if link is None else [link.latency, finite(link.bandwidth)] for link in row]
                for row in cluster.links
            ],
        },
    }


def _pack(content: bytes) -> str:
    level = (
        9 if len(content) <= LONG else 3
    )  # most of the time of writing a large plan, and a few per cent of its size
    return base64.b64encode(zlib.compress(content, level)).decode("ascii")


def _pack_arrays(owner: Graph | Problem) -> dict[str, Any]:
    packed = {}
    for field in fields(owner):
        array = getattr(owner, field.name)
        if field.name == "boundary" and not array.any():  # as in files from before there was such a thing
            continue
        if isinstance(array, np.ndarray):
            dtype = DTYPES[array.dtype.name]
            packed[field.name] = {
                "dtype": dtype,
                "shape": list(array.shape),
                "data": _pack(array.astype(dtype).tobytes()),
            }
    return packed


# -- unpacking -----------------------------------------------------------------------------------------------


def unpack_problem(packed: Record, name: str, model: ExecutionModel) -> Problem:
    """What :func:`pack_problem` packed.

    Raises
    ------
    InputError : something is missing, wrong, or larger than the file can justify.
    """
    room = _Room(packed)
    graph = _unpack_graph(Record(packed.get("graph"), f"{packed.where}: graph"), name, room)
    cluster = _unpack_cluster(Record(packed.get("cluster"), f"{packed.where}: cluster"))
    n, m, size = graph.n, graph.tensors, len(cluster)
    arrays = _Arrays(Record(packed.get("arrays"), f"{packed.where}: arrays"), room)
    floats = {
        "time": (n, size), "size": (m,), "latency": (size, size), "rate": (size, size),
        "send_latency": (size,), "send_rate": (size,), "recv_latency": (size,), "recv_rate": (size,),
        "memory": (n,), "capacity": (size,), "resident": (n,),
    }  # fmt: skip
    found = {key: arrays.get(key, "<f8", shape) for key, shape in floats.items()}
    found |= {key: arrays.get(key, "<i4", (n,)) for key in ("class_of", "pin")}
    found["forbidden"] = arrays.get("forbidden", "|b1", (n, size))
    if "kept" in arrays.record:
        found["kept"] = arrays.get("kept", "<f8", (n,))
    if "origin" in arrays.record:
        found["origin"] = arrays.get("origin", "|u1", (n, size))
        if (found["origin"] >= len(ORIGINS)).any():
            raise InputError(f"{arrays.record.where}: origin must be below {len(ORIGINS)}")
    arrays.reject_others()
    surplus = packed.items("surplus")
    if any(type(d) is not int for d in surplus):
        raise InputError(f"{packed.where}: 'surplus' must hold numbers of devices")
    ties = [_unpack_tie(tie) for tie in packed.records("ties")] if "ties" in packed.value else []
    return Problem(
        graph=graph,
        cluster=cluster,
        model=model,
        surplus=tuple(surplus),
        ties=tuple(ties),
        provenance=packed.text("provenance"),
        **found,
    )


def _unpack_tie(record: Record) -> Tie:
    ops = record.items("ops")
    if any(type(v) is not int for v in ops):
        raise InputError(f"{record.where}: 'ops' must hold numbers of ops")
    return Tie(tuple(ops), record.number("size"), record.number("memory"))


class _Room:
    """How much may still be unpacked."""

    def __init__(self, packed: Record) -> None:
        self.left = min(ROOM + RATIO * _text_length(packed.value), limit("unpacked"))

    def unpack(self, text: str, where: str, most: int | None = None) -> bytes:
        """The content of a packed text, of ``most`` bytes or as many as there is room for."""
        limit = self.left if most is None else min(most, self.left)
        try:
            unpacker = zlib.decompressobj()
            content = unpacker.decompress(base64.b64decode(text, validate=True), limit + 1)
        except (ValueError, zlib.error) as error:
            raise InputError(f"{where}: is not packed data ({error})") from None
        if len(content) > limit:
            raise InputError(f"{where}: unpacks to more than {limit:,} bytes")
        if not unpacker.eof:
            raise InputError(f"{where}: its packed data are truncated")
        self.left -= len(content)
        return content


def _text_length(value: Any) -> int:
    if isinstance(value, dict):
        return sum(map(_text_length, value.values()))
    return len(value) if isinstance(value, str) else 0


@dataclass
class _Arrays:
    """Packed arrays by name, each of which must have the type and the shape that its place asks for."""

    record: Record
    room: _Room

    def __post_init__(self) -> None:
        self._asked: set[str] = set()

    def get(self, name: str, dtype: str, shape: tuple[int | None, ...]) -> npt.NDArray[Any]:
        """An array of this machine's byte order; where the shape says None, any length will do."""
        self._asked.add(name)
        entry = Record(self.record.get(name), f"{self.record.where}: {name}")
        if entry.text("dtype") != dtype:
            raise InputError(f"{entry.where}: dtype must be {dtype!r}, not {shown(entry.text('dtype'))}")
        given = entry.items("shape")
        fits = len(given) == len(shape) and all(
            type(x) is int and x >= 0 and wanted in (None, x) for x, wanted in zip(given, shape, strict=False)
        )
        if not fits:
            wanted = " x ".join("any" if x is None else str(x) for x in shape)
            raise InputError(f"{entry.where}: shape must be {wanted}, not {shown(given)}")
        width = np.dtype(dtype).itemsize
        content = self.room.unpack(entry.text("data"), entry.where, math.prod(given) * width)
        if len(content) != math.prod(given) * width:
            raise InputError(
                f"{entry.where}: holds {len(content):,} bytes, but its shape needs {math.prod(given) * width:,}"
            )
        if dtype == "|b1" and content.strip(b"\0\1"):
            raise InputError(f"{entry.where}: boolean values must be 0 or 1")
        flat = np.frombuffer(content, dtype)
        return flat.astype(flat.dtype.newbyteorder("=")).reshape(given)

    def reject_others(self) -> None:
        """There must be no array that nothing asked for."""
        for name in self.record.value:
            if name not in self._asked:
                raise InputError(f"{self.record.where}: there is no array {shown(name)}")


def _unpack_graph(record: Record, name: str, room: _Room) -> Graph:
    where = f"{record.where}: labels"
    labels = Record(parse_json(room.unpack(record.text("labels"), where), where), where)
    names = labels.items("names")
    shapes = labels.lists("output_shapes")
    for shape in (shape for entry in shapes for shape in entry):
        if not isinstance(shape, list):
            raise InputError(f"{where}: output_shapes must hold lists of shapes")
    n = len(names)
    arrays = _Arrays(Record(record.get("arrays"), f"{record.where}: arrays"), room)
    floats = ("flops", "bytes_read", "bytes_written", "param_bytes")
    found = {key: arrays.get(key, "<f8", (n,)) for key in floats}
    found["backward"] = arrays.get("backward", "|b1", (n,))
    if "boundary" in arrays.record:
        found["boundary"] = arrays.get("boundary", "|b1", (n,))
    found["tensor_producer"] = arrays.get("tensor_producer", "<i4", (None,))
    m = len(found["tensor_producer"])
    found["tensor_bytes"] = arrays.get("tensor_bytes", "<f8", (m,))
    found["consumer_ptr"] = arrays.get("consumer_ptr", "<i4", (m + 1,))
    found["consumer_op"] = arrays.get("consumer_op", "<i4", (None,))
    arrays.reject_others()
    return check_graph(
        Graph(
            name=name,
            names=tuple(names),
            op_types=tuple(labels.items("op_types")),
            output_shapes=tuple(tuple(tuple(shape) for shape in entry) for entry in shapes),
            **found,
        )
    )


def _unpack_cluster(record: Record) -> Cluster:
    links = tuple(
        tuple(_unpack_link(link, f"{record.where}: links[{d}][{e}]") for e, link in enumerate(row))
        for d, row in enumerate(record.lists("links"))
    )
    devices = tuple(_unpack_device(device) for device in record.records("devices"))
    return Cluster(record.text("name"), devices, links, record.integer("host"))


def _unpack_device(record: Record) -> Device:
    known = {field.name for field in fields(Device)}
    for key in record.value:
        if key not in known:
            raise InputError(f"{record.where}: a device has no {shown(key)}")
    for field in fields(Device):
        if field.default is MISSING and field.default_factory is MISSING:
            record.get(field.name)
    capacity = record.get("capacity")
    given = {**record.value, "capacity": math.inf if capacity is None else capacity}
    try:
        return msgspec.convert(given, Device)
    except msgspec.ValidationError as error:
        raise InputError(f"{record.where}: {error}") from None


def _unpack_link(value: Any, where: str) -> Link | None:
    if value is None:
        return None
    if not isinstance(value, list) or len(value) != 2:
        raise InputError(f"{where}: must be null or [latency, bandwidth], not {shown(value)}")
    link = Record({"latency": value[0], "bandwidth": value[1]}, where)
    return Link(link.number("latency"), math.inf if value[1] is None else link.number("bandwidth"))
