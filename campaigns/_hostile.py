"""Three hundred files and options made by hand, each to cost too much, to lie, or to run code."""

from __future__ import annotations

import base64
import copy
import io
import json
import os
import pickle
import socket
import zipfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from campaigns._formats import (
    CLUSTER,
    WORKLOAD,
    _dump_graph,
    _ir,
    _program_file,
    fixed_files,
    small_plan,
    small_problem,
)
from loadmaster.problem import dump_problem

__all__ = ["Hostile", "cases"]


@dataclass(frozen=True)
class Hostile:
    """A command with a file that somebody made."""

    name: str
    words: tuple[str, ...]
    refused: bool = True
    """It must end with exit code 2, not only without a traceback."""


Made = Iterator[Hostile]


def cases(folder: Path) -> Made:
    """All of them; each file is written to the folder when its turn comes."""
    fixed = fixed_files(folder)
    yield from _texts(folder)
    yield from _problems(folder)
    yield from _graphs(folder)
    yield from _workloads(folder, fixed)
    yield from _plans(folder)
    yield from _placements(folder, fixed)
    yield from _clusters(folder)
    yield from _tables(folder, fixed)
    yield from _onnx(folder)
    yield from _irs(folder)
    yield from _programs(folder)
    yield from _weights(folder)
    yield from _options(fixed)
    yield from _special(folder)


def _written(folder: Path, name: str, content: bytes | str | Any) -> str:
    if not isinstance(content, bytes | str):
        content = json.dumps(content)
    data = content.encode("utf-8", "surrogatepass") if isinstance(content, str) else content
    (folder / name).write_bytes(data)
    return str(folder / name)


def _changed(base: Any, *path: Any, value: Any) -> Any:
    document = copy.deepcopy(base)
    inner = document
    for key in path[:-1]:
        inner = inner[key]
    if value is DELETED:
        del inner[path[-1]]
    else:
        inner[path[-1]] = value
    return document


DELETED = object()


def _texts(folder: Path) -> Made:
    deep = 100_000
    contents: dict[str, bytes] = {
        "empty": b"",
        "a space": b" ",
        "zero bytes": b"\0" * 1000,
        "a byte order mark": b"\xef\xbb\xbf{}",
        "UTF-16": '{"a": 1}'.encode("utf-16"),
        "null": b"null",
        "a number": b"1",
        "a text": b'"x"',
        "an empty list": b"[]",
        "an empty object": b"{}",
        "infinite": b'{"nodes": Infinity, "edges": []}',
        "not a number": b'{"nodes": NaN, "edges": []}',
        "1e309": b'{"nodes": [1e309], "edges": []}',
        "a comment": b'{"nodes": [] /* */, "edges": []}',
        "a comma too many": b'{"nodes": [], "edges": [],}',
        "half": b'{"nodes": [',
        "two documents": b"{}{}",
        "lists in lists": b"[" * deep + b"]" * deep,
        "objects in objects": b'{"a":' * deep + b"1" + b"}" * deep,
        "lists without end": b"[" * deep,
        "a key twice": b'{"nodes": [], "nodes": [], "edges": []}',
        "a surrogate": b'{"nodes": "\\ud800", "edges": []}',
        "invalid UTF-8": b'{"nodes": "\xff\xfe", "edges": []}',
        "a number of a million digits": b'{"nodes": ' + b"9" * 10**6 + b', "edges": []}',
        "a key of ten megabytes": b'{"' + b"k" * 10**7 + b'": 1, "nodes": 1, "edges": []}',
        "a text of a hundred megabytes": b'{"format": "' + b"x" * 10**8 + b'"}',
        "ten million lists": b"[" + b"[]," * 10**7 + b"[]]",
        "three million objects": b"[" + b'{"a":{}},' * 3 * 10**6 + b"{}]",
        "a million objects": b"[" + b'{"a":{}},' * 10**6 + b"{}]",
        "a million texts": b'{"format": [' + b'"aaaaaaaa",' * 10**6 + b'"a"]}',
        "a gigabyte that is not there": b"",
    }
    for name, content in contents.items():
        path = _written(folder, "text.json", content)
        if name.startswith("a gigabyte"):
            os.truncate(path, 2**30)
        yield Hostile(f"JSON: {name}", ("inspect", path))


BAD = (-1, 1e308, 10**400, "x", None, [], {}, True, "\0", "9" * 5000)


def _problems(folder: Path) -> Made:
    base = json.loads(json.dumps(dump_problem(small_problem())))
    places: list[tuple[tuple[Any, ...], Any]] = [
        (("ops", 0, "time"), [1e308, 1e308]),
        (("ops", 0, "time"), [1.0]),
        (("ops", 0, "time"), [[1.0], [2.0]]),
        (("ops", 0, "time", 0), "12 us"),
        (("ops", 0, "time", 0), -1.0),
        (("ops", 0, "name"), "op1"),
        (("ops", 0, "name"), ""),
        (("ops", 0, "name"), 7),
        (("ops", 0), 3),
        (("ops",), {}),
        (("ops",), "x" * 5000),
        (("colocation",), [3]),
        (("colocation",), [[9]]),
        (("colocation",), [["op0", "nobody" * 2000]]),
        (("pins",), {"op0": 99}),
        (("pins",), {"op0": "x" * 5000}),
        (("pins",), {"9" * 5000: 0}),
        (("devices",), []),
        (("devices", 0), 3),
        (("devices", 0, "name"), "cpu"),
        (("devices", 0, "capacity"), -1),
        (("devices", 0, "capacity"), 1e308),
        (("devices",), [{"name": f"d{d}", "kind": "cpu"} for d in range(5000)]),
        (("format",), "loadmaster-problem/99"),
    ]
    for path, value in places:
        if path[0] not in base:
            base[path[0]] = {} if path[0] == "pins" else []
        file = _written(folder, "problem.bad.json", _changed(base, *path, value=value))
        yield Hostile(
            f"problem: {'.'.join(map(str, path))} = {str(value)[:40]}", ("place", file, "--evaluations", "5")
        )
    for key in list(base):
        for value in (DELETED, 10**400, DEEP, "x" * 100_000):
            file = _written(folder, "problem.bad.json", _changed(base, key, value=value))
            yield Hostile(f"problem: {key} is {str(value)[:30]}", ("inspect", file), refused=False)


DEEP: Any = []
for _ in range(90):
    DEEP = [DEEP]


def _graphs(folder: Path) -> Made:
    base = json.loads(json.dumps(_dump_graph()))
    op = base["ops"][0] if isinstance(base.get("ops"), list) else {}
    for key in op:
        for value in (-1, "x" * 5000, 10**400, [[[]]]):
            file = _written(folder, "graph.bad.json", _changed(base, "ops", 0, key, value=value))
            yield Hostile(f"graph: ops[0].{key} = {str(value)[:30]}", ("inspect", file), refused=False)
    for key in list(base):
        for value in (DELETED, DEEP, 3):
            file = _written(folder, "graph.bad.json", _changed(base, key, value=value))
            yield Hostile(f"graph: {key} is {str(value)[:30]}", ("inspect", file), refused=False)


def _workloads(folder: Path, fixed: dict[str, str]) -> Made:
    for key, value in (
        ("maxFPGAs", 10**6),
        ("maxFPGAs", 1e18),
        ("maxFPGAs", -1),
        ("maxFPGAs", 10**400),
        ("maxFPGAs", "many"),
        ("maxCPUs", 10**6),
        ("maxCPUs", 2**63),
        ("maxSizePerFPGA", -1),
        ("maxSizePerFPGA", "x"),
        ("nodes", {}),
        ("nodes", [[]]),
        ("nodes", [{}] * 3),
        ("edges", [{}]),
        ("edges", [{"sourceId": 0, "destId": 0, "cost": 1}]),
        ("edges", [{"sourceId": 0, "destId": 1, "cost": 1}, {"sourceId": 1, "destId": 0, "cost": 1}]),
        ("edges", [{"sourceId": 0, "destId": 10**300, "cost": 1}]),
        ("edges", [{"sourceId": 0, "destId": 1, "cost": 1}, {"sourceId": 0, "destId": 2, "cost": 2}]),
        ("edges", [{"sourceId": 0, "destId": 1, "cost": 1e305}] * 2),
        ("nodes", [{"id": v, "cpuLatency": 1e200, "fpgaLatency": 1e200} for v in range(4)]),
        ("nodes", [{"id": 0, "cpuLatency": 1, "fpgaLatency": 1}] * 2),
    ):
        file = _written(folder, "workload.bad.json", _changed(WORKLOAD, key, value=value))
        yield Hostile(f"workload: {key} = {str(value)[:40]}", ("place", file, "--evaluations", "5"))
    many = {**WORKLOAD, "maxFPGAs": 1024, "nodes": [
        {"id": v, "cpuLatency": 1, "fpgaLatency": 1} for v in range(40_000)], "edges": []}  # fmt: skip
    yield Hostile("workload: 40,000 ops on 1,024 devices", ("inspect", _written(folder, "many.json", many)))
    groups = {"fpgas": [{"nodes": []}] * 200_000 + [{"nodes": [0]}], "cpus": [{"nodes": [1, 2, 3]}]}
    file = _written(folder, "split.bad.json", groups)
    yield Hostile("a split of 200,000 devices", ("evaluate", fixed["WORKLOAD"], "--placement", file))


@cache
def _bomb(megabytes: int, chunk: bytes = bytes(2**20)) -> str:
    """So many chunks, packed; between full flushes equal chunks are equal bytes, so that only one is compressed."""
    packer = zlib.compressobj(9)
    head = packer.compress(b"") + packer.flush(zlib.Z_FULL_FLUSH)
    block = packer.compress(chunk) + packer.flush(zlib.Z_FULL_FLUSH)
    checksum = zlib.adler32(b"")
    if any(chunk):
        for _ in range(megabytes):
            checksum = zlib.adler32(chunk, checksum)
    else:
        checksum = (megabytes * len(chunk) % 65521) << 16 | 1
    data = head + block * megabytes + b"\x03\x00" + checksum.to_bytes(4, "big")
    return base64.b64encode(data).decode()


def _plans(folder: Path) -> Made:
    base = small_plan()

    def plan(name: str, document: Any, *, refused: bool = True, command: str = "explain") -> Hostile:
        file = _written(folder, "plan.bad.json", document)
        return Hostile(f"plan: {name}", (command, file), refused=refused)

    graph = ("problem", "graph")
    for megabytes in (100, 1000, 6000):
        yield plan(
            f"labels that unpack to {megabytes} MB of zeros",
            _changed(base, *graph, "labels", value=_bomb(megabytes)),
        )
    lists = _bomb(150, b"[]," * (2**20 // 3))
    yield plan("labels that unpack to lists", _changed(base, *graph, "labels", value=lists))
    padded = _changed(base, *graph, "labels", value=_bomb(6000))
    padded["problem"]["provenance"] = "x" * 8_000_000
    yield plan("eight megabytes that become six gigabytes", padded)
    arrays = [*((*graph, "arrays", key) for key in base["problem"]["graph"]["arrays"])]
    arrays += [("problem", "arrays", key) for key in base["problem"]["arrays"]]
    for path in arrays:
        entry: Any = base
        for key in path:
            entry = entry[key]
        huge = {**entry, "shape": [2**28 for _ in entry["shape"]], "data": _bomb(256)}
        yield plan(f"{path[-1]} of 256 MB", _changed(base, *path, value=huge))
        yield plan(f"{path[-1]} of another type", _changed(base, *path, "dtype", value="|O"))
        yield plan(
            f"{path[-1]} of a negative shape",
            _changed(base, *path, "shape", value=[-4] * len(entry["shape"])),
        )
    for name, path, value in (
        ("data that are not base64", (*graph, "labels"), "§§§"),
        ("data that are not packed", (*graph, "labels"), base64.b64encode(b"x" * 100).decode()),
        ("packed data cut off", (*graph, "labels"), base["problem"]["graph"]["labels"][:-8]),
        ("devices that are numbers", ("problem", "cluster", "devices"), [1, 2]),
        ("links that are numbers", ("problem", "cluster", "links"), [1, 2]),
        ("a host that is not there", ("problem", "cluster", "host"), 99),
        ("a measured list", ("measured",), [1]),
        ("a placement of nobody", ("placement",), {"nobody": "cpu"}),
        ("a placement of numbers", ("placement",), [0, 1]),
        ("a format of the future", ("format",), "loadmaster-plan/99"),
        ("an unknown model", ("model",), "klingon"),
        ("a million settings", ("settings",), {f"s{i}": i for i in range(100_000)}),
        ("another hash", ("problem", "hash"), "0" * 64),
        ("surplus of devices that are not there", ("problem", "surplus"), [99]),
        ("no problem", ("problem",), DELETED),
        ("a cost that is a text", ("cost",), "cheap"),
        ("an infinite cost", ("cost",), 1e999),
    ):
        document = _changed(base, *path, value=value)
        yield plan(name, document, refused=name not in ("a cost that is a text", "an infinite cost"))
        yield plan(f"{name}, for a report", document, refused=False, command="report")


def _placements(folder: Path, fixed: dict[str, str]) -> Made:
    for value in (
        {"placement": {"op0": "nowhere" * 3000}},
        {"placement": {"x" * 5000: "cpu"}},
        {"placement": {}},
        {"placement": {f"op{v}": "cpu" for v in range(4)}, "order": [0, 0, 1e300, 3]},
        {"placement": {f"op{v}": "cpu" for v in range(4)}, "order": [10**30] * 4},
        {"placement": {f"op{v}": "cpu" for v in range(4)}, "call": {"op0": 2**70}},
        {"placement": {f"op{v}": None for v in range(4)}},
        {"placement": [["op0", "cpu"]]},
        {"placement": {f"op{v}": "cpu" for v in range(300_000)}},
        [],
        {"fpgas": 3},
        {"op0": "cpu"},
    ):
        file = _written(folder, "placement.bad.json", value)
        yield Hostile(f"placement: {str(value)[:50]}", ("evaluate", fixed["PROBLEM"], "--placement", file))


def _clusters(folder: Path) -> Made:
    line = '[[device]]\nname = "cpu"\nkind = "cpu"\nbandwidth = 1e9\nflops = 1e9\n'
    contents = {
        "a key of 50,000 parts": ".".join("a" * 50_000) + " = 1\n",
        "a table of 50,000 parts": "[" + ".".join("a" * 50_000) + "]\n",
        "tables of 50,000 parts": "[[" + ".".join("a" * 50_000) + "]]\n",
        "a quoted key of 30,000 parts": '."b"'.join(["a"] * 30_000) + " = 1\n",
        "a dotted key in an inline table": "x = {" + ".".join("a" * 50_000) + " = 1}\n",
        "800 keys of 60 parts": "\n".join(f"k{i}." + ".".join("b" * 60) + " = 1" for i in range(800)),
        "lists in lists": "x = " + "[" * 50_000 + "]" * 50_000,
        "tables in tables": "x = " + "{a = " * 50_000 + "1" + "}" * 50_000,
        "20,000 devices": "".join(line.replace('"cpu"\nkind', f'"c{i}"\nkind') for i in range(20_000))[
            :900_000
        ],
        "a billion devices": line + "count = 1000000000\n",
        "a count of 1e400": line + "count = " + "9" * 400 + "\n",
        "a thousand counts of 1024": "".join(
            line.replace('"cpu"\nkind', f'"c{i}_"\nkind') + "count = 1024\n" for i in range(1000)
        ),
        "two megabytes": "# " + "x" * 2_000_000 + "\n" + line,
        "a gigabyte": "",
        "an integer of 5,000 digits": line.replace("1e9\nflops", "9" * 5000 + "\nflops"),
        "a hexadecimal number of 100,000 digits": "x = 0x" + "f" * 100_000 + "\n" + line,
        "an exponent beyond measure": line.replace("1e9\nflops", "'1e99999999999'\nflops"),
        "a date": line.replace("1e9\nflops", "1979-05-27\nflops"),
        "a bandwidth of zero": line.replace("1e9\nflops", "0\nflops"),
        "a bandwidth of nan": line.replace("1e9\nflops", "nan\nflops"),
        "no device": 'name = "x"\n',
        "a device twice": line * 2,
        "a name of 5,000 characters twice": line.replace('"cpu"\nkind', f'"{"n" * 5000}"\nkind') * 2,
        "a key that is not known, of 5,000 characters": line + "k" * 5000 + " = 1\n",
        "a host that is not there": 'host = "' + "h" * 5000 + '"\n' + line,
        "a link of nobody": CLUSTER + '[[link]]\nbetween = ["' + "l" * 5000 + '", "cpu"]\nlatency = 0\n',
        "a pattern that takes for ever": CLUSTER
        + '[[link]]\nbetween = ["'
        + "*a" * 5000
        + '", "cpu"]\nlatency = 0\n',
        "a text without end": 'name = """' + "x" * 100_000,
        "control characters": 'name = "\x01\x02"\n' + line,
        "not UTF-8": "",
        "JSON": "{}",
        "a million empty lines": "\n" * 900_000,
        "300,000 brackets": "[[a]]\n" * 150_000,
        "100,000 keys": "\n".join(f"k{i} = 1" for i in range(80_000)),
    }
    for name, text in contents.items():
        path = _written(folder, "bad.toml", text if name != "not UTF-8" else b"name = '\xff\xfe'\n")
        if name == "a gigabyte":
            os.truncate(path, 2**30)
        yield Hostile(f"cluster: {name}", ("clusters", path))


def _tables(folder: Path, fixed: dict[str, str]) -> Made:
    head = "op,gpu,cpu\n"
    contents = {
        "empty": "",
        "no op": "a,b\n1,2\n",
        "a device that is not there": "op,nobody\nop0,1\n",
        "a column twice": "op,gpu,gpu\nop0,1,1\n",
        "an op twice": head + "op0,1,1\nop0,1,1\n",
        "an op of nobody": head + "nobody" * 2000 + ",1,1\n",
        "a row too long": head + "op0,1,1,1,1,1\n",
        "a negative time": head + "op0,-1,1\n",
        "a time beyond measure": head + "op0,1e309,1\n",
        "a time of 5,000 digits": head + "op0," + "9" * 5000 + ",1\n",
        "an unknown unit": head + "op0,1 parsec,1\n",
        "a cell of 140,000 characters": head + "x" * 140_000 + ",1,1\n",
        "a quote without end": head + 'op0,"1\n' * 1000,
        "zero bytes": head + "op0,\0,1\n",
        "a million columns": "op," + ",".join(f"c{i}" for i in range(10**6)) + "\n",
        "a million rows": head + "".join(f"o{i},1,1\n" for i in range(10**6)),
        "not UTF-8": "",
        "times that add up to too much": head + "".join(f"op{v},1e100,1e100\n" for v in range(4)),
    }
    place = ("place", fixed["GRAPH"], "--cluster", fixed["CLUSTER"], "--evaluations", "5", "--costs")
    for name, text in contents.items():
        path = _written(folder, "bad.csv", text if name != "not UTF-8" else b"op,gpu\n\xff,1\n")
        yield Hostile(f"CSV: {name}", (*place, path))
    for value in ({}, {"times": []}, {"times": {"op0": 3}}, {"times": {"op0": {"gpu": 10**400}}}, {"times": {"x" * 5000: {}}},
                  {"times": {}, "provenance": "a guess"}, {"times": {"op0": {"gpu": [1]}}}, {"times": DEEP}):  # fmt: skip
        path = _written(folder, "bad.costs.json", value)
        yield Hostile(f"costs: {str(value)[:50]}", (*place, path))


def _onnx(folder: Path) -> Made:
    import onnx
    from onnx import TensorProto, helper

    def model(nodes: list[Any], inits: list[Any] = [], shape: Any = (1, 4), outs: Any = None) -> Any:  # noqa: B006
        x = helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)
        y = helper.make_tensor_value_info("y", TensorProto.FLOAT, outs)
        graph = helper.make_graph(nodes, "net", [x], [y], inits)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)

    def ints(name: str, *values: int) -> Any:
        return helper.make_tensor(name, TensorProto.INT64, [len(values)], values)

    node = helper.make_node
    relu = node("Relu", ["x"], ["y"])
    huge = helper.make_tensor("w", TensorProto.FLOAT, [1], [1.0])
    huge.ClearField("float_data")
    del huge.dims[:]
    huge.dims.extend([2**40, 2**20])

    def external(location: str, dims: tuple[int, ...] = (4,), **more: str) -> Any:
        tensor = onnx.TensorProto(name="s", data_type=TensorProto.INT64, dims=dims)
        tensor.data_location = TensorProto.EXTERNAL
        for key, value in {"location": location, **more}.items():
            tensor.external_data.add(key=key, value=value)
        return tensor

    reshape = node("Reshape", ["x", "s"], ["y"])
    loop_body = helper.make_graph(
        [node("Identity", ["c"], ["d"]), node("Identity", ["v"], ["u"])],
        "body",
        [
            helper.make_tensor_value_info("i", TensorProto.INT64, []),
            helper.make_tensor_value_info("c", TensorProto.BOOL, []),
            helper.make_tensor_value_info("v", TensorProto.FLOAT, (1, 4)),
        ],
        [
            helper.make_tensor_value_info("d", TensorProto.BOOL, []),
            helper.make_tensor_value_info("u", TensorProto.FLOAT, (1, 4)),
        ],
    )
    trips = helper.make_tensor("n", TensorProto.INT64, [], [2**62])
    true = helper.make_tensor("t", TensorProto.BOOL, [], [True])
    models = {
        "an input of 2**80 elements": model([relu], shape=(2**40, 2**40)),
        "an input of a negative size": model([relu], shape=(-5, 4)),
        "a constant of a terabyte": model([node("ConstantOfShape", ["s"], ["k"]), node("Add", ["x", "k"], ["y"])], [ints("s", 2**20, 2**18)]),
        "a constant of 400 MB": model([node("ConstantOfShape", ["s"], ["k"]), node("ReduceSum", ["k"], ["r"]), node("Add", ["x", "r"], ["y"])], [ints("s", 10**4, 10**4)]),
        "a constant of 40 GB": model([node("ConstantOfShape", ["s"], ["k"]), node("ReduceSum", ["k"], ["r"]), node("Add", ["x", "r"], ["y"])], [ints("s", 10**5, 10**5)]),
        "a range of 10**15": model([node("Range", ["a", "b", "c"], ["k"]), node("Shape", ["k"], ["s"]), node("Reshape", ["x", "s"], ["y"])],
                                   [helper.make_tensor(n, TensorProto.INT64, [], [v]) for n, v in (("a", 0), ("b", 10**15), ("c", 1))]),
        "an expanded shape of 2**60": model([node("Expand", ["x", "s"], ["y"])], [ints("s", 2**30, 2**30, 4)]),
        "a constant expanded to 10**12": model([node("Expand", ["s", "s"], ["k"]), node("Shape", ["k"], ["z"]), node("Reshape", ["x", "z"], ["y"])], [ints("s", 10**6, 10**6)]),
        "tiled 10**18 times": model([node("Tile", ["x", "s"], ["y"])], [ints("s", 10**9, 10**9)]),
        "a constant tiled": model([node("Tile", ["s", "m"], ["k"]), node("Reshape", ["x", "k"], ["y"])], [ints("s", 1, 4), ints("m", 10**10)]),
        "padded by 2**40": model([node("Pad", ["x", "s"], ["y"])], [ints("s", 0, 2**40, 0, 2**40)]),
        "one-hot of depth 2**50": model([node("OneHot", ["s", "d", "v"], ["y"])], [ints("s", 1, 2), ints("d", 2**50), helper.make_tensor("v", TensorProto.FLOAT, [2], [0, 1])]),
        "resized by 1e30": model([node("Resize", ["x", "", "f"], ["y"])], [helper.make_tensor("f", TensorProto.FLOAT, [2], [1e30, 1e30])]),
        "a weight of 2**60 elements": model([node("Add", ["x", "w"], ["y"])], [huge]),
        "data in /etc/passwd": model([reshape], [external("/etc/passwd")]),
        "data in ../../etc/passwd": model([reshape], [external("../../../../../../etc/passwd")]),
        "data in /dev/zero": model([reshape], [external("/dev/zero")]),
        "data in a pipe": model([reshape], [external("pipe.bin")]),
        "data in a folder": model([reshape], [external(".")]),
        "data at an offset beyond measure": model([reshape], [external("some.bin", offset="9" * 400)]),
        "data of a length beyond measure": model([reshape], [external("some.bin", length=str(2**62))]),
        "data of a negative length": model([reshape], [external("some.bin", length="-8")]),
        "data by a link out of the folder": model([reshape], [external("link.bin")]),
        "an input of 2**33 elements before a shape that data tell": model([node("NonZero", ["x"], ["z"]), node("Cast", ["z"], ["y"], to=1)], shape=(2**31 - 1, 4)),
        "an hour of work before a shape that data tell": model([node("ConstantOfShape", ["s"], ["k"]), node("MatMul", ["k", "k"], ["q"]), node("MatMul", ["q", "q"], ["p"]), node("ReduceSum", ["p"], ["r"]),
                                                                node("Add", ["x", "r"], ["e"]), node("NonZero", ["e"], ["z"]), node("Cast", ["z"], ["y"], to=1)], [ints("s", 6000, 6000)]),
        "gigabytes before a shape that data tell": model([node("Expand", ["x", "s"], ["e"]), node("NonZero", ["e"], ["z"]), node("Cast", ["z"], ["y"], to=1)], [ints("s", 2**14, 2**14, 4)]),
        "a loop of 2**62 turns": model([node("Loop", ["n", "t", "x"], ["y"], body=loop_body)], [trips, true]),
        "a cycle": model([node("Relu", ["b"], ["a"]), node("Relu", ["a"], ["b"]), node("Add", ["b", "x"], ["y"])]),
        "an op of nobody": model([node("Klingon" * 500, ["x"], ["y"])]),
        "an output of nobody": model([node("Relu", ["x"], ["z"])]),
        "an input of nobody": model([node("Add", ["x", "nobody"], ["y"])]),
        "a name of 10,000 characters": model([node("Klingon", ["x"], ["y"], name="n" * 10_000)]),
        "names that are control characters": model([node("Relu", ["x"], ["y"], name="\x1b[31m\n\0")]),
        "a convolution that does not fit": model([node("Conv", ["x", "s"], ["y"])], [ints("s", 1, 2)]),
        "an axis of 2**62": model([node("Softmax", ["x"], ["y"], axis=2**62)]),
        "a split into 2**40": model([node("Split", ["x"], ["y"], num_outputs=2**40)]),
    }  # fmt: skip
    if not (folder / "pipe.bin").exists():
        os.mkfifo(folder / "pipe.bin")
        os.symlink("/etc/passwd", folder / "link.bin")
        (folder / "some.bin").write_bytes(bytes(64))
    may = {
        "an input of a negative size", "a loop of 2**62 turns", "tiled 10**18 times", "padded by 2**40", "resized by 1e30",
        "names that are control characters", "a weight of 2**60 elements", "an expanded shape of 2**60",
        "a constant of a terabyte", "a constant of 40 GB", "a range of 10**15", "a constant of 400 MB", "an axis of 2**62", "an op of nobody", "a name of 10,000 characters",
        "a split into 2**40", "one-hot of depth 2**50", "an input of 2**80 elements",
    }  # fmt: skip
    for name, made in models.items():
        path = _written(folder, "bad.onnx", made.SerializeToString())
        yield Hostile(f"ONNX: {name}", ("inspect", path), refused=name not in may)
        yield Hostile(f"ONNX through OpenVINO: {name}", ("inspect", f"openvino:{path}"), refused=False)
    raw = {
        "empty": b"",
        "zeros": bytes(10**6),
        "50 million empty nodes": b"\x3a\x80\x80\x80\x30" + b"\x0a\x00" * (3 << 23),
        "a message longer than the file": b"\x3a\xff\xff\xff\xff\x7f\x0a\x00",
        "groups": b"\x3b\x3c" * 1000,
        "messages in messages": b"\x3a\x7f" * 5000,
        "text": b"this is not a model",
    }
    for name, content in raw.items():
        yield Hostile(f"ONNX: {name}", ("inspect", _written(folder, "bad.onnx", content)))


def _irs(folder: Path) -> Made:
    good, weights = _ir()
    (folder / "bad.bin").write_bytes(weights)
    text = good.decode()
    laughs = "".join(
        f'<!ENTITY l{i} "{"&l" + str(i - 1) + ";" if i else "ha"}{("&l" + str(i - 1) + ";") * 9 if i else ""}">'
        for i in range(10)
    )
    contents = {
        "empty": "",
        "not XML": "x" * 1000,
        "entities that multiply": f'<?xml version="1.0"?><!DOCTYPE net [{laughs}]><net name="n" version="11"><layers>&l9;</layers></net>',
        "an entity that is a file": '<?xml version="1.0"?><!DOCTYPE net [<!ENTITY x SYSTEM "file:///etc/passwd">]><net version="11"><layers>&x;</layers></net>',
        "elements in elements": '<net version="11"><layers>' + "<a>" * 100_000 + "</a>" * 100_000 + "</layers></net>",
        "five million elements": '<net version="11"><layers>' + "<a/>" * 5_000_000 + "</layers></net>",
        "an offset beyond the file": text.replace('offset="0"', 'offset="999999999"'),
        "a size beyond measure": text.replace('size="32"', f'size="{"9" * 400}"'),
        "a negative size": text.replace('size="32"', 'size="-32"'),
        "another shape": text.replace("<dim>4</dim>", "<dim>-4</dim>"),
        "a shape beyond measure": text.replace('shape="1,4"', 'shape="1099511627776,1099511627776"'),
        "a type of nobody": text.replace('type="ReLU"', 'type="Klingon"'),
        "an opset of nobody": text.replace("opset1", "opset999"),
        "an id twice": text.replace('id="1"', 'id="0"'),
        "an id beyond measure": text.replace('id="1"', f'id="{"9" * 400}"'),
        "no edges": text.replace("<edge ", "<nothing "),
        "a cycle": text.replace('from-layer="0"', 'from-layer="3"'),
        "an unknown encoding": text.replace('version="1.0"', 'version="1.0" encoding="klingon"'),
        "an attribute of ten megabytes": text.replace('name="net"', f'name="{"n" * 10**7}"'),
        "half": text[: len(text) // 2],
    }  # fmt: skip
    may = {
        "another shape",
        "an attribute of ten megabytes",
        "a shape beyond measure",
        "no edges",
        "an id twice",
        "a cycle",
    }
    for name, content in contents.items():
        yield Hostile(
            f"IR: {name}", ("inspect", _written(folder, "bad.xml", content)), refused=name not in may
        )


class _Code:
    """What a pickle can do."""

    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self) -> Any:
        return os.system, (f"touch {self.marker}",)


def _programs(folder: Path) -> Made:
    """Programs that would run code; ``ran`` appears in the folder if one did."""
    base = _program_file()
    marker = folder / "ran"
    with zipfile.ZipFile(io.BytesIO(base)) as archive:
        parts = {part.filename: archive.read(part) for part in archive.infolist()}
    model = next(name for name in parts if "/models/" in name)
    config = next(name for name in parts if name.endswith("weights_config.json"))
    inputs = next(name for name in parts if "sample_inputs" in name)

    def packed(changes: dict[str, bytes], method: int = zipfile.ZIP_STORED) -> str:
        stream = io.BytesIO()
        with zipfile.ZipFile(stream, "w", method) as made:
            for name, content in {**parts, **changes}.items():
                made.writestr(name, content)
        return _written(folder, "bad.pt2", stream.getvalue())

    program = json.loads(parts[model])

    def with_program(change: Any) -> str:
        found = copy.deepcopy(program)
        for entry in _objects(found):
            change(entry)
        return packed({model: json.dumps(found).encode()})

    def target(name: str) -> Any:
        return lambda entry: entry.update(target=name) if "target" in entry and "inputs" in entry else None

    evil = pickle.dumps(_Code(marker))
    import torch

    stream = io.BytesIO()
    torch.save((_Code(marker),), stream)
    folder_of_weights = config.rsplit("/", 1)[0]
    pickled = {
        "config": {
            "weight": {"path_name": "weight_0", "is_param": True, "use_pickle": True, "tensor_meta": None}
        }
    }
    files = {
        "example inputs that are code": packed({inputs: stream.getvalue()}),
        "example inputs that are a pickle": packed({inputs: evil}),
    }
    for name, path in files.items():
        yield Hostile(f"pt2: {name}", ("inspect", path), refused=False)
        files[name] = path
    yield Hostile(
        "pt2: pickled weights",
        (
            "inspect",
            packed(
                {config: json.dumps(pickled).encode(), f"{folder_of_weights}/weight_0": stream.getvalue()}
            ),
        ),
    )
    for name in ("torch.os.system", "torch.hub.load", "torch.load", "torch.ops.load_library", "_operator.methodcaller",
                 "torch.ops.aten.__class__", "#klingon", "math.__loader__", "torch.serialization.os.system"):  # fmt: skip
        yield Hostile(f"pt2: the operator {name}", ("inspect", with_program(target(name))))
    for text in (
        f"__import__('os').system('touch {marker}')",
        "().__class__.__base__",
        "9**9**9**9",
        "exec('1')",
        "open(x)",
    ):
        found = copy.deepcopy(program)
        found["expr_str"] = text
        yield Hostile(f"pt2: the expression {text}", ("inspect", packed({model: json.dumps(found).encode()})))
    yield Hostile("pt2: compressed", ("inspect", packed({"big": bytes(2**27)}, zipfile.ZIP_DEFLATED)))
    yield Hostile("pt2: no archive", ("inspect", _written(folder, "bad.pt2", b"x" * 1000)))
    yield Hostile("pt2: a pickle", ("inspect", _written(folder, "bad.pt2", evil)))
    yield Hostile("pt2: an empty archive", ("inspect", _written(folder, "bad.pt2", b"PK\5\6" + bytes(18))))
    assert not marker.exists(), "a .pt2 file has run code"


def _objects(value: Any) -> Iterator[dict[str, Any]]:
    if isinstance(value, dict):
        yield value
        for entry in value.values():
            yield from _objects(entry)
    elif isinstance(value, list):
        for entry in value:
            yield from _objects(entry)


def _weights(folder: Path) -> Made:
    place = ("place", "zoo:layered-6", "--method", "gdp", "--evaluations", "5", "--set")

    def archive(parts: dict[str, bytes], method: int = zipfile.ZIP_STORED) -> bytes:
        stream = io.BytesIO()
        with zipfile.ZipFile(stream, "w", method) as made:
            for name, content in parts.items():
                made.writestr(name, content)
        return stream.getvalue()

    def array(header: str, data: bytes = b"") -> bytes:
        text = header.encode() + b"\n"
        return b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text + data

    objects = io.BytesIO()
    np.save(objects, np.array([_Code(folder / "ran")], object), allow_pickle=True)
    contents = {
        "empty": b"",
        "no archive": b"x" * 100,
        "a bomb": archive({"a.npy": bytes(2**27)}, zipfile.ZIP_DEFLATED),
        "an array of 2**60": archive(
            {"a.npy": array("{'descr': '<f8', 'fortran_order': False, 'shape': (1152921504606846976,), }")}
        ),
        "an array of 2**33": archive(
            {"a.npy": array("{'descr': '<f8', 'fortran_order': False, 'shape': (8589934592,), }")}
        ),
        "pickled objects": archive({"a.npy": objects.getvalue()}),
        "a header of code": archive({"a.npy": array("__import__('os').system('true')")}),
    }
    for name, content in contents.items():
        yield Hostile(f"weights: {name}", (*place, f"weights={_written(folder, 'bad.npz', content)}"))


def _options(fixed: dict[str, str]) -> Made:
    place = ("place", "zoo:layered-4", "--evaluations", "5")
    for words in (
        ("--budget", "1e309"),
        ("--budget", "9" * 400),
        ("--budget", "nan"),
        ("--seed", "-1"),
        ("--seed", "9" * 400),
        ("--evaluations", "9" * 400),
        ("--cluster", "9" * 5000 + "acc"),
        ("--cluster", "999999999acc"),
        ("--cluster", "p100-999999999"),
        ("--cluster", "0acc"),
        ("--coarsen", "matching:" + "9" * 5000),
        ("--coarsen", "x" * 5000),
        ("--method", "m" * 5000),
        ("--model", "k" * 5000),
        ("--model", "offload", "--max-calls", "9" * 400),
        ("--scale-to", "cpu0=1e400"),
        ("--scale-to", "x" * 5000),
        ("--pin", "(a+)+$" * 100 + "=cpu0"),
        ("--pin", "x" * 5000 + "=cpu0"),
        ("--pin", "[=cpu0"),
        ("--forbid", "op0=" + "y" * 5000),
        ("--costs", "/nowhere/" + "z" * 3000),
        ("--precision", "q" * 3000),
        ("-o", "/nowhere/plan.json"),
        ("-o", "/"),
    ):
        yield Hostile(f"options: {' '.join(words)[:60]}", (*place, *words))
    for name in ("layered-1000000000", "layered-1000?degree=1e9", "layered-1000?width=-1", "layered-10?seed=x", "wavenet-999999",
                 "bert-base?batch=99999999999999999999", "bert-base?seq=1e9", "gnmt-1000000?training=1", "resnet-0", "x" * 5000,
                 "layered-1000000?degree=1000", "amoebanet?layers=100000000", "gpt2?seq=" + "9" * 400):  # fmt: skip
        yield Hostile(f"zoo: {name[:50]}", ("inspect", f"zoo:{name}"))
    for text in (
        "devices=x",
        "klingon=1",
        "devices",
        "devices=-1",
        "devices=1e400",
        "=",
        "values=" + "9" * 500,
    ):
        yield Hostile(f"limits: {text[:40]}", ("--limit", text, "inspect", "zoo:layered-4"))
    yield Hostile("a cluster of 1,000 devices", ("clusters", "1000acc"), refused=False)
    yield Hostile("a cluster of 1,000 devices as JSON", ("clusters", "1000acc", "--json"), refused=False)
    yield Hostile("an op that no pin names", (*place, "--pin", "nobody=cpu0"))
    yield Hostile("a plan for another command", ("evaluate", fixed["PLAN"], "--placement", fixed["CLUSTER"]))


def _special(folder: Path) -> Made:
    for suffix in ("json", "onnx", "xml", "pt2", "toml", "csv", "npz"):
        pipe = folder / f"pipe.{suffix}"
        if not pipe.exists():
            os.mkfifo(pipe)
        place = ("place", "zoo:layered-4", "--evaluations", "5")
        words = {
            "toml": (*place, "--cluster", str(pipe)),
            "csv": (*place, "--costs", str(pipe)),
            "npz": (*place, "--method", "gdp", "--set", f"weights={pipe}"),
        }.get(suffix, ("inspect", str(pipe)))
        yield Hostile(f"a pipe as .{suffix}", words)
        inside = folder / f"folder.{suffix}"
        inside.mkdir(exist_ok=True)
        yield Hostile(f"a folder as .{suffix}", tuple(word.replace("pipe.", "folder.") for word in words))
    path = str(folder / "socket.json")
    if not os.path.exists(path):
        with socket.socket(socket.AF_UNIX) as listening:
            listening.bind(path)
    yield Hostile("a socket", ("inspect", path))
    for device in ("/dev/zero", "/dev/urandom", "/dev/stdin", "/dev/full"):
        yield Hostile(device, ("inspect", device))
    loop = folder / "loop.json"
    if not loop.is_symlink():
        loop.symlink_to(loop)
    yield Hostile("a link to itself", ("inspect", str(loop)))
    link = folder / "zero.onnx"
    if not link.is_symlink():
        link.symlink_to("/dev/zero")
    yield Hostile("a link to /dev/zero", ("inspect", str(link)))
    yield Hostile("a zero byte in the name", ("inspect", "a\0b.json"))
    yield Hostile("a name of 5,000 characters", ("inspect", "n" * 5000 + ".json"))
    yield Hostile("what the kernel says about memory", ("inspect", "/proc/self/mem"))
    yield Hostile("a file of the kernel without a size", ("inspect", "/proc/kallsyms"))
