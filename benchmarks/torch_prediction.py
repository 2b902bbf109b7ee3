"""Predicted steps against emulated ones: the real engine and real messages, with stages that sleep for their time.

    python -m benchmarks.torch_prediction --rows torch-prediction.jsonl
    python -m benchmarks.torch_prediction --ranks 2,4 --cases 2 --steps 3          # does it run?

A case has random stages: their forward and backward times, and the bytes between them. It is predicted by the
execution model ``pipeline`` with microbatches, with the latency and bandwidth that gloo has between these ranks, and
emulated by ``torch.distributed.pipelining`` under torchrun. Sleeping needs no core, so that eight ranks can be
emulated on two. What a busy machine delays only adds: the fastest step counts, and the median is beside it. Finished
rows are kept. As a module with --worker it is one rank.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import sys
import tempfile
import time
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np

SCHEDULES = ("gpipe", "1f1b")


def cases_of(ranks: int, count: int, scale: float) -> list[dict[str, Any]]:
    """Random stages, the same every time; seconds and elements of float32."""
    found = []
    for number in range(count):
        draw = random.Random(f"{ranks} {number}")
        forward = [scale * draw.uniform(0.4, 1.6) for _ in range(ranks)]
        found.append(
            {
                "ranks": ranks,
                "number": number,
                "schedule": SCHEDULES[number % 2],
                "microbatches": draw.choice([ranks, ranks + 3, 2 * ranks]),
                "forward": forward,
                "backward": [seconds * draw.uniform(1.0, 2.5) for seconds in forward],
                "elements": [draw.choice([1_000, 30_000, 100_000]) for _ in range(ranks - 1)],
            }
        )
    return found


def predicted(case: dict[str, Any], latency: float, rate: float) -> float:
    """Seconds of a step by the execution model."""
    from loadmaster.graph import GraphBuilder
    from loadmaster.hardware import Cluster, Device
    from loadmaster.problem import Pipeline, Placement, Problem, evaluate

    n = case["ranks"]
    builder = GraphBuilder("stages")
    for s in range(n):
        builder.op(f"stage{s}")
    for s in range(n):
        builder.op(f"stage{s}/backward", backward=True)
    for s in range(n):
        size = 4.0 * case["elements"][s] if s < n - 1 else 0.0
        builder.tensor(s, bytes=size, consumers=[s + 1] if s < n - 1 else [n + s])
        if s:
            builder.tensor(n + s, bytes=4.0 * case["elements"][s - 1], consumers=[n + s - 1])
    problem = Problem.make(
        builder.build(),
        Cluster("ranks", tuple(Device(f"rank{s}", "rank") for s in range(n))),
        Pipeline(microbatches=case["microbatches"], schedule=case["schedule"]),
        time=np.repeat(np.array(case["forward"] + case["backward"])[:, None], n, axis=1),
        latency=np.full((n, n), latency),
        rate=np.full((n, n), rate),
        colocation=[(s, n + s) for s in range(n)],
    )
    return float(evaluate(problem, Placement(np.array([*range(n), *range(n)], np.int32))).cost)


def worker(path: str) -> int:
    """One rank: measure the link, then emulate every case."""
    import torch
    import torch.distributed as dist

    request = json.loads(Path(path).read_text())
    torch.set_num_threads(1)
    dist.init_process_group("gloo", timeout=timedelta(seconds=120))
    rank = dist.get_rank()
    link = _link(dist, torch)
    rows = [{"link": link, "times": _emulated(case, request["steps"])} for case in request["cases"]]
    if rank == 0:
        Path(request["answer"]).write_text(json.dumps(rows))
    dist.barrier()
    dist.destroy_process_group()
    return 0


def _link(dist: Any, torch: Any) -> tuple[float, float]:
    """Latency and seconds per byte between the first two ranks: medians of messages of two sizes."""
    found = []
    for elements in (1, 400_000):
        value, times = torch.zeros(elements), []
        for _ in range(20):
            dist.barrier()
            began = time.perf_counter()
            if dist.get_rank() == 0:
                dist.send(value, 1)
                dist.recv(value, 1)
            elif dist.get_rank() == 1:
                dist.recv(value, 0)
                dist.send(value, 0)
            times.append((time.perf_counter() - began) / 2)
        found.append(float(np.median(times)))
    both = [found]
    dist.broadcast_object_list(both, 0)
    small, large = both[0]
    return small, max(0.0, large - small) / 1.6e6


def _emulated(case: dict[str, Any], steps: int) -> list[float]:
    import torch
    import torch.distributed as dist
    from torch.distributed import pipelining

    rank, world = dist.get_rank(), dist.get_world_size()
    sizes = [8, *case["elements"], 8]

    class Sleep(torch.autograd.Function):
        @staticmethod
        def forward(context: Any, weight: Any, value: Any) -> Any:
            time.sleep(case["forward"][rank])
            return torch.zeros(1, sizes[rank + 1])

        @staticmethod
        def backward(context: Any, gradient: Any) -> Any:
            time.sleep(case["backward"][rank])
            return torch.zeros(1), torch.zeros(1, sizes[rank]) if rank else None

    class Stage(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = torch.nn.Parameter(torch.zeros(1))

        def forward(self, value: Any) -> Any:
            return Sleep.apply(self.weight, value)

    stage = pipelining.PipelineStage(
        Stage(),
        rank,
        world,
        torch.device("cpu"),
        input_args=(torch.zeros(1, sizes[rank], requires_grad=rank > 0),),
        output_args=(torch.zeros(1, sizes[rank + 1], requires_grad=True),),
    )
    kind = pipelining.ScheduleGPipe if case["schedule"] == "gpipe" else pipelining.Schedule1F1B
    count = case["microbatches"]
    schedule = kind(stage, count, loss_fn=lambda out, target: out.sum())
    times = []
    for _ in range(steps + 1):
        given = (torch.zeros(count, sizes[0]),) if rank == 0 else ()
        target = {"target": torch.zeros(count)} if rank == world - 1 else {}
        dist.barrier()
        began = time.perf_counter()
        schedule.step(*given, **target)
        taken = torch.tensor([time.perf_counter() - began])
        dist.all_reduce(taken, dist.ReduceOp.MAX)
        times.append(float(taken))
    return times[1:]


def emulate(cases: Sequence[dict[str, Any]], ranks: int, steps: int) -> list[dict[str, Any]]:
    """Start the ranks with torchrun; for each case the seconds of its steps, and the link that was measured."""
    from loadmaster.runtime.torch import launch

    with tempfile.TemporaryDirectory(prefix="loadmaster-emulation-") as folder:
        path, answer = Path(folder) / "request.json", Path(folder) / "answer.json"
        path.write_text(json.dumps({"cases": list(cases), "steps": steps, "answer": str(answer)}))
        launch("benchmarks.torch_prediction", ["--worker", str(path)], ranks, timeout=500)
        found: list[dict[str, Any]] = json.loads(answer.read_text())
        return found


def read(path: Path) -> list[dict[str, Any]]:
    """The rows so far."""
    return [json.loads(line) for line in path.read_text().splitlines()] if path.is_file() else []


def main(arguments: Sequence[str] | None = None) -> int:
    """Emulate what is missing, and print a table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--ranks", default="2,3,4,5,6,7,8")
    parser.add_argument("--cases", type=int, default=4, help="for each number of ranks")
    parser.add_argument("--steps", type=int, default=4)
    parser.add_argument("--scale", type=float, default=0.06, help="seconds of a forward pass, in the mean")
    parser.add_argument("--rows", default="torch-prediction.jsonl")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--worker", metavar="FILE", help=argparse.SUPPRESS)
    given = parser.parse_args(arguments)
    if given.worker:
        return worker(given.worker)
    rows = Path(given.rows)
    for ranks in map(int, given.ranks.split(",")):
        done = {(row["ranks"], row["number"]) for row in read(rows)}
        cases = [
            case for case in cases_of(ranks, given.cases, given.scale) if (ranks, case["number"]) not in done
        ]
        if not cases:
            continue
        print(f"{ranks} ranks: {len(cases)} cases …", file=sys.stderr, flush=True)
        found = emulate(cases, ranks, given.steps)
        with rows.open("a") as file:
            for case, entry in zip(cases, found, strict=True):
                expected = predicted(case, *entry["link"])
                row = {**case, **entry, "predicted": expected, "emulated": min(entry["times"])}
                file.write(
                    json.dumps({**row, "load": os.getloadavg()[0], "date": time.strftime("%F")}) + "\n"
                )
    if given.json:
        print(json.dumps(read(rows)))
        return 0
    print("| ranks | schedule | microbatches | predicted | emulated | error | median step |")
    print("|--:|---|--:|--:|--:|--:|--:|")
    errors = []
    for row in sorted(read(rows), key=lambda row: (row["ranks"], row["schedule"], row["number"])):
        error = row["emulated"] / row["predicted"] - 1
        errors.append(abs(error))
        print(
            f"| {row['ranks']} | {row['schedule']} | {row['microbatches']} | {row['predicted']:.3f} s | "
            f"{row['emulated']:.3f} s | {100 * error:+.1f} % | {float(np.median(row['times'])):.3f} s |"
        )
    if errors:
        print(f"\nlargest error {100 * max(errors):.1f} %, median {100 * float(np.median(errors)):.1f} %")
    return 0


if __name__ == "__main__":
    sys.exit(main())
