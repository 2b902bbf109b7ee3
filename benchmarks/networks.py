"""Two Ray nodes in network namespaces, joined by a cable whose bandwidth is set; and what a plan does there.

:func:`cable` makes the namespaces (it needs root and iproute2), :func:`measure` runs a case inside. Nothing is sent
anywhere else: the namespaces have no other way out than the pair of interfaces between them.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from loadmaster.runtime._cores import end_with_parent

__all__ = ["cable", "in_namespaces", "measure", "set_rate", "why_not"]

HOSTS = ("10.77.0.1", "10.77.0.2")
NODES = ("left", "right")
PORT = 6399
STORE = 100_000_000
READY = 90.0
LOOKS = 20
"""How often to look for processes in a namespace that ends."""


def why_not() -> str:
    """Why namespaces cannot be made here; empty where they can."""
    if shutil.which("ip") is None or shutil.which("tc") is None:
        return "there is no iproute2"
    if os.geteuid() != 0:
        return "it needs root"
    try:
        with cable():
            return ""
    except subprocess.CalledProcessError as error:
        return f"{' '.join(error.cmd)}: {error.stderr.strip()}"


def _run(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True, text=True)


def _end(space: str) -> None:
    """Take away a namespace, and whatever runs in it: a node that is told to end while it starts leaves some of it."""
    for _ in range(LOOKS):
        inside = subprocess.run(["ip", "netns", "pids", space], check=False, capture_output=True, text=True)
        for pid in inside.stdout.split():
            with suppress(ProcessLookupError):
                os.kill(int(pid), signal.SIGKILL)
        if not inside.stdout.strip():
            break
        time.sleep(0.1)
    subprocess.run(["ip", "netns", "del", space], check=False, capture_output=True)


def _sweep() -> None:
    """Take away namespaces, and what runs in them, of processes that are gone: who is killed leaves them."""
    listed = subprocess.run(["ip", "netns", "list"], check=False, capture_output=True, text=True).stdout
    for space in [line.split()[0] for line in listed.splitlines() if line.strip()]:
        found = re.fullmatch(r"lm(\d+)[ab]", space)
        if found is None or Path(f"/proc/{found[1]}").exists():
            continue
        _end(space)


@contextmanager
def cable() -> Iterator[tuple[str, str]]:
    """Two namespaces, and the interfaces between them."""
    _sweep()
    spaces = tuple(f"lm{os.getpid()}{end}" for end in "ab")
    ends = tuple(f"lmv{os.getpid() % 10**8}{end}" for end in "ab")
    with ExitStack() as made:
        for space in spaces:
            _run("ip", "netns", "add", space)
            made.callback(_end, space)
        _run("ip", "link", "add", ends[0], "type", "veth", "peer", "name", ends[1])
        made.callback(subprocess.run, ["ip", "link", "del", ends[0]], check=False, capture_output=True)
        for space, end, host in zip(spaces, ends, HOSTS, strict=True):
            _run("ip", "link", "set", end, "netns", space)
            _run("ip", "-n", space, "link", "set", end, "name", "cable")
            _run("ip", "-n", space, "addr", "add", f"{host}/24", "dev", "cable")
            _run("ip", "-n", space, "link", "set", "lo", "up")
            _run("ip", "-n", space, "link", "set", "cable", "up")
        yield spaces[0], spaces[1]


def set_rate(spaces: tuple[str, str], mbit: float) -> None:
    """Bandwidth in both directions, by a token bucket."""
    for space in spaces:
        burst = f"{max(32, int(mbit * 1000 / 8 * 0.01))}kb"  # 10 ms of it
        limit = ["rate", f"{mbit:g}mbit", "burst", burst, "latency", "100ms"]
        _run("ip", "netns", "exec", space, "tc", "qdisc", "replace", "dev", "cable", "root", "tbf", *limit)


def in_namespaces(model: str, requests: int, rounds: int, rates: list[float], folder: str) -> dict[str, Any]:
    """A case in the first namespace, in a process of its own: this one stays where it is."""
    with cable() as spaces:
        given = json.dumps([model, requests, rounds, rates, folder, spaces])
        inside = ["ip", "netns", "exec", spaces[0], sys.executable, "-m", "benchmarks.networks", given]
        process = subprocess.Popen(inside, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        try:
            out, error = process.communicate()
        except BaseException:
            with _undisturbed():
                process.terminate()  # it ends its nodes
                process.communicate()
            raise
        if process.returncode:
            raise RuntimeError(error.strip()[-2000:])
        found: dict[str, Any] = json.loads(out.strip().splitlines()[-1])
        return found


@contextmanager
def _undisturbed() -> Iterator[None]:
    """No signal ends the block: Ctrl-C reaches this process and the one that it started, which is told so again."""
    before = {number: signal.signal(number, signal.SIG_IGN) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _begun_on(core: int) -> None:
    """In a node that is about to start: keep to a core, and end with who started it."""
    os.sched_setaffinity(0, {core})
    end_with_parent(signal.SIGTERM)


@contextmanager
def _nodes(spaces: tuple[str, str]) -> Iterator[str]:
    """A node in each namespace, on a core of its own, until the block ends; the address of the cluster."""
    import psutil

    from loadmaster.runtime.ray._connection import NOTICED, SETTINGS

    address = f"{HOSTS[0]}:{PORT}"
    cores = sorted(os.sched_getaffinity(0))
    started: list[subprocess.Popen[bytes]] = []
    with tempfile.TemporaryDirectory(prefix="lm", dir="/tmp") as home, ExitStack() as opened:
        log = Path(home) / "start.log"
        output = opened.enter_context(log.open("wb"))
        environment = {**os.environ, **SETTINGS, **NOTICED, "RAY_TMPDIR": home}
        try:
            for at, (space, host, name) in enumerate(zip(spaces, HOSTS, NODES, strict=True)):
                where = [f"--address={address}"]
                if at == 0:
                    where = ["--head", f"--port={PORT}", f"--temp-dir={home}", "--include-dashboard=false"]
                command = [
                    *(["ip", "netns", "exec", space] if at else []),
                    *(sys.executable, "-m", "ray.scripts.scripts", "start", "--block", *where),
                    *(f"--node-ip-address={host}", f"--node-name={name}", "--num-cpus=1"),
                    *(f"--object-store-memory={STORE}", "--disable-usage-stats"),
                ]
                core = cores[at % len(cores)]
                started.append(
                    subprocess.Popen(
                        command,
                        env=environment,
                        stdout=output,
                        stderr=subprocess.STDOUT,
                        start_new_session=True,
                        preexec_fn=partial(_begun_on, core),
                    )
                )
                _wait_for(at + 1, address, home, started[-1], log)
            yield address
        finally:
            with _undisturbed():
                mine = []
                for process in started:
                    with suppress(psutil.NoSuchProcess):
                        mine += psutil.Process(process.pid).children(recursive=True)
                    process.send_signal(signal.SIGTERM)
                for process in started:
                    with suppress(subprocess.TimeoutExpired):
                        process.wait(10)
                for child in mine:
                    with suppress(psutil.NoSuchProcess):
                        child.kill()
                for process in started:
                    process.kill()
                    process.wait()


def _wait_for(count: int, address: str, home: str, node: subprocess.Popen[bytes], log: Path) -> None:
    """Until so many nodes are known; asked by a process of its own, since Ray connects once."""
    code = (
        "import ray, sys, logging; ray.init(address=sys.argv[1], log_to_driver=False, logging_level=logging.ERROR); "
        "sys.exit(sum(n['Alive'] for n in ray.nodes()) != int(sys.argv[2]))"
    )
    end = time.monotonic() + READY
    while time.monotonic() < end and node.poll() is None:
        asked = subprocess.run(
            [sys.executable, "-c", code, address, str(count)],
            env={**os.environ, "RAY_TMPDIR": home},
            capture_output=True,
            timeout=READY,
            check=False,
        )
        if asked.returncode == 0:
            return
        time.sleep(0.5)
    raise RuntimeError(f"node {count} did not come up: {log.read_text()[-1000:]}")


def measure(machines: Any, model: str, requests: int, rounds: int, folder: str) -> dict[str, Any]:
    """The plan that knows the link and the one that does not, in turns, on the first two nodes."""
    from benchmarks.many_machines import CACHE, SLOTS, model_file
    from loadmaster import api
    from loadmaster.graph.openvino import openvino_model
    from loadmaster.problem import Pipeline, evaluate
    from loadmaster.runtime import Cache, OverlapFit, cut, predict
    from loadmaster.runtime import ray as many
    from loadmaster.runtime.openvino import Devices, draw_inputs, parse_devices

    path = model_file(model, folder)
    devices = parse_devices([f"{node.name}/cpu" for node in machines.nodes()[:2]])
    profile = many.profile_model(path, devices, cache=Cache(path.parent / CACHE), clock="core")
    with many.Actors(machines, devices) as actors:  # not from the cache: the bandwidth is another one
        profile = replace(profile, links=many.measure_links(actors))
    problem = profile.problem(model=Pipeline(contiguity="chain", comm="overlap"))
    nothing = {
        name: np.zeros_like(getattr(problem, name))
        for name in ("latency", "rate", "send_latency", "send_rate", "recv_latency", "recv_rate")
    }
    placements = {
        "aware": api.place(problem, budget=3.0).placement,
        "ignoring": api.place(replace(problem, **nothing), budget=3.0).placement,
    }
    read = openvino_model(path)
    inputs = draw_inputs(read, 1)
    expected = [np.array(v) for v in Devices(parse_devices(["R=cpu"])).compile(read, "R")(inputs).values()]
    link = profile.links[tuple(sorted(spec.place for spec in devices))]
    row: dict[str, Any] = {
        "link, Mbit/s": 8e-6 / link.rate if link.rate else float("inf"),
        "latency, ms": 1e3 * link.latency,
        "_calls": profile.calls and profile.calls.document(),
    }
    taken: dict[str, list[float]] = {label: [] for label in placements}
    equal = True
    with many.Actors(machines, devices) as actors:
        spreads = {}
        for label, placement in placements.items():
            pieces = cut(problem, placement)
            spreads[label] = many.Spread(read, actors, pieces, slots=SLOTS)
            fit = profile.calls or OverlapFit(links=True)
            row[f"{label}: predicted, ms"] = 1e3 * predict(problem, pieces, fit, items=requests)
            row[f"{label}: cost, ms"] = 1e3 * evaluate(problem, placement).cost
            row[f"{label}: submodels"] = len(pieces)
        for _ in range(rounds + 1):
            for label, spread in spreads.items():
                began = time.perf_counter()
                for outputs in spread.stream([inputs] * requests):
                    last = outputs
                taken[label].append((time.perf_counter() - began) / requests)
                equal &= all(
                    np.allclose(a, b, rtol=1e-3, atol=1e-4) for a, b in zip(last, expected, strict=True)
                )
    for label, values in taken.items():
        row[f"{label}: measured, ms"] = 1e3 * statistics.median(values[1:])
        row[f"{label}: measured / predicted"] = row[f"{label}: measured, ms"] / row[f"{label}: predicted, ms"]
    row["ignoring / aware"] = row["ignoring: measured, ms"] / row["aware: measured, ms"]
    row["same plan"] = bool((placements["aware"].device == placements["ignoring"].device).all())
    row["equal"] = bool(equal)
    return row


def main() -> None:
    """Inside the first namespace: nodes, and a measurement at each rate."""
    from loadmaster.runtime import ray as many

    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    end_with_parent(signal.SIGTERM)
    model, requests, rounds, rates, folder, spaces = json.loads(sys.argv[1])
    found = {}
    with _nodes(tuple(spaces)) as address, many.connected(address) as machines:
        for mbit in rates:
            set_rate(tuple(spaces), mbit)
            found[f"{mbit:g}"] = measure(machines, model, requests, rounds, folder)
    print(json.dumps(found))


if __name__ == "__main__":
    main()
