"""Every file format that Loadmaster reads: a corpus of good files, how to make them wrong, what reads them."""

from __future__ import annotations

import base64
import io
import json
import os
import random
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

import loadmaster.bench
from campaigns._mutators import (
    HOSTILE,
    damaged,
    mutated_json,
    mutated_message,
    mutated_text,
    mutated_tree,
    mutated_xml,
)
from loadmaster import api
from loadmaster.graph import GraphBuilder
from loadmaster.hardware import Cluster, Device, Link, load_cluster, read_costs
from loadmaster.packed import pack_problem, unpack_problem
from loadmaster.plan import Plan, problem_document
from loadmaster.problem import (
    Concurrent,
    Placement,
    Problem,
    Serial,
    Solution,
    dump_problem,
    evaluate,
)

__all__ = ["FORMATS", "Format", "small_plan", "small_problem"]


@dataclass(frozen=True)
class Format:
    """One kind of file."""

    name: str
    suffix: str
    make: Callable[[random.Random], bytes]
    """A wrong file."""
    read: Callable[[Path], Any]
    """What Loadmaster does with it in this process."""
    commands: tuple[tuple[str, ...], ...]
    """Commands that take it; ``FILE`` stands for the file, ``OUT`` for one to write."""
    weight: int = 4


@cache
def small_problem() -> Problem:
    """Four ops on two devices, with every kind of constraint."""
    builder = GraphBuilder("net")
    for v in range(4):
        builder.op(f"op{v}", "Conv", shapes=[(1, 3)], flops=1e6, param_bytes=10.0, bytes_written=4.0)
    for v in range(3):
        builder.tensor(v, bytes=4.0, consumers=[v + 1])
    devices = (Device("gpu", "acc", 1e9, 1e12, 1e11), Device("cpu", "cpu", flops=1e10, bandwidth=1e10))
    link = Link(1e-5, 1e9)
    return Problem.make(
        builder.build(),
        Cluster("two", devices, ((None, link), (link, None)), host=1),
        Concurrent(),
        time=[[1.0, 2.0]] * 4,
        colocation=[[0, 1]],
        pins={3: 1},
        forbids=[(2, 0)],
        origin=np.zeros((4, 2), np.uint8),
    )


def small_plan() -> dict[str, Any]:
    """A plan of it, with measurements."""
    placement = Placement(np.array([0, 0, 1, 1], np.int32), order=np.arange(4, dtype=np.int32))
    solution = Solution(placement, 5.0, 4.0, "path", "greedy", evaluations=3)
    measured = {
        "median": 0.1,
        "low": 0.1,
        "high": 0.2,
        "schedule": [{"op": "op0", "start": 0.0, "end": 0.1, "device": "gpu"}],
    }
    found: dict[str, Any] = json.loads(
        Plan.from_solution(small_problem(), solution, measured=measured).to_bytes()
    )
    return found


WORKLOAD = {
    "maxFPGAs": 1,
    "maxCPUs": 1,
    "maxSizePerFPGA": 100,
    "nodes": [
        {"id": v, "supportedOnFpga": v != 2, "cpuLatency": 2.0, "fpgaLatency": 1.0, "size": 3, "isBackwardNode": v > 2,
         "colorClass": v % 2}
        for v in range(4)
    ],
    "edges": [{"sourceId": v, "destId": v + 1, "cost": 0.5, "size": 8} for v in range(3)],
}  # fmt: skip

CLUSTER = """name = "box"
host = "cpu"
[[device]]
name = "gpu"
kind = "gpu"
count = 2
flops = { fp32 = "10 TFLOP/s", fp16 = 2e13 }
bandwidth = "500 GB/s"
capacity = "16 GiB"
launch = "5 us"
efficiency = { matmul = 0.5, default = 0.25 }
source = ["a book"]
[[device]]
name = "cpu"
kind = "cpu"
flops = 1_000_000_000
bandwidth = 5e9
[default_link]
latency = "10 us"
bandwidth = "12 GB/s"
[[link]]
between = ["gpu*", "cpu"]
latency = 0
"""
DEVICES = '[[device]]\nname = "A"\nplugin = "cpu"\nprecision = "f32"\nthreads = 1\n[[device]]\nname = "B"\n'
CSV = "\n".join(
    ["op,gpu,cpu,provenance", *(f'op{v},12 us,"unsupported",measured' for v in range(3)), "*,estimate,0.5,"]
)
COSTS = {
    "times": {
        "op0": {"gpu": "12 us", "cpu": None, "provenance": "measured"},
        "*": {"gpu": "estimate", "cpu": 1},
    },
    "provenance": "measured",
}
ONNX = """
<ir_version: 8, opset_import: ["" : 17]>
net (float[1, 4] x, bool c) => (float[1, 2] y) <float[4, 2] w = {1, 2, 3, 4, 5, 6, 7, 8}, int64[2] n = {1, 2}> {
    h = MatMul(x, w)
    s = Shape(h)
    r = Reshape(h, s)
    e = Expand(r, n)
    t = Tile(e, n)
    q = Slice(t, n, n)
    k = ConstantOfShape(s)
    z = Add(r, k)
    y = Relu(z)
}
"""


def _use(path: Path) -> None:
    """Load a file, make a problem of it, put every op on a device."""
    problem = api.problem(path)
    if problem.n:
        evaluate(problem, Placement(np.zeros(problem.n, np.int32)))


def _json(base: Callable[[], Any]) -> Callable[[random.Random], bytes]:
    kept: list[Any] = []

    def make(rng: random.Random) -> bytes:
        if not kept:
            kept.append(json.loads(json.dumps(base())))
        return mutated_json(kept[0], rng)

    return make


def _packed(array: np.ndarray) -> dict[str, Any]:
    data = base64.b64encode(zlib.compress(array.tobytes())).decode()
    return {"dtype": array.dtype.str, "shape": list(array.shape), "data": data}


def _packed_plan(rng: random.Random) -> bytes:
    """A plan with other numbers in its packed arrays, and the right hash wherever it still is a problem."""
    document = small_plan()
    inside = document["problem"]
    for _ in range(rng.choice([1, 1, 2])):
        what = rng.random()
        if what < 0.2:
            labels = json.loads(zlib.decompress(base64.b64decode(inside["graph"]["labels"])))
            text = json.dumps(mutated_tree(labels, rng)).encode()
            inside["graph"]["labels"] = base64.b64encode(zlib.compress(text)).decode()
        elif what < 0.3:
            inside["cluster"] = mutated_tree(inside["cluster"], rng)
        else:
            _change_array(rng.choice([inside["graph"]["arrays"], inside["arrays"]]), rng)
    try:
        from loadmaster.files import Record

        problem = unpack_problem(Record(inside, "plan"), "net", Concurrent())
        document["graph"]["hash"], inside["hash"] = problem.graph.digest, problem.digest
    except Exception:
        pass
    return json.dumps(document).encode()


def _change_array(owner: dict[str, Any], rng: random.Random) -> None:
    key = rng.choice(list(owner))
    entry = owner[key]
    try:
        array = np.frombuffer(zlib.decompress(base64.b64decode(entry["data"])), entry["dtype"]).copy()
    except Exception:
        return
    what = rng.randrange(6)
    with np.errstate(all="ignore"):
        if what < 3 and len(array):
            value = rng.choice(
                [0, 1, 2, 3, -1, 7, 255, 2**31 - 1, -(2**31), 1e308, 1e-320, np.nan, np.inf, -1.0]
            )
            whole = 0 if not np.isfinite(value) or abs(value) > 2**62 else int(value)
            wanted = value if array.dtype.kind == "f" else np.int64(whole).astype(array.dtype)
            array[rng.randrange(len(array))] = wanted
        elif what == 3:
            array = array[: rng.randrange(len(array) + 1)]
        elif what == 4:
            array = np.concatenate([array, array])
        else:
            array = np.nan_to_num(array.astype(np.float64)).astype(rng.choice(["<f8", "<i4", "|u1", "|b1"]))
    owner[key] = _packed(array)
    if rng.random() < 0.5:
        owner[key]["shape"] = entry["shape"]
    if rng.random() < 0.1:
        owner[key]["shape"] = rng.choice([*HOSTILE, [2**40], [-1], [4, -1], [1e300], [10**30, 0]])


@cache
def _onnx_model() -> Any:
    import onnx.parser

    return onnx.parser.parse_model(ONNX)


def _onnx(rng: random.Random) -> bytes:
    if rng.random() < 0.25:
        return damaged(_onnx_model().SerializeToString(), rng)
    content: bytes = mutated_message(_onnx_model(), rng).SerializeToString()
    return damaged(content, rng) if rng.random() < 0.05 else content


@cache
def _ir() -> tuple[bytes, bytes]:
    """A small IR without what is not needed, and its weights."""
    import tempfile

    import openvino as ov
    from openvino import opset13 as ops

    x = ops.parameter([1, 4], np.float32, name="x")
    y = ops.matmul(x, ops.constant(np.ones((4, 2), np.float32), name="w"), False, False, name="y")
    z = ops.relu(ops.add(y, ops.constant(np.ones((1, 2), np.float32))), name="z")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "net.xml"
        ov.save_model(ov.Model([ops.result(z, name="out")], [x], "net"), str(path), compress_to_fp16=False)
        return (path.read_text().partition("<rt_info>")[0] + "</net>").encode(), path.with_suffix(
            ".bin"
        ).read_bytes()


def _xml(rng: random.Random) -> bytes:
    return mutated_xml(_ir()[0], rng) if rng.random() < 0.7 else mutated_text(_ir()[0].decode(), rng)


def _read_ir(path: Path) -> None:
    weights = path.with_suffix(".bin")
    if not weights.exists():
        weights.write_bytes(_ir()[1])
    _use(path)


@cache
def _weights_file() -> bytes:
    import tempfile

    from loadmaster.placers.learned.gdp import save_weights
    from loadmaster.placers.learned.gdp._weights import untrained

    with tempfile.TemporaryDirectory() as folder:
        save_weights(Path(folder) / "w.npz", untrained())
        return (Path(folder) / "w.npz").read_bytes()


def _npz(rng: random.Random) -> bytes:
    base = _weights_file()
    if rng.random() < 0.5:
        return damaged(base[:400], rng) + base[400:]
    return base[:-2000] + damaged(base[-2000:], rng)


def _read_weights(path: Path) -> None:
    from loadmaster.placers.learned.gdp._weights import load_weights

    load_weights(path)


@cache
def _cache_file() -> bytes:
    import tempfile

    from loadmaster.runtime import Cache

    with tempfile.TemporaryDirectory() as folder:
        Cache(Path(folder) / "c").put("run", {"a": 1}, {"status": "measured", "seconds": 1.0})
        return (Path(folder) / "c").read_bytes()


def _read_cache(path: Path) -> None:
    from loadmaster.runtime import Cache
    from loadmaster.runtime._evaluator import Result

    for journal in (f"{path}-journal", f"{path}-wal"):
        if os.path.exists(journal):
            os.unlink(journal)
    Cache(path).get_as("run", {"a": 1}, Result)


KNOWN = Path(loadmaster.bench.__file__).parent / "known"
BOARD = {
    "key": {"instance": "tiny-serial-0", "hash": "1832ed897efbff43", "method": "auto", "evaluations": 2000, "seed": 0},
    "when": "2026-11-17T19:50:25+00:00",
    "row": {"cost": 3.0, "bound": 2.9, "bound_by": "x", "optimal": True, "seconds_taken": 0.8, "evaluations_made": 337,
            "found_by": "x", "history": [[0.3, 0, 4.5], [0.8, 12, 3.0]], "machine": "m", "versions": "v", "why": "x"},
}  # fmt: skip
PLOT = {
    "key": {"method": "greedy", "seed": 1},
    "when": "2026-01-01",
    "row": {"best": 1.0, "10": 2.0, "100": 1.5},
}
ROW = {"key": {"case": 1}, "when": "2026-01-01", "row": {"cost": 1.0}}


def _read_rows(path: Path) -> None:
    from loadmaster.studies import Rows

    Rows(path)


def _read_board(path: Path) -> None:
    from loadmaster.bench._board import board_data, board_page, read_rows

    board_page(board_data(read_rows([path])))


def _read_plot(path: Path) -> None:
    from loadmaster.studies import read_regrets, regret_curves

    regret_curves(read_regrets([path]))


def _lines(document: Any) -> Callable[[random.Random], bytes]:
    """A file of rows with a wrong one at some place."""
    good, wrong = json.dumps(document).encode() + b"\n", _json(lambda: document)

    def make(rng: random.Random) -> bytes:
        return good * rng.randrange(3) + wrong(rng) + b"\n" + good * rng.randrange(2)

    return make


@cache
def _instance() -> tuple[Any, Problem, dict[str, Any]]:
    """An instance of the benchmark, made, and what is known about it."""
    from loadmaster.bench import instances

    found = instances()["tiny-serial-0"]
    return found, found.problem(), json.loads((KNOWN / f"{found.name}.json").read_text())


def _submission() -> Any:
    instance, problem, known = _instance()
    from loadmaster.bench._placements import pack_array

    prices = {"kind": "prices", "memory": pack_array(np.zeros(problem.devices))}
    return {
        "format": "loadmaster-submission/1", "instance": instance.name, "hash": instance.hash, "cost": known["cost"],
        "placement": known["placement"], "found_by": "somebody",
        "bound": {"value": 0.0, "by": "somebody", "certificate": prices},
    }  # fmt: skip


def _read_submission(path: Path) -> None:
    from loadmaster.bench import submit

    folder = path.parent / "known"
    folder.mkdir(exist_ok=True)
    (folder / "tiny-serial-0.json").write_text(json.dumps(_instance()[2]))
    submit(path, folder=folder, problem=_instance()[1])


def _read_known(path: Path) -> None:
    from loadmaster.bench import instances, read_known, verify

    folder = path.parent / "known"
    folder.mkdir(exist_ok=True)
    (folder / "tiny-serial-0.json").write_bytes(path.read_bytes())
    read_known("tiny-serial-0", folder)
    verify([instances()["tiny-serial-0"]], folder=folder)


@cache
def _program_file() -> bytes:
    import torch

    program = torch.export.export(torch.nn.Linear(4, 3), (torch.ones(2, 4),))
    stream = io.BytesIO()
    torch.export.save(program, stream)
    return stream.getvalue()


def _pt2(rng: random.Random) -> bytes:
    """An archive written anew with one of its JSON parts changed, or damaged bytes."""
    import zipfile

    base = _program_file()
    if rng.random() < 0.3:
        return damaged(base, rng)
    stream = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(base)) as old, zipfile.ZipFile(stream, "w") as new:
        chosen = rng.choice([part.filename for part in old.infolist() if part.filename.endswith(".json")])
        for part in old.infolist():
            content = old.read(part)
            if part.filename == chosen:
                content = json.dumps(mutated_tree(json.loads(content), rng)).encode()
            new.writestr(part.filename, content)
    return stream.getvalue()


def _read_placement(path: Path) -> None:
    api.read_placement(path, small_problem())


@cache
def _workload() -> Any:
    from loadmaster.graph.workload import parse_workload

    return parse_workload(WORKLOAD, "workload")


def _read_split(path: Path) -> None:
    api.read_placement(path, _workload())


def _read_groups(path: Path) -> None:
    from loadmaster.problem.coarsening import coarsen

    coarsen(small_problem(), f"fused:{path}")


def _read_cluster(path: Path) -> None:
    api.problem(small_problem().graph, cluster=load_cluster(path))


def _read_devices(path: Path) -> None:
    from loadmaster.runtime.openvino import parse_devices

    parse_devices([str(path)])


def _read_table(path: Path) -> None:
    problem = small_problem()
    costs = read_costs(path, problem.graph, problem.cluster)
    Problem.make(problem.graph, problem.cluster, Serial(), time=costs.time)


def _dump_graph() -> Any:
    from loadmaster.graph._file import dump_graph

    return dump_graph(small_problem().graph)


PLACE = ("place", "FILE", "--evaluations", "5", "--method", "greedy", "--json")
PLACEMENT = {
    "placement": {f"op{v}": "cpu" for v in range(4)},
    "order": [0, 1, 2, 3],
    "call": {f"op{v}": 0 for v in range(4)},
}
SPLIT = {"fpgas": [{"nodes": [0, 1]}], "cpus": [{"nodes": [2, 3]}]}

FORMATS = (
    Format("problem", ".json", _json(lambda: dump_problem(small_problem())), _use, (("inspect", "FILE"), PLACE), 10),
    Format("graph", ".json", _json(_dump_graph), _use, (("inspect", "FILE"), PLACE), 8),
    Format("workload", ".json", _json(lambda: WORKLOAD), _use, (("inspect", "FILE"), PLACE), 8),
    Format(
        "plan",
        ".json",
        _json(small_plan),
        _use,
        (
            ("explain", "FILE"),
            ("lint", "FILE"),
            ("report", "FILE", "-o", "OUT.html"),
            ("trace", "FILE", "-o", "OUT.json"),
            ("diff", "FILE", "PLAN"),
            ("export", "FILE", "--format", "json"),
        ),
        10,
    ),
    Format("packed", ".json", _packed_plan, _use, (("explain", "FILE"), ("report", "FILE", "-o", "OUT.html")), 10),
    Format("profile", ".json", _json(lambda: problem_document(small_problem())), _use, (("inspect", "FILE"), PLACE), 6),
    Format("placement", ".json", _json(lambda: PLACEMENT), _read_placement, (("evaluate", "PROBLEM", "--placement", "FILE"),), 8),
    Format("split", ".json", _json(lambda: SPLIT), _read_split, (("evaluate", "WORKLOAD", "--placement", "FILE"),), 6),
    Format("groups", ".json", _json(lambda: [["op0", "op1"], ["op2"]]), _read_groups, (("place", "PROBLEM", "--coarsen", "fused:FILE", "--evaluations", "5"),)),
    Format("cluster", ".toml", lambda rng: mutated_text(CLUSTER, rng), _read_cluster, (("clusters", "FILE"), ("place", "zoo:layered-4", "--cluster", "FILE", "--evaluations", "5", "--method", "greedy")), 8),
    Format("devices", ".toml", lambda rng: mutated_text(DEVICES, rng), _read_devices, (("devices", "--device", "FILE"),), 4),
    Format("csv", ".csv", lambda rng: mutated_text(CSV, rng), _read_table, (("place", "GRAPH", "--cluster", "CLUSTER", "--costs", "FILE", "--evaluations", "5", "--method", "greedy"),), 8),
    Format("costs", ".json", _json(lambda: COSTS), _read_table, (("place", "GRAPH", "--cluster", "CLUSTER", "--costs", "FILE", "--evaluations", "5", "--method", "greedy"),), 6),
    Format("onnx", ".onnx", _onnx, _use, (("inspect", "FILE"), PLACE), 12),
    Format("ir", ".xml", _xml, _read_ir, (("inspect", "FILE"),), 8),
    Format("pt2", ".pt2", _pt2, _use, (("inspect", "FILE"),), 1),
    Format("weights", ".npz", _npz, _read_weights, (("place", "zoo:layered-4", "--method", "gdp", "--set", "weights=FILE", "--evaluations", "5"),), 2),
    Format("cache", ".sqlite", lambda rng: damaged(_cache_file(), rng), _read_cache, (), 3),
    Format("board", ".jsonl", _lines(BOARD), _read_board, (("bench", "board", "FILE", "-o", "OUT.html"),), 3),
    Format("plot", ".jsonl", _lines(PLOT), _read_plot, (("plot", "FILE", "-o", "OUT.svg"), ("plot", "FILE", "-o", "OUT.png", "--json")), 4),
    Format("submission", ".json", _json(_submission), _read_submission, (("bench", "submit", "FILE", "--known", "OUT.known"),), 4),
    Format("known", ".json", _json(lambda: _instance()[2]), _read_known, (), 3),
    Format("rows", ".jsonl", lambda rng: _json(lambda: ROW)(rng) + b"\n", _read_rows, (), 4),
)  # fmt: skip
"""All of them; ``weight`` says how often each is drawn."""


def fixed_files(folder: Path) -> dict[str, str]:
    """The good files that commands need beside a wrong one, by the word that stands for them."""
    content = {
        "PLAN": ("plan.json", json.dumps(small_plan())),
        "PROBLEM": ("problem.json", json.dumps(dump_problem(small_problem()))),
        "WORKLOAD": ("workload.json", json.dumps(WORKLOAD)),
        "GRAPH": ("graph.json", json.dumps(_dump_graph())),
        "CLUSTER": ("two.toml", CLUSTER.replace("count = 2\n", "")),
    }
    found = {}
    for word, (name, text) in content.items():
        (folder / name).write_text(text)
        found[word] = str(folder / name)
    return found


__all__ += ["CLUSTER", "CSV", "WORKLOAD", "fixed_files", "pack_problem"]
