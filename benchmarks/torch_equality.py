"""Split models against unsplit ones: losses, results, all gradients and buffers, on real ranks.

    python -m benchmarks.torch_equality --rows equality.jsonl
    python -m benchmarks.torch_equality --models resnet-50,unet --ranks 2 --splits 2

Every model is split at random, by layers and by ops in turn, along random topological orders; the schedules take turns,
too. Each split is one step of ``torch.distributed.pipelining`` on gloo ranks, compared with the unsplit model that is
fed the same microbatches. Modes: ``training`` and ``inference`` against the module itself, run eagerly, with a dropout
of 0; ``dropout`` against the exported program with random ops seeded per step, microbatch and op. The first split of
each mode also shows controls: a changed weight, and swapped microbatches, must be noticed. One start of torchrun does
all splits of a model; rows are kept as they come, and the same command continues.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

MODES = ("training", "inference", "dropout")
MICROBATCHES = 4


def random_split(capture: Any, stages: int, granularity: str, rng: random.Random) -> list[int]:
    """(ops,) stages along a random topological order of what must stay together."""
    import numpy as np
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    from loadmaster.hardware import Cluster, Device
    from loadmaster.problem import Problem
    from loadmaster.runtime.torch import cut_stages

    network = capture.network(granularity)
    graph = network.graph
    problem = Problem.make(
        graph,
        Cluster("one", (Device("a"),)),
        "pipeline",
        time=np.ones((graph.n, 1)),
        colocation=network.colocation,
    )
    op = [graph.index[name] for name in capture.names]
    group = problem.class_of[op]
    reads = [
        (capture.index[node.name], v)
        for v, user in enumerate(capture.nodes)
        for node in user.all_input_nodes
        if node.name in capture.index
    ]
    tail = np.array([group[u] for u, _ in reads])
    head = np.array([group[v] for _, v in reads])
    size = int(problem.class_of.max()) + 1
    _, part = connected_components(
        coo_array((np.ones(len(tail)), (tail, head)), shape=(size, size)).tocsr(), connection="strong"
    )
    atom = [int(part[g]) for g in group]
    first: dict[int, int] = {}
    for v, a in enumerate(atom):
        first.setdefault(a, v)
    before: dict[int, set[int]] = {a: set() for a in first}
    for u, v in reads:
        if atom[u] != atom[v]:
            before[atom[v]].add(atom[u])
    for _ in range(200):
        noise = rng.choice([0.0, 0.1, 1.0]) * len(atom)
        key = {a: v + noise * rng.random() for a, v in first.items()}
        order: list[int] = []
        waiting, placed = dict(before), set[int]()
        while waiting:
            ready = [a for a, needs in waiting.items() if needs <= placed]
            chosen = min(ready, key=lambda a: key[a])
            order.append(chosen)
            placed.add(chosen)
            del waiting[chosen]
        if len(order) < stages:
            raise SystemExit(f"{capture.name} has {len(order)} parts, too few for {stages} stages")
        cuts = sorted(rng.sample(range(1, len(order)), stages - 1))
        stage = {a: sum(at >= c for c in cuts) for at, a in enumerate(order)}
        found = [stage[a] for a in atom]
        try:
            cut_stages(capture, found, stages)
        except Exception:
            continue
        return found
    raise SystemExit(f"no split of {capture.name} into {stages} stages was found")


def swapped(batch: Any, count: int) -> Any:
    """The batch with its microbatches in the opposite order."""
    import torch

    parts = batch.microbatches(count)[::-1]
    return type(batch)(
        tuple(torch.cat(values) for values in zip(*(one.args for one in parts), strict=True)),
        {key: torch.cat([one.kwargs[key] for one in parts]) for key in batch.kwargs},
        None if batch.target is None else torch.cat([one.target for one in parts]),
    )


def worker(path: str) -> None:
    """One rank: all splits of a model that are not in the rows yet."""
    import torch
    import torch.distributed as dist

    from benchmarks.torch_models import build
    from loadmaster.graph.torch import capture
    from loadmaster.runtime.torch import (
        Pipeline,
        compare,
        cut_stages,
        example_batch,
        perturbed,
        random_ops,
        run_unsplit,
    )

    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    request = json.loads(Path(path).read_text())
    name = request["model"]
    for mode in request["todo"]:
        case = build(name, dropout=0.1 if mode == "dropout" else 0.0)
        training = mode != "inference"
        captured = capture(case.model, case.example, training=training, name=name)
        if mode == "dropout" and not random_ops(captured):
            raise SystemExit(f"{name} draws no random numbers with dropout")
        loss = case.loss if training else None
        target = case.target if training else None
        assert captured.example is not None
        batch = example_batch(captured.example, MICROBATCHES, target)
        reference = run_unsplit(captured, batch, MICROBATCHES, model=case.model, loss=loss)
        assert reference.eager == (mode != "dropout")
        for number in request["todo"][mode]:
            rng = random.Random(f"{name} {world} {mode} {number}")
            granularity = ("op", "layer")[number % 2]
            schedule = ("1f1b", "gpipe")[number // 2 % 2]
            cut = cut_stages(captured, random_split(captured, world, granularity, rng), world)
            began = time.perf_counter()
            pipe = Pipeline(captured, cut, microbatches=MICROBATCHES, schedule=schedule, loss=loss)
            found = compare(pipe, batch, reference)
            row: dict[str, Any] = {
                **found.document(),
                "granularity": granularity,
                "schedule": schedule,
                "crossing": [len(values) for values in cut.boundaries[1:-1]],
                "tied": len(pipe.tied),
                "eager": reference.eager,
                "seconds": time.perf_counter() - began,
            }
            if number == 0:
                with perturbed(pipe) as changed:
                    row["control: changed weight"] = [changed, compare(pipe, batch, reference).worst]
                row["control: swapped microbatches"] = compare(
                    pipe, swapped(batch, MICROBATCHES), reference
                ).worst
            if rank == 0:
                key = {"model": name, "ranks": world, "mode": mode, "split": number}
                with Path(request["rows"]).open("a") as file:
                    file.write(json.dumps({**key, **row}) + "\n")
                print(key, f"{found.worst:.2g}", "equal" if found.equal else "DIFFERENT", flush=True)
            dist.barrier()
    dist.destroy_process_group()


def main(arguments: Sequence[str] | None = None) -> int:
    """Start the ranks for what is missing, and print a table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--models", default="all")
    parser.add_argument("--ranks", default="2,3,4")
    parser.add_argument("--modes", default=",".join(MODES))
    parser.add_argument("--splits", type=int, default=10)
    parser.add_argument("--rows", default="torch-equality.jsonl")
    parser.add_argument("--fresh", action="store_true")
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args(arguments)
    from benchmarks.torch_models import MODELS
    from loadmaster.errors import WorkerError
    from loadmaster.runtime.torch import launch

    rows = Path(given.rows)
    if given.fresh:
        rows.unlink(missing_ok=True)
    names = list(MODELS) if given.models == "all" else given.models.split(",")
    for name in names:
        for ranks in map(int, given.ranks.split(",")):
            done = {(r["mode"], r["split"]) for r in read(rows) if r["model"] == name and r["ranks"] == ranks}
            todo = {
                mode: [number for number in range(given.splits) if (mode, number) not in done]
                for mode in given.modes.split(",")
            }
            todo = {mode: numbers for mode, numbers in todo.items() if numbers}
            if not todo:
                continue
            request = rows.with_suffix(f".{os.getpid()}.json")
            request.write_text(json.dumps({"model": name, "todo": todo, "rows": str(rows)}))
            log = rows.with_suffix(".log")
            began = time.perf_counter()
            try:
                launch("benchmarks.torch_equality", ["--worker", str(request)], ranks, timeout=3000, log=log)
            except WorkerError as error:
                print(f"{name} on {ranks} ranks: {error} (see {log})", file=sys.stderr, flush=True)
            finally:
                request.unlink(missing_ok=True)
            print(
                f"{name} on {ranks} ranks: {time.perf_counter() - began:.0f} s", file=sys.stderr, flush=True
            )
    found = [row for row in read(rows) if row["model"] in names]
    print(json.dumps(found) if given.json else table(found))
    blind = [row for row in found if not noticed(row)]
    for row in blind:
        print(
            f"{row['model']}, {row['mode']}, {row['ranks']} ranks: the controls were not noticed",
            file=sys.stderr,
        )
    return 0 if found and all(row["equal"] for row in found) and not blind else 1


def noticed(row: dict[str, Any]) -> bool:
    """Whether the controls of a row, if it has any, failed as they should."""
    from loadmaster.runtime.torch import TOLERANCE

    controls = [
        row[key][-1] if isinstance(row[key], list) else row[key] for key in row if key.startswith("control")
    ]
    return all(error > TOLERANCE for error in controls)


def read(path: Path) -> list[dict[str, Any]]:
    """The rows so far."""
    if not path.exists():
        return []
    return [json.loads(line) for line in path.read_text().splitlines() if line.endswith("}")]


def table(rows: list[dict[str, Any]]) -> str:
    """A line per model and mode."""
    lines = [
        "| model | mode | splits | equal | largest error | most tensors at a boundary | changed weight | swapped |",
        "|---|---|--:|--:|--:|--:|--:|--:|",
    ]
    for name in dict.fromkeys(row["model"] for row in rows):
        for mode in MODES:
            mine = [row for row in rows if row["model"] == name and row["mode"] == mode]
            if not mine:
                continue
            changed = [row["control: changed weight"][1] for row in mine if "control: changed weight" in row]
            swapped = [
                row["control: swapped microbatches"] for row in mine if "control: swapped microbatches" in row
            ]
            lines.append(
                f"| {name} | {mode} | {len(mine)} | {sum(row['equal'] for row in mine)} | "
                f"{max(max(row['errors'].values()) for row in mine):.1e} | "
                f"{max(max(row['crossing']) for row in mine)} | {min(changed, default=float('nan')):.1e} | "
                f"{min(swapped, default=float('nan')):.1e} |"
            )
    return "\n".join(lines)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--worker"]:
        worker(sys.argv[2])
    else:
        sys.exit(main())
