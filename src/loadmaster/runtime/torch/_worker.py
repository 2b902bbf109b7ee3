"""One rank of ``loadmaster run --runtime torch``: verify the plan, then measure it.

Started by torchrun with the path of a request; the first rank writes the answer beside it.
"""

from __future__ import annotations

import json
import os
import resource
import sys
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from loadmaster.errors import LoadmasterError
from loadmaster.plan import Plan
from loadmaster.runtime.torch._cut import stages_of_plan
from loadmaster.runtime.torch._equality import Batch, example_batch, require_equal, run_unsplit
from loadmaster.runtime.torch._pipeline import Pipeline, open_pipeline
from loadmaster.runtime.torch._source import load_source

__all__ = ["main"]

PATIENCE = timedelta(seconds=60)
"""How long a rank waits for another before it gives up."""


def main(path: str) -> int:
    """Serve one request; the exit code is 0, or 3 for a mistake that is written down as a sentence."""
    request = json.loads(Path(path).read_text())
    rank = int(os.environ["RANK"])
    try:
        dist.init_process_group("nccl" if torch.cuda.is_available() else "gloo", timeout=PATIENCE)
        document = serve(request)
        if rank == 0:
            _write(request["answer"], document)
        dist.barrier()
        dist.destroy_process_group()
    except LoadmasterError as error:
        _write(f"{request['answer']}.{rank}", {"error": type(error).__name__, "message": str(error)})
        return 3
    return 0


def serve(request: dict[str, Any]) -> dict[str, Any]:
    """Capture, verify, measure."""
    torch.manual_seed(int(request["seed"]))
    source = load_source(request["model"])
    plan = Plan.load(request["plan"])
    captured = source.capture()
    pipe = open_pipeline(
        captured,
        plan,
        microbatches=request.get("microbatches"),
        schedule=request.get("schedule"),
        loss=source.loss,
        seed=int(request["seed"]),
    )
    stages = stages_of_plan(captured, plan)
    assert captured.example is not None
    name = captured.name
    batch = example_batch(captured.example, pipe.microbatches, source.target)
    reference = run_unsplit(
        captured,
        batch,
        pipe.microbatches,
        model=source.model if isinstance(source.model, torch.nn.Module) else None,
        loss=source.loss,
        seed=int(request["seed"]),
    )
    verified = require_equal(pipe, batch, reference)
    pipe.release()
    del reference, source
    return {
        "model": name,
        "torch": torch.__version__,
        "backend": dist.get_backend(),
        "ranks": pipe.world,
        "schedule": type(pipe.schedule).__name__,
        "microbatches": pipe.microbatches,
        "training": pipe.trains,
        "predicted": float(plan.document["cost"]),
        "prediction": "a step"
        if plan.document["settings"].get("microbatches")
        else "a microbatch in a full pipeline",
        "stages": [
            {"rank": rank, "device": device, "ops": pipe.cut.stage_of.count(stage)}
            for stage, (rank, device) in enumerate(zip(stages.ranks, stages.devices, strict=True))
        ],
        "verified": verified,
        **measure(pipe, batch, int(request["steps"])),
    }


def measure(pipe: Pipeline, batch: Batch, steps: int) -> dict[str, Any]:
    """Seconds of each step (the slowest rank's), CPU seconds and peak memory of every rank; one step to warm up."""
    wall: list[float] = []
    began_cpu = 0.0
    for step in range(steps + 1):
        if step == 1:
            began_cpu = time.process_time()
        pipe.zero_grad()
        dist.barrier()
        began = time.perf_counter()
        if pipe.trains:
            pipe.step(*batch.args, target=batch.target, **batch.kwargs)
        else:
            pipe.evaluate(*batch.args, **batch.kwargs)
        wall.append(time.perf_counter() - began)
    cpu = (time.process_time() - began_cpu) / steps
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    if torch.cuda.is_available():
        peak = torch.cuda.max_memory_allocated()
    every: list[Any] = [None] * pipe.world
    dist.all_gather_object(every, (wall[1:], cpu, peak))
    slowest = [max(times) for times in zip(*(entry[0] for entry in every), strict=True)]
    return {
        "steps": slowest,
        "median": sorted(slowest)[len(slowest) // 2],
        "low": min(slowest),
        "high": max(slowest),
        "cpu": [entry[1] for entry in every],
        "memory": [entry[2] for entry in every],
    }


def _write(path: str, document: dict[str, Any]) -> None:
    Path(path).write_text(json.dumps(document))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
