"""Two thousand damaged files of every format: what is wrong is said in an error of ours, and nothing else happens."""

import base64
import io
import json
import os
import random
import sqlite3
import tempfile
import zlib
from pathlib import Path

import numpy as np
import onnx
import onnx.parser
import pytest
from mutations import HOSTILE, damaged, mutated_json, mutated_text, mutated_tree
from small_networks import ops, ov

from loadmaster import api
from loadmaster.errors import LoadmasterError
from loadmaster.graph import GraphBuilder, load_openvino
from loadmaster.graph._file import dump_graph
from loadmaster.hardware import Cluster, Device, Link, load_cluster, read_costs
from loadmaster.plan import Plan, problem_document
from loadmaster.problem import Concurrent, Placement, Problem, Solution
from loadmaster.problem._evaluator import evaluate
from loadmaster.problem._file import dump_problem
from loadmaster.problem.coarsening import coarsen
from loadmaster.runtime import Cache
from loadmaster.runtime._evaluator import Result
from loadmaster.runtime.openvino._devices import parse_devices

FILES = 2000


@pytest.fixture
def folder(tmp_path):
    """In memory where that is possible: thousands of files are written."""
    memory = Path("/dev/shm")
    if not os.access(memory, os.W_OK):
        yield tmp_path
        return
    with tempfile.TemporaryDirectory(dir=memory) as name:
        yield Path(name)


def small_problem() -> Problem:
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


def small_plan(problem: Problem) -> dict:
    device = np.array([0, 0, 1, 1], np.int32)
    solution = Solution(
        Placement(device, order=np.arange(4, dtype=np.int32)), 5.0, 4.0, "path", "greedy", evaluations=3
    )
    measured = {
        "median": 0.1,
        "low": 0.1,
        "high": 0.2,
        "schedule": [{"op": "op0", "start": 0.0, "end": 0.1, "device": "gpu"}],
    }
    return json.loads(Plan.from_solution(problem, solution, measured=measured).to_bytes())


def only_our_errors(folder: Path, name: str, contents, read) -> None:
    """Read every content from a file of that name: it is taken, or refused by an error of ours in one sentence."""
    file = folder / name
    taken = 0
    for content in contents:
        file.write_bytes(content)
        try:
            read(file)
            taken += 1
        except LoadmasterError:
            continue
    assert taken < FILES, "nothing was refused: the mutations are no mutations"


def mutations(base, seed=0):
    rng = random.Random(seed)
    return (mutated_json(base, rng) for _ in range(FILES))


def use(file: Path) -> None:
    """Load a file, make a problem of it, and put every op on a device."""
    problem = api.problem(file)
    if problem.n:
        evaluate(problem, Placement(np.zeros(problem.n, np.int32)))


WORKLOAD = {
    "maxFPGAs": 1,
    "maxCPUs": 1,
    "maxSizePerFPGA": 100,
    "nodes": [
        {"id": v, "supportedOnFpga": v != 2, "cpuLatency": 2.0, "fpgaLatency": 1.0, "size": 3, "isBackwardNode": False,
         "colorClass": v % 2}
        for v in range(4)
    ],
    "edges": [{"sourceId": v, "destId": v + 1, "cost": 0.5, "size": 8} for v in range(3)],
}  # fmt: skip


@pytest.mark.parametrize("kind", ["problem", "graph", "workload", "plan", "profile"])
def test_json_models(folder, kind):
    problem = small_problem()
    base = {
        "problem": lambda: dump_problem(problem),
        "graph": lambda: dump_graph(problem.graph),
        "workload": lambda: WORKLOAD,
        "plan": lambda: small_plan(problem),
        "profile": lambda: json.loads(json.dumps(problem_document(problem))),
    }[kind]()
    only_our_errors(folder, "model.json", mutations(base), use)


def packed(array: np.ndarray) -> dict:
    data = base64.b64encode(zlib.compress(array.tobytes())).decode()
    return {"dtype": array.dtype.str, "shape": list(array.shape), "data": data}


def with_hash(document: dict) -> dict:
    """The plan with hashes that fit what is in it, as anybody can compute them; unchanged where that is impossible."""
    import hashlib

    from loadmaster.graph import Graph

    try:
        inside = document["problem"]
        labels = json.loads(zlib.decompress(base64.b64decode(inside["graph"]["labels"])))
        unpacked = {
            key: np.frombuffer(zlib.decompress(base64.b64decode(entry["data"])), entry["dtype"])
            for key, entry in inside["graph"]["arrays"].items()
        }
        graph = Graph(
            name="net",
            names=tuple(labels["names"]),
            op_types=tuple(labels["op_types"]),
            output_shapes=tuple(
                tuple(tuple(shape) for shape in shapes) for shapes in labels["output_shapes"]
            ),
            **unpacked,
        )
        h = hashlib.sha256(graph.digest.encode())
        names = tuple(device["name"] for device in inside["cluster"]["devices"])
        kinds = [device["kind"] for device in inside["cluster"]["devices"]]
        h.update(repr((Concurrent(), names, kinds, tuple(inside["surplus"]))).encode())
        order = ("time", "size", "latency", "rate", "send_latency", "send_rate", "recv_latency", "recv_rate",
                 "memory", "capacity", "resident", "class_of", "pin", "forbidden")  # fmt: skip
        for key in order:
            h.update(zlib.decompress(base64.b64decode(inside["arrays"][key]["data"])))
        document["graph"]["hash"], inside["hash"] = graph.digest, h.hexdigest()
    except Exception:
        pass
    return document


def mutated_arrays(base: dict, rng: random.Random) -> dict:
    """The plan with other numbers in its packed arrays, of other lengths or types, and hashes that fit."""
    document = json.loads(json.dumps(base))
    inside = document["problem"]
    for _ in range(rng.choice([1, 1, 2])):
        if rng.random() < 0.2:
            labels = json.loads(zlib.decompress(base64.b64decode(inside["graph"]["labels"])))
            text = json.dumps(mutated_tree(labels, rng)).encode()
            inside["graph"]["labels"] = base64.b64encode(zlib.compress(text)).decode()
            continue
        if rng.random() < 0.1:
            inside["cluster"] = mutated_tree(inside["cluster"], rng)
            continue
        owner = rng.choice([inside["graph"]["arrays"], inside["arrays"]])
        key = rng.choice(list(owner))
        entry = owner[key]
        array = np.frombuffer(zlib.decompress(base64.b64decode(entry["data"])), entry["dtype"]).copy()
        what = rng.randrange(6)
        if what < 3 and len(array):
            value = rng.choice(
                [0, 1, 2, 3, -1, 7, 255, 2**31 - 1, -(2**31), 1e308, 1e-320, np.nan, np.inf, -1.0]
            )
            with np.errstate(all="ignore"):
                array[rng.randrange(len(array))] = (
                    value
                    if array.dtype.kind == "f"
                    else np.array(value, np.float64).astype(np.int64).astype(array.dtype)
                )
        elif what == 3:
            array = array[: rng.randrange(len(array) + 1)]
        elif what == 4:
            array = np.concatenate([array, array])
        else:
            with np.errstate(all="ignore"):
                array = array.astype(rng.choice(["<f8", "<i4", "|u1", "|b1"]))
        owner[key] = packed(array)
        if rng.random() < 0.5:
            owner[key]["shape"] = entry["shape"]
        if rng.random() < 0.1:
            owner[key]["shape"] = rng.choice([*HOSTILE, [2**40], [-1], [4, -1], [1e300], [10**30, 0]])
    return with_hash(document)


@pytest.mark.filterwarnings("ignore:invalid value encountered in cast")
def test_plans_whose_hash_fits(folder):
    base = small_plan(small_problem())
    assert Plan.parse(with_hash(json.loads(json.dumps(base))), "plan").problem() == small_problem()
    rng = random.Random(1)
    contents = (json.dumps(mutated_arrays(base, rng)).encode() for _ in range(FILES))
    only_our_errors(folder, "plan.json", contents, use)


def test_placements(folder):
    problem = small_problem()
    base = {
        "placement": {f"op{v}": "cpu" for v in range(4)},
        "order": [0, 1, 2, 3],
        "call": {f"op{v}": 0 for v in range(4)},
    }
    only_our_errors(folder, "placement.json", mutations(base), lambda file: api.read_placement(file, problem))


def test_splits(folder):
    (folder / "workload.json").write_text(json.dumps(WORKLOAD))
    workload = api.load(folder / "workload.json")
    base = {"fpgas": [{"nodes": [0, 1]}], "cpus": [{"nodes": [2, 3]}]}
    only_our_errors(folder, "split.json", mutations(base), lambda file: api.read_placement(file, workload))


def test_groups_of_fused_ops(folder):
    problem = small_problem()
    base = [["op0", "op1"], ["op2"]]
    only_our_errors(folder, "groups.json", mutations(base), lambda file: coarsen(problem, f"fused:{file}"))


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


def test_clusters(folder):
    rng = random.Random(2)
    graph = small_problem().graph
    contents = (mutated_text(CLUSTER, rng) for _ in range(FILES))
    only_our_errors(folder, "box.toml", contents, lambda file: api.problem(graph, cluster=load_cluster(file)))


def test_devices_to_run_on(folder):
    rng = random.Random(3)
    base = '[[device]]\nname = "A"\nplugin = "cpu"\nprecision = "f32"\nthreads = 1\n[[device]]\nname = "B"\n'
    contents = (mutated_text(base, rng) for _ in range(FILES))
    only_our_errors(folder, "devices.toml", contents, lambda file: parse_devices([str(file)]))


@pytest.mark.parametrize("kind", ["csv", "json"])
def test_costs(folder, kind):
    problem = small_problem()
    rows = [f'op{v},12 us,"unsupported",measured' for v in range(3)]
    table = "\n".join(["op,gpu,cpu,provenance", *rows, "*,estimate,0.5,"])
    tree = {
        "times": {
            "op0": {"gpu": "12 us", "cpu": None, "provenance": "measured"},
            "*": {"gpu": "estimate", "cpu": 1},
        }
    }
    rng = random.Random(4)
    contents = (mutated_text(table, rng) if kind == "csv" else mutated_json(tree, rng) for _ in range(FILES))

    def read(file):
        costs = read_costs(file, problem.graph, problem.cluster)
        Problem.make(problem.graph, problem.cluster, Concurrent(), time=costs.time)

    only_our_errors(folder, f"costs.{kind}", contents, read)


def test_onnx(folder):
    model = onnx.parser.parse_model("""
        <ir_version: 8, opset_import: ["" : 17]>
        net (float[1, 4] x) => (float[1, 2] y) <float[4, 2] w = {1, 2, 3, 4, 5, 6, 7, 8}> {
            h = MatMul(x, w)
            s = Shape(h)
            r = Reshape(h, s)
            y = Relu(r)
        }
    """)
    rng = random.Random(5)
    contents = (damaged(model.SerializeToString(), rng) for _ in range(FILES))
    only_our_errors(folder, "net.onnx", contents, use)


def test_openvino(folder, capfd):
    x = ops.parameter([1, 4], np.float32, name="x")
    y = ops.matmul(x, ops.constant(np.ones((4, 2), np.float32), name="w"), False, False, name="y")
    ov.save_model(
        ov.Model([ops.result(y, name="out")], [x], "net"), str(folder / "net.xml"), compress_to_fp16=False
    )
    base = (folder / "net.xml").read_text().partition("<rt_info>")[0] + "</net>"
    rng = random.Random(6)
    contents = (mutated_text(base, rng) for _ in range(FILES))
    only_our_errors(folder, "net.xml", contents, load_openvino)


def test_caches(folder):
    file = folder / "base.sqlite"
    Cache(file).put("run", {"a": 1}, {"status": "measured", "seconds": 1.0})
    base = file.read_bytes()
    rng = random.Random(7)

    def read(file):
        Cache(file).get_as("run", {"a": 1}, Result)

    only_our_errors(folder, "cache.sqlite", (damaged(base, rng) for _ in range(FILES)), read)
    for value in HOSTILE:
        with sqlite3.connect(file) as connection:
            connection.execute("UPDATE measured SET value = ?", (json.dumps(value),))
        connection.close()
        Cache(file).get_as("run", {"a": 1}, Result)


def test_rows(folder):
    from loadmaster.studies import Rows

    base = {"key": {"case": 1}, "when": "2026-01-01", "row": {"cost": 1.0}}
    contents = (content + b"\n" for content in mutations(base))
    only_our_errors(folder, "rows.jsonl", contents, Rows)


def test_weights(folder):
    from loadmaster.placers.learned.gdp._weights import load_weights, save_weights, untrained

    save_weights(folder / "base.npz", untrained())
    base = (folder / "base.npz").read_bytes()
    rng = random.Random(8)

    def contents():
        for _ in range(FILES):
            # The directory at the end and the headers are what a reader believes.
            cut = rng.choice([0, max(0, len(base) - 2000)])
            yield base[:cut] + damaged(base[cut:], rng) if cut else damaged(base[:400], rng) + base[400:]

    only_our_errors(folder, "weights.npz", contents(), load_weights)


def test_checkpoints(folder):
    import torch

    from loadmaster.placers import get_placer
    from loadmaster.placers.frame.search import Budget, Search
    from loadmaster.placers.learned._checkpoint import Checkpoint

    problem = small_problem()
    network = torch.nn.Linear(2, 1)
    settings = get_placer("placeto")

    def checkpoint(path, search):
        return Checkpoint(str(path), search, settings, 0, {"network": network}, np.random.default_rng(0))

    with Search(problem, Budget(evaluations=100), "placeto") as search:
        search.try_device(np.array([0, 0, 1, 1], np.int32))
        checkpoint(folder / "base.pt", search).save(1, now=True)
    base = (folder / "base.pt").read_bytes()
    good = torch.load(folder / "base.pt", weights_only=True)
    rng = random.Random(9)

    def contents():
        for _ in range(FILES // 2):
            yield damaged(base, rng)
        for _ in range(FILES // 2):
            entries = dict(good)
            entries[rng.choice(list(set(entries) - {"origin"}))] = rng.choice(HOSTILE)
            stream = io.BytesIO()
            torch.save(entries, stream)
            yield stream.getvalue()

    def read(file):
        with Search(problem, Budget(evaluations=100), "placeto") as search:
            checkpoint(file, search).resume()

    only_our_errors(folder, "state.pt", contents(), read)
