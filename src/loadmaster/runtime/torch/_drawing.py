"""Random numbers that do not depend on where an op runs: dropout seeded per step, microbatch and op.

Random streams of ranks differ, so that a split model with dropout would not equal the unsplit one. Here every op that
draws is given a stream of its own, made from a seed, the step, the microbatch and the op's number in the whole model.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

import torch

__all__ = ["Clock", "draw"]


class Clock:
    """Counts the microbatches that went forward through a module: all schedules take them in order."""

    current: Clock | None = None
    """Of the module that is running."""

    def __init__(self, seed: int, microbatches: int) -> None:
        self.seed, self.microbatches, self.calls = seed, microbatches, 0
        self.step, self.microbatch = 0, 0

    def tick(self, module: Any, args: Any) -> None:
        """A forward pre-hook."""
        self.step, self.microbatch = divmod(self.calls, self.microbatches)
        self.calls += 1
        Clock.current = self

    def seed_of(self, op: int) -> int:
        """The seed of an op now."""
        text = f"{self.seed} {self.step} {self.microbatch} {op}".encode()
        return int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "little") >> 1


def draw(op: int, target: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
    """Call an op that draws random numbers, with a stream of its own; the global stream stays as it was."""
    clock = Clock.current
    assert clock is not None, "a stage runs with a clock"
    streams = [torch.default_generator]
    for device in {
        part.device for part in args if isinstance(part, torch.Tensor) and part.device.type == "cuda"
    }:
        streams.append(torch.cuda.default_generators[device.index])
    before = [stream.get_state() for stream in streams]  # as torch.random.fork_rng, in a fraction of its time
    seed = clock.seed_of(op)
    for stream in streams:
        stream.manual_seed(seed)
    try:
        return target(*args, **kwargs)
    finally:
        for stream, state in zip(streams, before, strict=True):
            stream.set_state(state)
