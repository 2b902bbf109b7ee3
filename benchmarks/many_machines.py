"""Two Ray nodes on one machine against one process: throughput, transports, nodes that die.

    python -m benchmarks.many_machines --parts throughput --models inception-v3 --requests 64
    python -m benchmarks.many_machines --parts transport
    python -m benchmarks.many_machines --parts kills --kills 30 --requests 500 --rows FILE
    python -m benchmarks.many_machines --parts memory --models bert-base       # needs root, and cgroups of version 1

Nodes have a core each and listen on loopback alone. ``--on HOST:PORT`` uses nodes that are there already
(``python -m loadmaster.runtime.ray 2``), except for kills, which need nodes of their own.

- ``throughput``: the same pieces as a pipeline of threads in this process and over two nodes, in turns.
- ``transport``: two calls in a row on two nodes, through the object store and by a compiled graph, in turns.
- ``memory``: two nodes with 0.7 of the memory each that a node needs for the whole model; the unplaced model there, and
  the plan.
- ``kills``: a random node that holds half of a model is killed in the middle of a stream; every answer is compared.
"""

from __future__ import annotations

import argparse
import os
import random
import statistics
import tempfile
import time
from contextlib import ExitStack, suppress
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from loadmaster import api
from loadmaster.graph.openvino import openvino_model
from loadmaster.problem import Pipeline
from loadmaster.runtime import Cache, Piece, cut
from loadmaster.runtime.openvino import Devices, Overlapped, draw_inputs, parse_devices, profile_model
from loadmaster.studies import Case, Page, Row, Scope, Study

__all__ = ["STUDY"]

PARTS = ("throughput", "transport", "memory", "kills")
SLOTS = 3


def options(parser: argparse.ArgumentParser) -> None:
    """What, and how much of it."""
    parser.add_argument("--parts", default=",".join(PARTS))
    parser.add_argument("--models", default="inception-v3,resnet-50,bert-base")
    parser.add_argument("--requests", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--kills", type=int, default=30)
    parser.add_argument("--on", default="local:2")
    parser.add_argument("--folder", default="", help="where models and the cache of measurements are kept")


def cases(scope: Scope) -> list[Case]:
    """One per model, size and kill."""
    parts, requests, rounds, on = scope["parts"].split(","), scope["requests"], scope["rounds"], scope["on"]
    found = []
    if "throughput" in parts:
        for model in scope["models"].split(","):
            key = {"part": "throughput", "model": model, "requests": requests, "rounds": rounds}
            found.append(Case(key, partial(throughput, model, requests, rounds, on, scope["folder"])))
    if "transport" in parts:
        for size in (1_000, 300_000, 1_200_000):
            key = {"part": "transport", "bytes": size, "rounds": rounds}
            found.append(Case(key, partial(transport, size, requests, rounds, on)))
    if "memory" in parts:
        for model in scope["models"].split(","):
            found.append(Case({"part": "memory", "model": model}, partial(memory, model, scope["folder"])))
    if "kills" in parts:
        for number in range(scope["kills"]):
            key = {"part": "kills", "number": number, "requests": requests}
            found.append(Case(key, partial(kill, number, requests)))
    return found


# -- throughput ------------------------------------------------------------------------------------------------


def _plan(model: str, folder: str) -> tuple[Path, list[Piece]]:
    """A model of the zoo, and the pieces of a pipeline over two cores; kept, since profiling takes a while."""
    home = Path(folder or tempfile.gettempdir()) / "loadmaster-many-machines"
    home.mkdir(parents=True, exist_ok=True)
    path = home / f"{model}.xml"
    if not path.exists():
        api.write_zoo_model(model, path)
    profile = profile_model(
        path,
        parse_devices(["A=cpu", "B=cpu"]),
        cache=Cache(home / "cache.sqlite"),
        clock="core",
        links_too=False,
    )
    problem = profile.problem(model=Pipeline(contiguity="chain"))
    return path, cut(problem, api.place(problem, budget=5.0).placement)


_held = ExitStack()


def _machines(on: str) -> Any:
    """Nodes that stay for all cases which can share them: starting some takes longer than a case."""
    from loadmaster.runtime import ray

    return _held.enter_context(ray.connected(on))


def throughput(name: str, requests: int, rounds: int, on: str, folder: str) -> Row:
    """Requests per second of both, in turns, and whether their outputs are the same."""
    from loadmaster.runtime import ray

    path, pieces = _plan(name, folder)
    model = openvino_model(path)
    inputs = draw_inputs(model, 1)
    machines = _machines(on)
    nodes = {"A": machines.nodes()[0].name, "B": machines.nodes()[1].name}
    there = parse_devices([f"{node}/cpu" for node in nodes.values()])
    spread_pieces = [Piece(f"{nodes[piece.device]}/cpu", piece.ops) for piece in pieces]
    with ray.Actors(machines, there) as actors:
        spread = ray.Spread(model, actors, spread_pieces, slots=SLOTS)
        here = Overlapped(
            model, Devices(parse_devices(["A=cpu:core=0", "B=cpu:core=1"])), pieces, slots=SLOTS
        )
        taken: dict[str, list[float]] = {"process": [], "nodes": []}
        answers: dict[str, Any] = {}
        runs = {"process": here.stream, "nodes": spread.stream}
        for _ in range(rounds + 1):
            for label, run in runs.items():
                began = time.perf_counter()
                for outputs in run([inputs] * requests):
                    answers[label] = outputs
                taken[label].append((time.perf_counter() - began) / requests)
        here.close()
    same = all(np.array_equal(a, b) for a, b in zip(answers["process"], answers["nodes"], strict=True))
    median = {label: statistics.median(values[1:]) for label, values in taken.items()}
    return {
        "process, ms": 1e3 * median["process"],
        "nodes, ms": 1e3 * median["nodes"],
        "ratio": median["process"] / median["nodes"],
        "equal": same,
        "submodels": len(pieces),
        "sent, MB": sum(actors.sent.values()) / 1e6,
    }


# -- transports ------------------------------------------------------------------------------------------------


class Stage:
    """A stage that computes for a while and gives back as much as it got."""

    def step(self, array: Any) -> Any:
        end = time.perf_counter() + 0.02
        while time.perf_counter() < end:
            pass
        return array + 1


def transport(size: int, requests: int, rounds: int, on: str) -> Row:
    """Milliseconds per request of two stages of 20 ms each on two nodes, with three requests in flight."""
    machines = _machines(on)
    import ray
    from ray.dag import InputNode
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    made = ray.remote(Stage)
    stages = [
        made.options(
            num_cpus=0, scheduling_strategy=NodeAffinitySchedulingStrategy(node.id, soft=False)
        ).remote()
        for node in machines.nodes()[:2]
    ]
    again = [
        made.options(
            num_cpus=0, scheduling_strategy=NodeAffinitySchedulingStrategy(node.id, soft=False)
        ).remote()
        for node in machines.nodes()[:2]
    ]
    x = np.zeros(size // 4, np.float32)
    with InputNode() as given:
        graph = (
            again[1]
            .step.bind(again[0].step.bind(given))
            .experimental_compile(_max_inflight_executions=SLOTS, _buffer_size_bytes=2 * size + 10_000)
        )
    submit = {
        "store": lambda: stages[1].step.remote(stages[0].step.remote(ray.put(x))),
        "graph": lambda: graph.execute(x),
    }
    taken: dict[str, list[float]] = {label: [] for label in submit}
    for _ in range(rounds + 1):
        for label, start in submit.items():
            began, flying = time.perf_counter(), []
            for _ in range(requests):
                if len(flying) >= SLOTS:
                    ray.get(flying.pop(0))
                flying.append(start())
            for ref in flying:
                ray.get(ref)
            taken[label].append((time.perf_counter() - began) / requests)
    graph.teardown()
    for actor in (*stages, *again):
        ray.kill(actor)
    return {f"{label}, ms": 1e3 * statistics.median(values[1:]) for label, values in taken.items()}


# -- memory ----------------------------------------------------------------------------------------------------

LIMITED = 0.7
CGROUPS = Path("/sys/fs/cgroup/memory")


def _limited(node: Any, name: str, limit: float | None) -> Path:
    """A group with a limit on memory, and the processes of a node in it; those that they start later are in it, too."""
    import psutil

    group = CGROUPS / f"loadmaster-{os.getpid()}-{name}"
    group.mkdir()
    if limit is not None:
        (group / "memory.limit_in_bytes").write_text(str(int(limit)))
    for process in node.all_processes["raylet"]:
        raylet = psutil.Process(process.process.pid)
        for each in (raylet, *raylet.children(recursive=True)):
            (group / "cgroup.procs").write_text(str(each.pid))
    return group


def memory(name: str, folder: str) -> Row:
    """Peak of a node with the whole model, and what happens on nodes that have less."""
    from loadmaster.errors import RunError
    from loadmaster.runtime import ray as many

    _held.close()
    path, pieces = _plan(name, folder)
    model = openvino_model(path)
    inputs = draw_inputs(model, 1)
    expected = [np.array(v) for v in Devices(parse_devices(["R=cpu"])).compile(model, "R")(inputs).values()]
    whole = tuple(op for piece in pieces for op in piece.ops)
    groups: list[Path] = []
    row: Row = {}
    with many.connected("local") as machines:

        def add(node: str, limit: float | None) -> None:
            started = machines.own.add_node(
                num_cpus=1,
                object_store_memory=100 * 2**20,
                node_name=node,
                node_ip_address="127.0.0.1",
                include_log_monitor=False,
            )
            groups.append(_limited(started, node, limit))

        def outputs(placed: list[Piece]) -> Any:
            names = dict.fromkeys(piece.device for piece in placed)
            with many.Actors(machines, parse_devices(list(names))) as actors:
                return next(many.Spread(model, actors, placed).stream([inputs]))

        add("free", None)
        outputs([Piece("free/cpu", whole)])
        peak = float((groups[0] / "memory.max_usage_in_bytes").read_text())
        row["peak, MB"], row["limit, MB"] = peak / 1e6, LIMITED * peak / 1e6
        add("left", LIMITED * peak)
        add("right", LIMITED * peak)
        seen = many.see(machines)
        row["limit as the node says it, MB"] = seen["left"]["memory"] / 1e6
        names = {"A": "left/cpu", "B": "right/cpu"}
        found = outputs([Piece(names[piece.device], piece.ops) for piece in pieces])
        row["plan equal"] = all(
            np.allclose(a, b, rtol=1e-4, atol=1e-5) for a, b in zip(found, expected, strict=True)
        )
        try:
            outputs([Piece("left/cpu", whole)])
            row["unplaced"] = "runs"
        except RunError as error:
            row["unplaced"] = str(error)
    for group in groups:
        with suppress(OSError):
            group.rmdir()
    return row


# -- kills -----------------------------------------------------------------------------------------------------


def kill(number: int, requests: int) -> Row:
    """One stream in which a node is killed: wrong answers, lost ones, seconds to go on.

    Three nodes: the first is the head and holds the driver; one of the two others dies.
    """
    from loadmaster import open as open_plan
    from loadmaster.plan import Plan
    from loadmaster.problem import Placement, Solution, evaluate
    from loadmaster.runtime import ray as many

    _held.close()
    draw = random.Random(number)
    with tempfile.TemporaryDirectory() as folder, many.connected("local:3") as machines:
        path = _small(Path(folder) / "net.xml")
        model = openvino_model(path)
        expected = Devices(parse_devices(["R=cpu"])).compile(model, "R")
        devices = parse_devices(["node2/cpu", "node3/cpu"])
        profile = many.profile_model(path, devices, clock="core")
        problem = profile.problem(model=Pipeline())
        half = Placement((problem.graph.position >= problem.n // 2).astype(np.int32))
        plan = Plan.from_solution(
            problem, Solution(half, evaluate(problem, half).cost, 0.0, "nothing", "halves")
        )
        victim, when = draw.choice(("node2", "node3")), draw.randrange(5, requests - 5)
        wrong = answered = 0
        slowest, last = 0.0, time.perf_counter()
        inputs = [draw_inputs(model, 100 * number + at) for at in range(20)]
        right = [[np.array(v) for v in expected(x).values()] for x in inputs]
        with open_plan(path, plan, on="local:3", replan=True) as net:
            stream = net.stream(tuple(inputs[at % 20]) for at in range(requests))
            for at, outputs in enumerate(stream):
                found = outputs if isinstance(outputs, tuple) else (outputs,)
                wrong += not all(
                    np.allclose(a, b, rtol=1e-4, atol=1e-5)
                    for a, b in zip(found, right[at % 20], strict=True)
                )
                answered += 1
                slowest, last = max(slowest, time.perf_counter() - last), time.perf_counter()
                if at == when:
                    node = next(n for n in machines.own.worker_nodes if n.node_name == victim)
                    machines.own.remove_node(node, allow_graceful=False)
                    last = time.perf_counter()
            replanned = list(net.running.replanned)
    return {
        "victim": victim,
        "after": when,
        "answered": answered,
        "wrong": wrong,
        "replanned": len(replanned),
        "replan, s": sum(replanned),
        "longest wait, s": slowest,
    }


def _small(path: Path) -> Path:
    """Six layers of convolutions."""
    import openvino as ov
    from openvino import opset13 as ops

    generator = np.random.default_rng(0)
    x = y = ops.parameter([1, 8, 32, 32], np.float32, name="x")
    for i in range(6):
        weight = ops.constant(generator.normal(size=(8, 8, 3, 3)).astype(np.float32) * 0.12)
        y = ops.relu(
            ops.convolution(y, weight, [1, 1], [1, 1], [1, 1], [1, 1], name=f"conv{i}"), name=f"relu{i}"
        )
    ov.save_model(ov.Model([ops.result(y)], [x], "small"), str(path), compress_to_fp16=False)
    return path


def write(page: Page, scope: Scope, rows: list[Row]) -> None:
    """A table for each part that was run."""
    for part in PARTS:
        mine = [{k: v for k, v in row.items() if k != "part"} for row in rows if row.get("part") == part]
        if mine:
            page.section(part)
            columns = [name for name in mine[0] if not name.startswith("_")]
            page.table(columns, [[row.get(name) for name in columns] for row in mine])


STUDY = Study("many_machines", "Two Ray nodes on one machine", cases, write, options, here=True)

if __name__ == "__main__":
    with _held:
        raise SystemExit(STUDY.main())
