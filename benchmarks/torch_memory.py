"""Training that does not fit one rank, and does not fit two in equal layers: real limits, real failures.

    python -m benchmarks.torch_memory
    python -m benchmarks.torch_memory --cases vocabulary --json

Every rank may allocate so many bytes beyond what it has once PyTorch is loaded (``RLIMIT_DATA``, which the kernel
enforces for everybody, root or not). Three ways to train with Adam under that limit: the whole model on one rank,
stages of equal layers on two, and the stages that Loadmaster chose for 80 % of the limit: temporary tensors and
messages need the rest. With ``--free`` the same runs are made without a limit, too, to see what they need. Cases:
``hourglass`` is made for the purpose, the two wide layers are at the end; ``vocabulary`` is a GPT with 32,768 words.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import resource
import sys
import tempfile
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
from torch import nn

from benchmarks.demo_models import Gpt, next_token

__all__ = ["AT_ONCE", "hourglass", "limited", "vocabulary"]

HERE = Path(__file__)
MICROBATCHES = 4
SHARE = 0.8
"""Of the limit, for what a plan counts: weights, gradients, the optimizer's state, and what is kept for backward."""
CASES = {"hourglass": 400e6, "vocabulary": 880e6}
"""Case -> bytes that each rank may allocate."""
AT_ONCE = {"MALLOC_MMAP_THRESHOLD_": "65536", "MALLOC_ARENA_MAX": "1", "MKL_DISABLE_FAST_MM": "1"}
"""Environment in which memory that is freed is given back at once, so that a limit is on what is in use. MKL keeps
buffers of tens of megabytes otherwise, on CPUs with AVX-512 alone."""
WAYS = ("one rank", "equal layers", "loadmaster")


class Widening(nn.Module):
    """To a width and back."""

    def __init__(self, width: int, inner: int) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(width, inner), nn.Linear(inner, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.down(torch.relu(self.up(x)))


class Hourglass(nn.Module):
    """Six narrow layers, then two wide ones."""

    def __init__(self, width: int = 512, wide: int = 15000) -> None:
        super().__init__()
        self.layers = nn.ModuleList(Widening(width, inner) for inner in [256] * 6 + [wide] * 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = layer(x)
        return x


def hourglass() -> tuple[Any, ...]:
    """Two wide layers at the end, which equal layers puts on one rank."""
    torch.manual_seed(0)
    x = torch.randn(8, 512)
    return Hourglass(), x, nn.functional.mse_loss, torch.randn(8, 512)


def vocabulary() -> tuple[Any, ...]:
    """A GPT of eight layers of width 384 with 32,768 words: the last rank has the logits."""
    torch.manual_seed(0)
    ids = torch.randint(0, 32768, (4, 128))
    return Gpt(8, 384, 32768, 128), ids, next_token, torch.roll(ids, -1, 1)


def limited(size: float) -> None:
    """Let this process allocate so many bytes beyond what it has by now, with all that it imports to train."""
    warm_up()
    most = int(allocated() + size)
    resource.setrlimit(resource.RLIMIT_DATA, (most, most))


def warm_up() -> None:
    """Export and train something tiny: the imports of both are no part of a model's memory."""
    from loadmaster.graph.torch import capture

    model, x = nn.Linear(2, 2), torch.ones(1, 2)
    capture(model, x, training=True).network()
    optimizer = torch.optim.Adam(model.parameters(), foreach=False)
    model(x).sum().backward()
    optimizer.step()


def allocated() -> int:
    """Bytes of private writable memory of this process, which RLIMIT_DATA counts."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmData"):
            return int(line.split()[1]) * 1024
    raise OSError("/proc/self/status has no VmData")


def resident(key: str = "VmRSS") -> int:
    """Bytes of memory in use, or the most there were (``VmHWM``)."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(key):
            return int(line.split()[1]) * 1024
    return 0


def serve(request: dict[str, Any]) -> None:
    """One rank: take the limit, train some steps with Adam, and write down what was needed."""
    import torch.distributed as dist

    from loadmaster.plan import Plan
    from loadmaster.runtime.torch import example_batch, load_source
    from loadmaster.torch import pipeline

    torch.set_num_threads(1)
    dist.init_process_group("gloo", timeout=timedelta(seconds=20 if request["limit"] else 120))
    rank = dist.get_rank()
    dist.barrier()
    if request["limit"]:
        limited(request["limit"])
    else:
        warm_up()
    before = resident()
    source = load_source(f"{HERE}:{request['case']}")
    model, example, loss, target = source.model, source.example, source.loss, source.target
    assert example is not None
    assert loss is not None
    losses: list[Any] = []
    batch = example_batch(example, MICROBATCHES, target)
    if request["plan"]:
        pipe = pipeline(model, Plan.load(request["plan"]), example, loss=loss)
        del model, source
        ctypes.CDLL(None).malloc_trim(0)
        optimizer = torch.optim.Adam(pipe.parameters(), 1e-4, foreach=False)
        for _ in range(request["steps"]):
            pipe.step(*batch.args, target=batch.target, losses=(found := []), **batch.kwargs)
            optimizer.step()
            optimizer.zero_grad()
            losses.append(float(sum(found) / max(len(found), 1)))
    else:
        optimizer = torch.optim.Adam(model.parameters(), 1e-4, foreach=False)
        for _ in range(request["steps"]):
            total = 0.0
            for one in batch.microbatches(MICROBATCHES):
                value = loss(model(*one.args, **one.kwargs), one.target) / MICROBATCHES
                value.backward()
                total += float(value)
            optimizer.step()
            optimizer.zero_grad()
            losses.append(total)
    answer = {"rank": rank, "losses": losses, "peak": resident("VmHWM") - before}
    Path(f"{request['answer']}.{rank}").write_text(json.dumps(answer))
    dist.barrier()
    dist.destroy_process_group()


def train(case: str, plan: str, limit: float, steps: int, folder: Path) -> dict[str, Any]:
    """Start one rank, or two with a plan; their losses and peaks, or how they ended."""
    from loadmaster.errors import WorkerError
    from loadmaster.runtime.torch import launch

    ranks = 2 if plan else 1
    for rank in range(ranks):
        (folder / f"answer.{rank}").unlink(missing_ok=True)
    path = folder / "request.json"
    request = {"case": case, "plan": plan, "limit": limit, "steps": steps, "answer": str(folder / "answer")}
    path.write_text(json.dumps(request))
    os.environ |= AT_ONCE
    try:
        launch("benchmarks.torch_memory", ["--serve", str(path)], ranks, timeout=600)
    except WorkerError as error:
        return {"trained": False, "said": str(error)}
    found = [json.loads((folder / f"answer.{rank}").read_text()) for rank in range(ranks)]
    return {"trained": True, "losses": found[-1]["losses"], "peak": [entry["peak"] for entry in found]}


def one(case: str, limit: float, steps: int, folder: Path, free: bool) -> dict[str, Any]:
    """All ways to train a case with the limit, and without it if asked for."""
    from loadmaster.split import split
    from loadmaster.torch import load_source

    source = load_source(f"{HERE}:{case}")
    print(f"{case}: choosing stages …", file=sys.stderr, flush=True)
    found = split(source, 2, microbatches=MICROBATCHES, memory=SHARE * limit)
    entry = found.rules["equal layers"]
    assert not isinstance(entry, str)
    plans = {"one rank": "", **{way: str(folder / f"{case}-{way}.json") for way in WAYS[1:]}}
    found.plan().save(plans["loadmaster"])
    found.plan("equal layers").save(plans["equal layers"])
    counted = {
        "equal layers": entry[1].memory.tolist(),
        "loadmaster": found.evaluation.memory.tolist(),
    }
    row: dict[str, Any] = {"case": case, "limit": limit, "counted": counted, "ways": {}}
    for way, plan in plans.items():
        print(f"{case}, {way}: training …", file=sys.stderr, flush=True)
        row["ways"][way] = {"limited": train(case, plan, limit, steps, folder)}
        if free:
            row["ways"][way]["free"] = train(case, plan, 0.0, steps, folder)
    return row


def table(rows: Sequence[dict[str, Any]]) -> str:
    """A line per case and way."""
    lines = [
        "| case | limit of a rank | way | counted by the plan | under the limit | needed without it |",
        "|---|--:|---|--:|---|--:|",
    ]
    for row in rows:
        for way, found in row["ways"].items():
            limited, free = found["limited"], found.get("free", {})
            said = f"failed: {limited.get('said')}"
            if limited["trained"]:
                said = f"trained, loss {limited['losses'][0]:.3f} to {limited['losses'][-1]:.3f}"
            counted = " + ".join(f"{size / 1e6:.0f}" for size in row["counted"].get(way, [])) or "-"
            peaks = " + ".join(f"{size / 1e6:.0f}" for size in free.get("peak", [])) or "-"
            lines.append(
                f"| {row['case']} | {row['limit'] / 1e6:.0f} MB | {way} | {counted} MB | {said} | {peaks} MB |"
            )
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> int:
    """Train every way and print a table; 1 unless ours alone trained under the limit."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--cases", default=",".join(CASES))
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--free", action="store_true", help="train without the limit as well")
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="loadmaster-memory-") as folder:
        rows = [
            one(case, CASES[case], given.steps, Path(folder), given.free) for case in given.cases.split(",")
        ]
    print(json.dumps(rows) if given.json else table(rows))
    as_it_should = all(
        found["limited"]["trained"] == (way == "loadmaster")
        and found.get("free", {"trained": True})["trained"]
        for row in rows
        for way, found in row["ways"].items()
    )
    return 0 if as_it_should else 1


if __name__ == "__main__":
    if sys.argv[1:2] == ["--serve"]:
        serve(json.loads(Path(sys.argv[2]).read_text()))
    else:
        sys.exit(main())
