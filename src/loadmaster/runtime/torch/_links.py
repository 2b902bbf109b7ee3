"""What a message between two ranks takes, measured by the engine's own transport (gloo or nccl).

One rank sends, the other answers with an empty message once it has everything; half a round trip of two empty messages
is the latency, and what more bytes add is the bandwidth. Started by torchrun with the path of a request.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist

from loadmaster.errors import InputError
from loadmaster.files import scratch_folder
from loadmaster.hardware import Link
from loadmaster.runtime.torch._launch import launch
from loadmaster.runtime.torch._pipeline import default_device, start_processes

__all__ = ["measure_links"]

SIZES = (4, 1 << 16, 1 << 20, 1 << 22, 1 << 23)
"""Bytes of the messages."""
REPEATS = 9


def measure_links(ranks: int, *, timeout: float | None = 300.0) -> list[list[Link | None]]:
    """The link from each rank to each other one, on this machine; None from a rank to itself.

    Raises
    ------
    InputError : fewer than two ranks.
    WorkerError : a rank died.
    """
    if ranks < 2:
        raise InputError(f"links are between at least two ranks, not {ranks}")
    with scratch_folder() as folder:
        answer = Path(folder) / "links.json"
        launch("loadmaster.runtime.torch._links", [str(answer)], ranks, timeout=timeout)
        found = json.loads(answer.read_text())
    return [
        [None if a == b else Link(found[a][b][0], found[a][b][1]) for b in range(ranks)] for a in range(ranks)
    ]


def fit(seconds: dict[int, float]) -> tuple[float, float]:
    """Latency and bandwidth from the seconds of messages by their bytes: a line, weighted so that errors are relative.

    >>> latency, bandwidth = fit({4: 1e-5, 1_000_000: 1.01e-3, 4_000_000: 4.01e-3})
    >>> round(latency * 1e6), round(bandwidth / 1e6)
    (10, 1000)
    """
    sizes, taken = np.array(list(seconds), float), np.array(list(seconds.values()))
    design = np.stack([np.ones_like(sizes), sizes], axis=1) / taken[:, None]
    (latency, rate), *_ = np.linalg.lstsq(design, np.ones_like(taken), rcond=None)
    return max(float(latency), 0.0), 1.0 / max(float(rate), 1e-18)


def _exchange(sender: int, receiver: int, size: int, device: Any) -> float:
    """Seconds of a message, as the sender sees it: the round trip without what the answer takes."""
    rank = dist.get_rank()
    data, answer = (torch.zeros(count, dtype=torch.uint8, device=device) for count in (size, 1))
    taken = []
    for _ in range(REPEATS + 1):
        began = time.perf_counter()
        if rank == sender:
            dist.send(data, receiver)
            dist.recv(answer, receiver)
        else:
            dist.recv(data, sender)
            dist.send(answer, sender)
        if device.type == "cuda":
            torch.cuda.synchronize()
        taken.append(time.perf_counter() - began)
    return float(np.median(taken[1:]))


def main(path: str) -> None:
    """One rank: all pairs, one after another."""
    start_processes()
    rank, world, device = dist.get_rank(), dist.get_world_size(), default_device()
    table: list[list[Any]] = [[None] * world for _ in range(world)]
    for sender in range(world):
        for receiver in range(world):
            if sender != receiver and rank in (sender, receiver):
                trips = {size: _exchange(sender, receiver, size, device) for size in SIZES}
                half = trips[SIZES[0]] / 2
                table[sender][receiver] = fit(
                    {size: max(taken - half, 1e-9) for size, taken in trips.items()}
                )
            dist.barrier()
    every: list[Any] = [None] * world
    dist.all_gather_object(every, table)
    if rank == 0:
        Path(path).write_text(json.dumps([every[sender][sender] for sender in range(world)]))
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main(sys.argv[1])
