"""Steps of several plans of one model, side by side: rounds in a rotated order, on the same ranks, in one go.

Outputs are compared with the unsplit model first. A plan that uses one rank only runs there, unsplit, and the others
wait. A rank has one thread, and a core of its own where there are enough.
As a module it is one rank: started by torchrun, or once in every network namespace.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

__all__ = ["Rounds", "measure_rounds", "median", "request_of", "serve"]

Rounds = dict[str, Any]
"""``times``: plan -> seconds of each round; ``cpu``: plan -> CPU seconds of each rank per step; ``verified``."""


def request_of(
    model: str,
    plans: Mapping[str, str],
    *,
    rounds: int = 10,
    seconds: float = 60.0,
    cores: Sequence[int] = (),
    groups: Sequence[str] = (),
    verify: bool = True,
) -> dict[str, Any]:
    """What the ranks are asked for: so many rounds, or fewer (3 at least) once that many seconds have gone by.

    ``cores`` and ``groups`` (cgroups, or empty) are those of the ranks, in their order.
    """
    return {
        "model": model,
        "plans": {name: str(path) for name, path in plans.items()},
        "rounds": rounds,
        "seconds": seconds,
        "cores": list(cores),
        "groups": list(groups),
        "verify": verify,
    }


def measure_rounds(request: dict[str, Any], ranks: int = 2, *, timeout: float = 600.0) -> Rounds:
    """Start the ranks with torchrun and read what they found."""
    from loadmaster.errors import WorkerError
    from loadmaster.runtime.torch import launch

    with tempfile.TemporaryDirectory(prefix="loadmaster-rounds-") as folder:
        answer = Path(folder) / "answer.json"
        path = Path(folder) / "request.json"
        path.write_text(json.dumps({**request, "answer": str(answer)}))
        log = Path(folder) / "log.txt"
        try:
            launch("benchmarks.torch_rounds", [str(path)], ranks, timeout=timeout, log=log)
        except WorkerError as error:
            said = log.read_text()[-3000:] if log.is_file() else ""
            raise WorkerError(f"{error}\n{said}") from None
        found: Rounds = json.loads(answer.read_text())
        return found


def median(times: Sequence[float]) -> float:
    """The middle one; the mean of two."""
    ordered = sorted(times)
    middle = len(ordered) // 2
    return ordered[middle] if len(ordered) % 2 else (ordered[middle - 1] + ordered[middle]) / 2


def serve(request: dict[str, Any]) -> Rounds:
    """One rank: open every plan, verify, and run the rounds."""
    import torch
    import torch.distributed as dist

    from loadmaster.plan import Plan
    from loadmaster.runtime.torch import (
        example_batch,
        load_source,
        open_pipeline,
        require_equal,
        run_unsplit,
        stages_of_plan,
    )

    rank = int(os.environ["RANK"])
    _stay(rank, request)
    torch.set_num_threads(1)
    torch.manual_seed(0)
    dist.init_process_group("gloo", timeout=timedelta(seconds=180))
    source = load_source(request["model"])
    captured = source.capture()
    plans = {name: Plan.load(path) for name, path in request["plans"].items()}
    pipes: dict[str, Any] = {}
    for name, plan in plans.items():
        if len(stages_of_plan(captured, plan).devices) == 1:
            pipes[name] = Whole(source, int(plan.document["settings"]["microbatches"]), rank)
        else:
            pipes[name] = open_pipeline(captured, plan, loss=source.loss)
    first = next(iter(pipes.values()))
    batch = example_batch(captured.example, first.microbatches, source.target)
    verified = {}
    if request["verify"]:
        model = source.model if isinstance(source.model, torch.nn.Module) else None
        reference = run_unsplit(captured, batch, first.microbatches, model=model, loss=source.loss)
        for name, pipe in pipes.items():
            if not isinstance(pipe, Whole):
                verified[name] = require_equal(pipe, batch, reference)
        del reference
    names = list(pipes)
    times: dict[str, list[float]] = {name: [] for name in names}
    cpu: dict[str, float] = dict.fromkeys(names, 0.0)
    went_on = torch.ones(1)
    began = time.perf_counter()
    for number in range(-1, request["rounds"]):  # one round to warm up
        if number >= 3 and rank == 0 and time.perf_counter() - began > request["seconds"]:
            went_on.zero_()
        dist.broadcast(went_on, 0)
        if not went_on.item():
            break
        turn = number % len(names)
        for name in names[turn:] + names[:turn]:
            pipe = pipes[name]
            pipe.zero_grad()
            dist.barrier()
            start, worked = time.perf_counter(), time.process_time()
            if pipe.trains:
                pipe.step(*batch.args, target=batch.target, **batch.kwargs)
            else:
                pipe.evaluate(*batch.args, **batch.kwargs)
            taken = torch.tensor([time.perf_counter() - start])
            cpu[name] += (time.process_time() - worked) * (number >= 0)
            dist.all_reduce(taken, dist.ReduceOp.MAX)
            if number >= 0:
                times[name].append(float(taken))
    count = max(1, len(times[names[0]]))
    every: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(every, {name: seconds / count for name, seconds in cpu.items()})
    found = {
        "times": times,
        "cpu": {name: [entry[name] for entry in every] for name in names},
        "verified": verified,
        "torch": torch.__version__,
    }
    dist.barrier()
    dist.destroy_process_group()
    return found


class Whole:
    """The unsplit model on the first rank, microbatch by microbatch: a plan with one stage."""

    def __init__(self, source: Any, microbatches: int, rank: int) -> None:
        self.model, self.loss, self.microbatches = source.model.train(), source.loss, microbatches
        self.idle, self.trains = rank > 0, True

    def zero_grad(self) -> None:
        """Forget the gradients."""
        self.model.zero_grad()

    def step(self, *args: Any, target: Any = None, **kwargs: Any) -> None:
        """Forward and backward of every microbatch."""
        from loadmaster.runtime.torch import Batch

        if self.idle:
            return
        for one in Batch(args, kwargs, target).microbatches(self.microbatches):
            result = self.model(*one.args, **one.kwargs)
            value = self.loss(result) if target is None else self.loss(result, one.target)
            (value / self.microbatches).backward()


def _stay(rank: int, request: dict[str, Any]) -> None:
    """On the core, and in the cgroup, that this rank was given."""
    if rank < len(request["groups"]) and request["groups"][rank]:
        Path(request["groups"][rank], "cgroup.procs").write_text(str(os.getpid()))
    if rank < len(request["cores"]):
        with suppress(OSError):
            os.sched_setaffinity(0, {request["cores"][rank]})


def main(path: str) -> int:
    """Serve a request file; the first rank writes the answer."""
    request = json.loads(Path(path).read_text())
    found = serve(request)
    if os.environ["RANK"] == "0":
        Path(request["answer"]).write_text(json.dumps(found))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
