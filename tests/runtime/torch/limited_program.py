"""One rank of ``test_rank_memory.py``: training steps with Adam under a limit of memory, plan after plan."""

from __future__ import annotations

import ctypes
import gc
import json
import sys
from pathlib import Path

import torch
import torch.distributed as dist

from benchmarks.torch_memory import Hourglass, limited
from loadmaster.runtime.torch import example_batch
from loadmaster.torch import pipeline

LIMIT = 195e6
"""Bytes: two wide layers need more, one and the temporary tensors of Adam need less."""


def case() -> tuple[Hourglass, torch.Tensor, torch.Tensor]:
    """Two wide layers of 98 MB each, with gradients and Adam's state."""
    torch.manual_seed(0)
    return Hourglass(256, 12000), torch.randn(2, 256), torch.randn(2, 256)


def train(plan: Path) -> list[float]:
    """Three steps; the losses, on the last rank."""
    model, example, target = case()
    pipe = pipeline(model, plan, example, loss=torch.nn.functional.mse_loss)
    del model
    batch = example_batch(pipe.capture.example, pipe.microbatches, target)
    optimizer = torch.optim.Adam(pipe.parameters(), foreach=False)
    found = []
    for _ in range(3):
        losses: list[torch.Tensor] = []
        pipe.step(*batch.args, target=batch.target, losses=losses)
        optimizer.step()
        optimizer.zero_grad()
        found += [float(sum(losses))] if losses else []
    return found


def main(folder: Path) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    limited(LIMIT)
    for name in ("loadmaster", "equal layers"):
        found = train(folder / f"{name}.json")
        (folder / f"{name}.{dist.get_rank()}").write_text(json.dumps(found))
        gc.collect()
        ctypes.CDLL(None).malloc_trim(0)
        dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
