"""Two Ray nodes on one machine: against one process, over cables of some bandwidth, unequal, small, and killed.

    python -m benchmarks.many_machines                                  # all of it; about 17 minutes
    python -m benchmarks.many_machines --parts throughput --models inception-v3 --requests 64
    python -m benchmarks.many_machines --parts link --rates 1000,100    # root and iproute2, else over loopback
    python -m benchmarks.many_machines --parts unequal                  # root, and cgroups of version 1 or 2
    python -m benchmarks.many_machines --parts memory --models bert-base
    python -m benchmarks.many_machines --parts transport
    python -m benchmarks.many_machines --parts kills --kills 30 --kill-requests 500 --rows FILE

Nodes have a core each and listen on loopback alone, or inside network namespaces. ``--on HOST:PORT`` uses nodes that
are there already (``python -m loadmaster.runtime.ray 2``) for throughput.

- ``throughput``: the same pieces as a pipeline of threads in this process and over two nodes, in turns.
- ``link``: nodes in namespaces joined by a veth pair with ``tc tbf``: the plan that knows the link and the one that
  does not, in turns, measured against predicted.
- ``unequal``: the second node has half a core by a CPU quota. The plan for equal nodes runs; the slow one is noticed
  and the model placed anew; both, and the faster node alone, in turns.
- ``memory``: two nodes with room for 0.7 of what the whole model was seen to take: it is profiled there in parts,
  placed and run; and the unplaced model is tried on one of them.
- ``transport``: two stages on two nodes, by calls from actor to actor, the object store and a compiled graph.
- ``kills``: a random node of three is killed in the middle of a stream; every answer is compared.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import ExitStack, suppress
from functools import partial
from itertools import count
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

PARTS = ("throughput", "link", "unequal", "memory", "transport", "kills")
SLOTS = 3
CACHE = "cache.sqlite"


def options(parser: argparse.ArgumentParser) -> None:
    """What, and how much of it."""
    parser.add_argument("--parts", default=",".join(PARTS))
    parser.add_argument("--models", default="inception-v3,resnet-50,bert-base")
    parser.add_argument("--requests", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--link-rounds", type=int, default=2)
    parser.add_argument("--rates", default="1000,100", help="Mbit/s of the cable")
    parser.add_argument("--kills", type=int, default=30)
    parser.add_argument("--kill-requests", type=int, default=500)
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
    models, folder = scope["models"].split(","), scope["folder"]
    if "link" in parts:
        rates, fewer = [float(rate) for rate in scope["rates"].split(",")], scope["link_rounds"]
        for model in models:
            key = {
                "part": "link",
                "model": model,
                "requests": requests,
                "rounds": fewer,
                "rates": scope["rates"],
            }
            found.append(Case(key, partial(link, model, requests, fewer, rates, folder)))
    if "unequal" in parts:
        for model in models:
            key = {"part": "unequal", "model": model, "requests": requests, "rounds": rounds}
            found.append(Case(key, partial(unequal, model, requests, rounds, folder)))
    if "memory" in parts:
        for model in models:
            found.append(Case({"part": "memory", "model": model}, partial(memory, model, folder)))
    if "transport" in parts:
        for size in (1_000, 300_000, 1_200_000):
            key = {"part": "transport", "bytes": size, "rounds": rounds}
            found.append(Case(key, partial(transport, size, requests, rounds)))
    if "kills" in parts:
        for number in range(scope["kills"]):
            key = {"part": "kills", "number": number, "requests": scope["kill_requests"]}
            found.append(Case(key, partial(kill, number, scope["kill_requests"])))
    return found


# -- throughput ------------------------------------------------------------------------------------------------


def model_file(model: str, folder: str) -> Path:
    """A model of the zoo as a file, which is kept."""
    home = Path(folder or tempfile.gettempdir()) / "loadmaster-many-machines"
    home.mkdir(parents=True, exist_ok=True)
    path = home / f"{model}.xml"
    if not path.exists():
        api.write_zoo_model(model, path)
    return path


def _plan(model: str, folder: str) -> tuple[Path, list[Piece]]:
    """A model of the zoo, and the pieces of a pipeline over two cores; kept, since profiling takes a while."""
    path = model_file(model, folder)
    profile = profile_model(
        path,
        parse_devices(["A=cpu", "B=cpu"]),
        cache=Cache(path.parent / CACHE),
        clock="core",
        links_too=False,
    )
    problem = profile.problem(model=Pipeline(contiguity="chain"))
    return path, cut(problem, api.place(problem, budget=5.0).placement)


_held = ExitStack()
_addresses: list[str] = []


def _machines(on: str) -> Any:
    """Nodes that stay for all cases which can share them: starting some takes longer than a case."""
    from loadmaster.runtime import ray

    if _addresses != [on]:
        _leave()
        _addresses.append(on)
        _held.enter_context(ray.connected(on))
    return ray.current()


def _leave() -> None:
    """End the nodes that were kept."""
    _held.close()
    _addresses.clear()


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
        "ratio of the best rounds": min(taken["process"][1:]) / min(taken["nodes"][1:]),
        "equal": same,
        "submodels": len(pieces),
        "sent, MB": sum(actors.sent.values()) / 1e6,
    }


# -- transports ------------------------------------------------------------------------------------------------


class Stage:
    """A stage that computes for a while and gives back as much as it got."""

    def __init__(self) -> None:
        self._box: dict[int, Any] = {}
        self._come = threading.Condition()

    def step(self, array: Any) -> Any:
        """For a compiled graph."""
        end = time.perf_counter() + 0.02
        while time.perf_counter() < end:
            pass
        return array + 1

    def stored(self, refs: list[Any]) -> list[Any]:
        """By the object store."""
        import ray

        return [ray.put(self.step(ray.get(refs[0])))]

    def first(self, number: int, array: Any, to: Any) -> None:
        """By a call of the next stage."""
        to.keep.remote(number, self.step(array))

    def keep(self, number: int, array: Any) -> None:
        """What the stage before sends."""
        with self._come:
            self._box[number] = array
            self._come.notify_all()

    def last(self, number: int, _: None) -> Any:
        """Of what was sent."""
        with self._come:
            self._come.wait_for(lambda: number in self._box)
            return self.step(self._box.pop(number))


WAYS = ("calls", "store", "graph")
HANGS = 90.0
"""Seconds after which a way has hung; a compiled graph can take its process with it."""


def transport(size: int, requests: int, rounds: int) -> Row:
    """Milliseconds per request of two stages of 20 ms each on two nodes, with three requests in flight, in processes of
    their own."""
    _leave()
    row: Row = {}
    for way in WAYS:
        code = f"from benchmarks.many_machines import transported; transported({way!r}, {size}, {requests}, {rounds})"
        try:
            ran = subprocess.run(
                [sys.executable, "-c", code], capture_output=True, text=True, timeout=HANGS, check=False
            )
            said = [line for line in ran.stdout.splitlines() if line.startswith("taken ")]
            row[f"{way}, ms"] = (
                float(said[-1].split()[1])
                if said
                else (ran.stderr.strip().splitlines() or ["nothing"])[-1][:80]
            )
        except subprocess.TimeoutExpired:
            row[f"{way}, ms"] = f"hung for {HANGS:g} s"
    return row


def transported(way: str, size: int, requests: int, rounds: int) -> None:
    """One way, in this process."""
    import ray
    from ray.dag import InputNode
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    from loadmaster.runtime import ray as many

    with many.connected("local:2") as machines:
        ray.method(concurrency_group="mail")(Stage.keep)
        made = ray.remote(concurrency_groups={"mail": 1})(Stage)
        one, two = [
            made.options(
                num_cpus=0, scheduling_strategy=NodeAffinitySchedulingStrategy(node.id, soft=False)
            ).remote()
            for node in machines.nodes()[:2]
        ]
        x, numbers = np.zeros(size // 4, np.float32), count()
        if way == "graph":
            with InputNode() as given:
                graph = two.step.bind(one.step.bind(given)).experimental_compile(
                    _max_inflight_executions=SLOTS, _buffer_size_bytes=2 * size + 10_000
                )

        def submit() -> Any:
            if way == "graph":
                return graph.execute(x)
            if way == "store":
                return two.stored.remote(one.stored.remote([ray.put(x)]))
            number = next(numbers)
            return two.last.remote(number, one.first.remote(number, x, two))

        def taken(ref: Any) -> float:
            found = ray.get(ref)
            return float((ray.get(found[0]) if way == "store" else found)[0])  # no array outlives this

        times = []
        for _ in range(rounds + 1):
            began, flying = time.perf_counter(), []
            for _ in range(requests):
                if len(flying) >= SLOTS:
                    assert taken(flying.pop(0)) == 2.0
                flying.append(submit())
            while flying:
                assert taken(flying.pop(0)) == 2.0
            times.append((time.perf_counter() - began) / requests)
        print(f"taken {1e3 * statistics.median(times[1:])}", flush=True)


# -- links -----------------------------------------------------------------------------------------------------


def link(name: str, requests: int, rounds: int, rates: list[float], folder: str) -> Row:
    """The plan that knows the cable against the one that does not, at each rate."""
    from benchmarks import networks

    _leave()
    why = networks.why_not()
    if not why:
        return {"at": networks.in_namespaces(name, requests, rounds, rates, folder)}
    row = networks.measure(_machines("local:2"), name, requests, rounds, folder)
    return {"at": {f"loopback ({why})": row}}


# -- control groups --------------------------------------------------------------------------------------------

GROUPS = Path("/sys/fs/cgroup")
OLD = (GROUPS / "memory").is_dir()
"""Whether every controller has a tree of its own: version 1."""


class Group:
    """A control group with the processes of a node in it; those that they start later are in it, too."""

    def __init__(self, node: Any, name: str, kind: str, settings: dict[str, str]) -> None:
        import psutil

        tree = GROUPS / kind if OLD else GROUPS
        if not OLD:
            (tree / "cgroup.subtree_control").write_text(f"+{kind}")
        self.path = tree / f"loadmaster-{os.getpid()}-{name}"
        self.path.mkdir()
        for file, value in settings.items():
            (self.path / file).write_text(value)
        for process in node.all_processes["raylet"]:
            raylet = psutil.Process(process.process.pid)
            for each in (raylet, *raylet.children(recursive=True)):
                (self.path / "cgroup.procs").write_text(str(each.pid))

    @staticmethod
    def memory(node: Any, name: str, limit: float | None) -> Group:
        """At most so many bytes."""
        file = "memory.limit_in_bytes" if OLD else "memory.max"
        return Group(node, name, "memory", {} if limit is None else {file: str(int(limit))})

    @staticmethod
    def quota(node: Any, name: str, share: float) -> Group:
        """A share of a core, in slices of 10 ms."""
        slice_us = 10_000
        if OLD:
            given = {"cpu.cfs_period_us": str(slice_us), "cpu.cfs_quota_us": str(int(share * slice_us))}
            return Group(node, name, "cpu", given)
        return Group(node, name, "cpu", {"cpu.max": f"{int(share * slice_us)} {slice_us}"})

    def held(self) -> float:
        """Bytes that processes have now and cannot give back: pages of files are not among them."""
        stat = dict(line.split() for line in (self.path / "memory.stat").read_text().splitlines())
        names = ("total_rss", "total_shmem") if OLD else ("anon", "shmem")
        return sum(float(stat.get(name, 0)) for name in names)

    def close(self) -> None:
        """Take it away, once its processes are gone."""
        for _ in range(50):
            with suppress(OSError):
                self.path.rmdir()
            if not self.path.exists():
                return
            time.sleep(0.1)


# -- unequal nodes ---------------------------------------------------------------------------------------------

QUOTA = 0.5
LOOKS = 2
"""How often the model is placed anew, each time at the pace of the plan before."""


def unequal(name: str, requests: int, rounds: int, folder: str) -> Row:
    """The plan for equal nodes, the one after the slow node was noticed, and the faster node alone, in turns."""
    from loadmaster.plan import Plan
    from loadmaster.runtime import ray as many
    from loadmaster.runtime.ray._host import whole

    _leave()
    path = model_file(name, folder)
    model = openvino_model(path)
    inputs = draw_inputs(model, 1)
    expected = [np.array(v) for v in Devices(parse_devices(["R=cpu"])).compile(model, "R")(inputs).values()]
    with (
        ExitStack() as held,
        many.connected("local:2") as machines,
    ):  # groups go when their processes are gone
        devices = parse_devices(["node1/cpu", "node2/cpu"])
        profile = many.profile_model(path, devices, cache=Cache(path.parent / CACHE), clock="core")
        problem = profile.problem(model=Pipeline(contiguity="chain", comm="overlap"))
        solution = api.place(problem, budget=3.0)
        (second,) = machines.own.worker_nodes
        held.callback(Group.quota(second, "half", QUOTA).close)
        taken: dict[str, list[float]] = {"equal": [], "noticed": [], "alone": []}
        most: list[float] = []
        same = True
        with api.open_plan(path, Plan.from_solution(problem, solution), on="local:2", replan=True) as net:
            before = net.running.running
            for _ in net.stream([tuple(inputs)] * requests):
                pass
            factors = many.slow_factors(problem, net.running.pieces, net.running.observed())
            pieces = list(before.pieces)
            for _ in range(LOOKS):  # a node with too much to do looks slower than it is
                change = net.replan()
                for _ in net.stream([tuple(inputs)] * (requests // 2)):
                    pass
            running = {"noticed": net.running.running}
            actors = net.running._actors
            running["equal"] = many.Spread(model, actors, pieces, slots=SLOTS)
            wholes = {
                name: many.Spread(model, actors, [whole(model, name)], slots=2)
                for name in ("node1/cpu", "node2/cpu")
            }
            running["alone"] = wholes["node1/cpu"]
            for _ in range(rounds + 1):
                most.append(_both(list(wholes.values()), inputs, requests // 2))
                for label, spread in running.items():
                    began = time.perf_counter()
                    for outputs in spread.stream([inputs] * requests):
                        last = outputs
                    taken[label].append((time.perf_counter() - began) / requests)
                    same &= all(
                        np.allclose(a, b, rtol=1e-3, atol=1e-4) for a, b in zip(last, expected, strict=True)
                    )
    median = {label: 1e3 * statistics.median(values[1:]) for label, values in taken.items()}
    return {
        "factor": factors.get("node2/cpu", 1.0),
        "equal halves, ms": median["equal"],
        "noticed, ms": median["noticed"],
        "faster alone, ms": median["alone"],
        "noticed, predicted, ms": 1e3 * change.cost,
        "against equal halves": median["equal"] / median["noticed"],
        "against the faster alone": median["alone"] / median["noticed"],
        "most against the faster alone": median["alone"] * 1e-3 * statistics.median(most[1:]),
        "replan, s": change.seconds,
        "equal": bool(same),
    }


def _both(wholes: list[Any], inputs: Any, requests: int) -> float:
    """Requests per second of nodes that run the whole model side by side, each for itself: about the most that a plan
    can get out of them, which sends tensors, too."""
    ends = threading.Event()
    rates: list[float] = []

    def run(spread: Any) -> None:
        began, done = time.perf_counter(), 0
        for _ in spread.stream(inputs for _ in iter(ends.is_set, True)):
            done += 1
            if done >= requests:
                ends.set()
        rates.append(done / (time.perf_counter() - began))

    threads = [threading.Thread(target=run, args=(spread,)) for spread in wholes]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return sum(rates)


# -- memory ----------------------------------------------------------------------------------------------------

LIMITED = 0.7


class Peak:
    """The most that a group held at once, looked at all the time."""

    def __init__(self, group: Group) -> None:
        self.most = 0.0
        self._group, self._over = group, threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)
        self._thread.start()

    def _look(self) -> None:
        while not self._over.wait(0.003):
            self.most = max(self.most, self._group.held())

    def end(self) -> float:
        """Stop looking; the peak."""
        self._over.set()
        self._thread.join()
        return self.most


def memory(name: str, folder: str) -> Row:
    """Peak of a node with the whole model, and what happens on nodes that have less."""
    from loadmaster.errors import LoadmasterError
    from loadmaster.runtime import ray as many
    from loadmaster.runtime.ray._host import whole

    _leave()
    path = model_file(name, folder)
    model = openvino_model(path)
    inputs = draw_inputs(model, 1)
    expected = [np.array(v) for v in Devices(parse_devices(["R=cpu"])).compile(model, "R")(inputs).values()]
    row: Row = {}
    with ExitStack() as held, many.connected("local") as machines:  # groups go when their processes are gone

        def add(node: str, limit: float | None) -> Group:
            cores = sorted(os.sched_getaffinity(0))[-1:]
            group = Group.memory(many.add_local_node(machines.own, node, cores), node, limit)
            held.callback(group.close)
            return group

        def outputs(placed: list[Piece]) -> Any:
            names = dict.fromkeys(piece.device for piece in placed)
            with many.Actors(machines, parse_devices(list(names))) as actors:
                return next(many.Spread(model, actors, placed).stream([inputs]))

        group = add("free", None)
        with many.Actors(machines, parse_devices(["free/cpu"])):
            idle = group.held()
        peak = Peak(group)
        outputs([whole(model, "free/cpu")])
        most = peak.end()
        limit = idle + LIMITED * (most - idle)
        row["node without the model, MB"], row["with it, MB"], row["limit, MB"] = (
            idle / 1e6,
            most / 1e6,
            limit / 1e6,
        )
        small = [add(node, limit) for node in ("left", "right")]
        row["limit as the node says it, MB"] = many.see(machines)["left"]["memory"] / 1e6
        devices = parse_devices(["left/cpu", "right/cpu"])
        try:
            profile = many.profile_model(path, devices, clock="core")
            problem = profile.problem(model=Pipeline(contiguity="chain", comm="overlap"))
            row["parts"] = profile.profiles["left/cpu"].parts
            row["capacity, of the model"] = float(problem.capacity[0] / problem.memory.sum())
            pieces = cut(problem, api.place(problem, budget=5.0).placement)
            row["devices"] = len({piece.device for piece in pieces})
            row["before the plan, MB"] = max(group.held() for group in small) / 1e6
            peaks = [Peak(group) for group in small]
            try:
                found = outputs(pieces)
            finally:
                row["with the plan, MB"] = max(peak.end() for peak in peaks) / 1e6
            row["plan equal"] = all(
                np.allclose(a, b, rtol=1e-3, atol=1e-4) for a, b in zip(found, expected, strict=True)
            )
        except LoadmasterError as error:
            row["plan equal"] = str(error)
        try:
            outputs([whole(model, "left/cpu")])
            row["unplaced"] = "runs"
        except LoadmasterError as error:
            row["unplaced"] = str(error)
    return row


# -- kills -----------------------------------------------------------------------------------------------------

THREE = ("node1/cpu", "node2/cpu", "node3/cpu")


def kill(number: int, requests: int) -> Row:
    """One stream in which a node is killed: wrong answers, lost ones, seconds to go on, processes left behind.

    Three nodes: the first is the head and holds the driver; one of the two others dies, and comes back afterwards.
    """
    import psutil

    from loadmaster.plan import Plan
    from loadmaster.problem import Placement, Solution, evaluate
    from loadmaster.runtime import ray as many

    machines = _machines("local:3")
    cores = sorted(os.sched_getaffinity(0))
    for at in (1, 2):
        if f"node{at + 1}" not in {node.name for node in machines.nodes()}:
            many.add_local_node(machines.own, f"node{at + 1}", cores[at::3] or cores)
    draw = random.Random(number)
    with tempfile.TemporaryDirectory() as folder:
        path = _small(Path(folder) / "net.xml")
        model = openvino_model(path)
        expected = Devices(parse_devices(["R=cpu"])).compile(model, "R")
        profile = many.profile_model(path, parse_devices(THREE), cache=_small_cache(), clock="core")
        problem = profile.problem(model=Pipeline())
        third = Placement((3 * problem.graph.position // problem.n).astype(np.int32))
        cost = evaluate(problem, third).cost
        plan = Plan.from_solution(problem, Solution(third, cost, 0.0, "nothing", "thirds"))
        victim, when = draw.choice(("node2", "node3")), draw.randrange(5, requests - 5)
        wrong = answered = 0
        slowest, last = 0.0, time.perf_counter()
        inputs = [draw_inputs(model, 100 * number + at) for at in range(20)]
        right = [[np.array(v) for v in expected(x).values()] for x in inputs]
        with api.open_plan(path, plan, on="local:3", replan=True) as net:
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
                    known = machines.node(victim).id
                    node = next(n for n in machines.own.worker_nodes if n.node_id == known)
                    (raylet,) = node.all_processes["raylet"]
                    own = psutil.Process(raylet.process.pid).children(recursive=True)
                    # A machine that dies takes them along; else they go on until they notice.
                    for process in own:
                        with suppress(psutil.NoSuchProcess):
                            process.kill()
                    machines.own.remove_node(node, allow_graceful=False)
                    last = time.perf_counter()
            changes = list(net.running.changes)
        _, orphans = psutil.wait_procs(own, timeout=20)
    return {
        "victim": victim,
        "after": when,
        "answered": answered,
        "wrong": wrong,
        "named": ", ".join(node for change in changes for node in change.nodes),
        "replan, s": sum(change.seconds for change in changes),
        "longest wait, s": slowest,
        "orphans": len(orphans),
    }


def _small_cache() -> Cache:
    """Of what the small network takes: measured once for all kills."""
    home = Path(tempfile.gettempdir()) / "loadmaster-many-machines"
    home.mkdir(parents=True, exist_ok=True)
    return Cache(home / CACHE)


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
        if part == "link":  # a row for each rate
            mine = [
                {"model": row["model"], "cable, Mbit/s": rate, **found}
                for row in mine
                for rate, found in row.get("at", {}).items()
            ]
        if mine:
            page.section(part)
            columns = list(dict.fromkeys(name for row in mine for name in row if not name.startswith("_")))
            page.table(columns, [[row.get(name) for name in columns] for row in mine])


STUDY = Study("many_machines", "Ray nodes on one machine", cases, write, options, here=True)

if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # nodes and namespaces go, too
    with _held:
        raise SystemExit(STUDY.main())
