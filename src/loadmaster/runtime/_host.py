"""Inside the worker process: a model and the ways to run it, whatever the engine."""

from __future__ import annotations

import math
import os
import signal
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import numpy.typing as npt

from loadmaster.runtime._deadline import within
from loadmaster.runtime._measuring import timed
from loadmaster.runtime._tolerance import Agreement, agreement
from loadmaster.runtime._verifying import NUDGES, Difference, difference, nudged, scaled

__all__ = ["Arrays", "Executor", "ModelHost", "Span"]

Arrays = Sequence[npt.NDArray[Any]]
Span = dict[str, Any]
"""One piece of work of a run: ``submodel``, ``device``, ``start`` and ``end`` in seconds."""


class Executor(Protocol):
    """A model that is ready to run in one way.

    What runs a stream of requests also has ``items`` (requests of one run), ``once()`` (a shorter run),
    ``timed(clock)`` and ``latencies``; what holds threads has ``close()``.
    """

    submodels: int

    def feed(self, inputs: Arrays) -> None:
        """Set the inputs of the following runs."""
        ...

    def infer(self) -> None:
        """Run once."""
        ...

    def outputs(self) -> list[npt.NDArray[Any]]:
        """What the last run gave."""
        ...

    def spans(self) -> list[Span]:
        """When each submodel ran in a run made for this."""
        ...


class ModelHost(ABC):
    """What the worker holds: a model, and the executors made of it by name.

    Every public method is a request that :meth:`~loadmaster.runtime._worker.Worker.ask` can make. An engine says how
    a model is opened, which executors there are, and what its inputs are.
    """

    def __init__(self) -> None:
        self.executors: dict[str, Any] = {}

    @abstractmethod
    def open(self, path: str, shapes: dict[str, tuple[int, ...]], devices: list[Any]) -> Mapping[str, str]:
        """Read the model and make the devices ready; the engine's name and version."""

    @abstractmethod
    def executor(self, how: str, options: Mapping[str, Any]) -> Executor:
        """The model made ready to run in one of the engine's ways."""

    @abstractmethod
    def inputs(self, seed: int) -> list[npt.NDArray[Any]]:
        """Inputs to run the model on."""

    def said(self, error: BaseException) -> str:
        """What an error of the engine's says, in one line."""
        return " ".join(str(error).split())[:300] or type(error).__name__

    def load(self, key: str, how: str, options: dict[str, Any], seconds: float = math.inf) -> dict[str, Any]:
        """Make an executor ready, and run it once; not if compiling takes longer than some ``seconds``."""
        began = time.perf_counter()
        with within(seconds):
            executor = self.executor(how, options)
        executor.feed(self.inputs(0))
        _once(executor)
        self.executors[key] = executor
        return {
            "submodels": executor.submodels,
            "seconds": time.perf_counter() - began,
            "items": getattr(executor, "items", 1),
        }

    def drop(self, key: str) -> None:
        """Free an executor."""
        executor = self.executors.pop(key, None)
        if hasattr(executor, "close"):
            executor.close()

    def outputs(self, key: str, seed: int) -> list[npt.NDArray[Any]]:
        """The outputs on the inputs of a seed."""
        return self.run(key, self.inputs(seed))

    def run(self, key: str, inputs: Arrays) -> list[npt.NDArray[Any]]:
        """The outputs on given inputs."""
        executor = self.executors[key]
        executor.feed(inputs)
        _once(executor)
        found: list[npt.NDArray[Any]] = executor.outputs()
        return found

    def compare(
        self, key: str, reference: str, seed: int, other: int, change: tuple[float, float]
    ) -> tuple[Difference, Difference]:
        """How far two executors are apart on one input, and the first from itself on a changed other one."""
        expected, found = self.outputs(reference, seed), self.outputs(key, seed)
        changed = self.run(key, scaled(self.inputs(other), *change))
        return difference(found, expected), difference(changed, expected)

    def amplified(self, key: str, seed: int) -> Difference:
        """How far the outputs move when the inputs do by no more than rounding does: the most of some nudges, as what
        amplifies rounding does so by chance."""
        inputs = self.inputs(seed)
        expected = self.run(key, inputs)
        moved = [difference(self.run(key, nudged(inputs, i)), expected) for i in range(NUDGES)]
        return max(moved, key=lambda found: found.relative)

    def judge(self, key: str, reference: str, seeds: list[int]) -> tuple[Agreement, Agreement]:
        """How near two executors are on some inputs, and how near they would be had each got another of them."""
        found = [self.outputs(key, seed) for seed in seeds]
        expected = [self.outputs(reference, seed) for seed in seeds]
        return agreement(found, expected), agreement(found, expected[1:] + expected[:1])

    def sample(
        self, keys: list[str], rounds: int, seconds: float, clock: str = "wall"
    ) -> list[tuple[str, float, float]]:
        """Rounds of one run of each, at most so many, until some seconds are over: (key, seconds, lost).

        At least one run: the time may be over in the middle of a round.
        """
        found = []
        end = time.perf_counter() + seconds
        for _ in range(rounds):
            for key in keys:
                executor = self.executors[key]
                _once(executor)  # what the one before left in the caches is not its to pay
                sample = executor.timed(clock) if hasattr(executor, "timed") else timed(executor.infer)
                found.append((key, sample.seconds, sample.lost))
                if time.perf_counter() >= end:
                    return found
        return found

    def latencies(self, key: str) -> list[float]:
        """Seconds of the single requests in the samples so far; none where a run is one request."""
        return list(getattr(self.executors[key], "latencies", ()))

    def spans(self, key: str) -> list[Span]:
        """When each submodel ran."""
        found: list[Span] = self.executors[key].spans()
        return found

    def crash(self) -> None:
        """Die as a fault in native code would, for tests."""
        os.kill(os.getpid(), signal.SIGKILL)

    def sleep(self, seconds: float) -> None:
        """Hang, for tests."""
        time.sleep(seconds)


def _once(executor: Any) -> None:
    """Run without measuring: a stream need not be run to its end for that."""
    getattr(executor, "once", executor.infer)()
