"""Step times by the wall clock: Loadmaster's split against the usual rules, on real ranks.

    python -m benchmarks.torch_gain --part equal --models resnet_50,llama,gpt2
    python -m benchmarks.torch_gain --part speeds --models t5_small,vit,unet     # as root: a CPU quota for rank 0
    python -m benchmarks.torch_gain --part emulated --models bert --ranks 4    # stages that sleep: any load will do
    python -m benchmarks.torch_gain --part link --models resnet_50,inception_v3   # as root: network namespaces

Splits take turns in one run, in a rotated order, at least ten rounds; the same plan is there twice, as the noise. A
ratio is the median over rounds, with an interval by bootstrap. Leave the machine alone meanwhile. Rows are kept.
Whoever is not root is told so, and gets stages that sleep instead of a CPU quota, and loopback instead of a slow link.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.torch_prediction import emulate, read
from benchmarks.torch_rounds import Rounds, measure_rounds, median, request_of

SOURCES = Path(__file__).with_name("torch_sources.py")
SLOW = 0.5
"""Speed of the slow rank in the part ``speeds``."""
MEGABITS = 100
"""Of the link in the part ``link``."""
PERIOD = 10_000
"""Microseconds in which a CPU quota is dealt out."""
CGROUP = Path("/sys/fs/cgroup")


def prepare(
    part: str, name: str, folder: Path, microbatches: int, ranks: int, slow: int = 0
) -> tuple[dict[str, str], dict[str, Any]]:
    """Plans to run, by name, and what was predicted of them."""
    from loadmaster.hardware import Link
    from loadmaster.problem import evaluate
    from loadmaster.split import split
    from loadmaster.torch import load_source

    source = load_source(f"{SOURCES}:{name}")
    link = Link(3e-4, MEGABITS * 1e6 / 8)
    aware: dict[str, Any] = {}
    if part in ("speeds", "emulated speeds"):
        aware = {"speeds": tuple(SLOW if rank == slow else 1.0 for rank in range(ranks))}
    if part == "link":
        aware = {"links": link}
    found = split(source, ranks, microbatches=microbatches, **aware)
    made = {"ours": found.plan(), "ours again": found.plan()}
    cost = {"ours": found.solution.cost}
    stages = {"ours": found.evaluation.stages, "ours again": found.evaluation.stages}
    if part == "link":
        blind = split(source, ranks, microbatches=microbatches, costs=found.costs, refine=False)
        made["not knowing the link"] = blind.plan()
        cost["not knowing the link"] = evaluate(found.problem, blind.solution.placement).cost
    else:
        for rule, entry in found.rules.items():
            if not isinstance(entry, str) and rule != "torchtitan":
                made[rule] = found.plan(rule)
                cost[rule] = entry[1].cost
                stages[rule] = entry[1].stages
    paths = {}
    for title, plan in made.items():
        paths[title] = str(folder / f"{part}-{name}-{title.replace(' ', '-')}.json")
        plan.save(paths[title])
    times = {
        title: [[stage.forward, stage.backward, stage.receives] for stage in entry]
        for title, entry in stages.items()
    }
    return paths, {"predicted": cost, "gap": found.solution.gap, "stages": times}


def measure(part: str, request: dict[str, Any], ranks: int, slow: int = 0) -> Rounds:
    """The rounds, with what the part asks for around the ranks."""
    if part == "speeds":
        with quota(SLOW) as group:
            groups = [str(group) if rank == slow else "" for rank in range(ranks)]
            return measure_rounds({**request, "groups": groups}, ranks)
    if part == "link":
        return in_namespaces(request)
    return measure_rounds(request, ranks)


def instead_of(part: str) -> str:
    """What is measured in place of a part that cannot be had here; empty where it can."""
    if part == "speeds":
        try:
            with quota(SLOW):
                return ""
        except OSError as error:
            return f"stages that sleep, because there can be no CPU quota ({error})"
    if part == "link" and (os.geteuid() or not (shutil.which("ip") and shutil.which("tc"))):
        return "loopback, because network namespaces need root, ip and tc"
    return ""


def sleeping(stages: dict[str, Any], microbatches: int, rounds: int) -> Rounds:
    """Stages that sleep for their time, or a multiple of it, over the real engine."""
    mean = np.mean([stage[0] for entry in stages.values() for stage in entry])
    scale = max(1.0, float(0.06 / mean))
    cases = [
        {
            "schedule": "1f1b",
            "microbatches": microbatches,
            "forward": [scale * stage[0] for stage in entry],
            "backward": [scale * stage[1] for stage in entry],
            "elements": [max(1, int(stage[2] / 4)) for stage in entry[1:]],
        }
        for entry in stages.values()
    ]
    found = emulate(cases, len(cases[0]["forward"]), rounds)
    times = {title: [t / scale for t in entry["times"]] for title, entry in zip(stages, found, strict=True)}
    busiest = {
        title: [microbatches * (stage[0] + stage[1]) for stage in entry] for title, entry in stages.items()
    }
    return {"times": times, "cpu": busiest, "verified": {}}


@contextmanager
def quota(share: float) -> Iterator[Path]:
    """A cgroup that may use that share of a core."""
    one = (CGROUP / "cpu").is_dir()
    group = (CGROUP / "cpu" if one else CGROUP) / f"loadmaster-{os.getpid()}"
    group.mkdir()
    try:
        if one:
            (group / "cpu.cfs_period_us").write_text(str(PERIOD))
            (group / "cpu.cfs_quota_us").write_text(str(int(share * PERIOD)))
        else:
            (group / "cpu.max").write_text(f"{int(share * PERIOD)} {PERIOD}")
        yield group
    finally:
        time.sleep(0.5)
        group.rmdir()


def in_namespaces(request: dict[str, Any]) -> Rounds:
    """Two ranks, each in a network namespace of its own, joined by a slow link."""
    mark = os.getpid() % 10_000
    names = [f"lm{mark}r{rank}" for rank in range(2)]
    ends = [f"lmv{mark}r{rank}" for rank in range(2)]

    def run(*command: str) -> None:
        subprocess.run(command, check=True)

    with tempfile.TemporaryDirectory(prefix="loadmaster-link-") as folder:
        answer, path = Path(folder) / "answer.json", Path(folder) / "request.json"
        path.write_text(json.dumps({**request, "answer": str(answer)}))
        processes = []
        try:
            for name in names:
                run("ip", "netns", "add", name)
            run(
                "ip",
                "link",
                "add",
                ends[0],
                "netns",
                names[0],
                "type",
                "veth",
                "peer",
                ends[1],
                "netns",
                names[1],
            )
            for rank, (name, end) in enumerate(zip(names, ends, strict=True)):
                inside = ("ip", "netns", "exec", name)
                run(*inside, "ip", "address", "add", f"10.77.0.{rank + 1}/24", "dev", end)
                run(*inside, "ip", "link", "set", "lo", "up")
                run(*inside, "ip", "link", "set", end, "up")
                limit = ("rate", f"{MEGABITS}mbit", "burst", "64kb", "latency", "400ms")
                run(*inside, "tc", "qdisc", "add", "dev", end, "root", "tbf", *limit)
            for rank, (name, end) in enumerate(zip(names, ends, strict=True)):
                environment = {
                    **os.environ,
                    "RANK": str(rank),
                    "LOCAL_RANK": str(rank),
                    "WORLD_SIZE": "2",
                    "MASTER_ADDR": "10.77.0.1",
                    "MASTER_PORT": "29511",
                    "GLOO_SOCKET_IFNAME": end,
                    "OMP_NUM_THREADS": "1",
                }
                command = [
                    "ip",
                    "netns",
                    "exec",
                    name,
                    sys.executable,
                    "-m",
                    "benchmarks.torch_rounds",
                    str(path),
                ]
                processes.append(subprocess.Popen(command, env=environment))
            codes = [process.wait(600) for process in processes]
            if any(codes):
                raise SystemExit(f"a rank failed: exit codes {codes}")
            found: Rounds = json.loads(answer.read_text())
            return found
        finally:
            for process in processes:
                if process.poll() is None:
                    process.kill()
            for name in names:
                subprocess.run(["ip", "netns", "delete", name], check=False)


def ratio(times: Sequence[float], base: Sequence[float]) -> tuple[float, float, float]:
    """The median over rounds of one time divided by another, and its interval of 95 % by bootstrap."""
    each = np.array(times) / np.array(base)
    draw = np.random.default_rng(0)
    medians = np.median(draw.choice(each, (2000, len(each))), axis=1)
    low, high = np.quantile(medians, [0.025, 0.975])
    return float(np.median(each)), float(low), float(high)


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure what is missing, and print a table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parts = ("equal", "speeds", "link", "emulated", "emulated speeds")
    parser.add_argument("--part", choices=parts, default="equal")
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--models", default="resnet_50,llama,gpt2")
    parser.add_argument("--slow", type=int, default=0, help="the rank that has half the speed, in speeds")
    parser.add_argument("--rounds", type=int, default=11)
    parser.add_argument("--seconds", type=float, default=240.0, help="of rounds, for each model")
    parser.add_argument("--microbatches", type=int, default=8)
    parser.add_argument("--rows", default="torch-gain.jsonl")
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args(arguments)
    rows = Path(given.rows)
    cores = sorted(os.sched_getaffinity(0))
    instead = instead_of(given.part)
    if instead:
        print(f"{given.part}: {instead}", file=sys.stderr, flush=True)
    for name in given.models.split(","):
        if any(
            (row["part"], row["model"], row["ranks"], row.get("slow", 0))
            == (given.part, name, given.ranks, given.slow)
            for row in read(rows)
        ):
            continue
        print(f"{given.part}, {name}: choosing stages …", file=sys.stderr, flush=True)
        with tempfile.TemporaryDirectory(prefix="loadmaster-gain-") as folder:
            plans, known = prepare(
                given.part, name, Path(folder), given.microbatches, given.ranks, given.slow
            )
            print(f"{given.part}, {name}: running …", file=sys.stderr, flush=True)
            if given.part.startswith("emulated") or (given.part == "speeds" and instead):
                found = sleeping(known["stages"], given.microbatches, given.rounds)
            else:
                request = request_of(
                    f"{SOURCES}:{name}",
                    plans,
                    rounds=given.rounds,
                    seconds=given.seconds,
                    cores=cores[: given.ranks],
                )
                found = measure("equal" if instead else given.part, request, given.ranks, given.slow)
        entry = {
            "part": given.part,
            "model": name,
            "ranks": given.ranks,
            "slow": given.slow,
            "instead": instead,
            **known,
            **found,
        }
        with rows.open("a") as file:
            file.write(json.dumps({**entry, "load": os.getloadavg()[0], "date": time.strftime("%F")}) + "\n")
    if given.json:
        print(json.dumps(read(rows)))
        return 0
    print(
        "| part | model | against | step | ours | gain (95 %) | predicted | CPU of the busiest rank | noise |"
    )
    print("|---|---|---|--:|--:|--:|--:|--:|--:|")
    for row in read(rows):
        ours = row["times"]["ours"]
        noise = ratio(row["times"]["ours again"], ours)
        for other in row["predicted"]:
            if other == "ours":
                continue
            gain, low, high = ratio(row["times"][other], ours)
            busiest = max(row["cpu"][other]) / max(row["cpu"]["ours"])
            part = f"{row['part']} ({row['instead']})" if row.get("instead") else row["part"]
            where = f"{row['model']}, {row['ranks']}{', slow last' if row.get('slow') else ''}"
            print(
                f"| {part} | {where} | {other} | {median(row['times'][other]):.3f} s | "
                f"{median(ours):.3f} s | {gain:.3f}x ({low:.3f} to {high:.3f}) | "
                f"{row['predicted'][other] / row['predicted']['ours']:.3f}x | {busiest:.3f}x | {noise[0]:.3f} |"
            )
    return 0


if __name__ == "__main__":
    sys.exit(main())
