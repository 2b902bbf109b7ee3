"""The worker process: it is pinned, opens one model, and does what its parent asks, until the parent is gone.

Started as ``python -m loadmaster.runtime.openvino._worker_main CORES``. Requests and answers are pickles
behind their length, on standard input and on what was standard output (which OpenVINO is free to write to otherwise).
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import pickle
import signal
import struct
import sys
import time
from typing import Any, BinaryIO

__all__ = ["Session", "receive", "send"]

LENGTH = struct.Struct("<Q")
DEATH_SIGNAL = 1
"""PR_SET_PDEATHSIG of prctl(2)."""


def send(stream: BinaryIO, value: Any) -> None:
    """Write one message."""
    content = pickle.dumps(value, protocol=pickle.HIGHEST_PROTOCOL)
    stream.write(LENGTH.pack(len(content)) + content)
    stream.flush()


def receive(stream: BinaryIO) -> Any:
    """Read one message; EOFError where the other side is gone."""
    head = _exactly(stream, LENGTH.size)
    return pickle.loads(_exactly(stream, LENGTH.unpack(head)[0]))


def _exactly(stream: BinaryIO, count: int) -> bytes:
    content = bytearray()
    while len(content) < count:
        part = stream.read(count - len(content))
        if not part:
            raise EOFError
        content += part
    return bytes(content)


class Session:
    """What the worker holds: a model, its devices, and the executors made of them by name."""

    def open(self, path: str, shapes: dict[str, tuple[int, ...]], devices: list[Any]) -> dict[str, Any]:
        """Read the model and register the devices."""
        from loadmaster.graph.openvino import openvino_model
        from loadmaster.runtime.openvino._devices import Devices, DeviceSpec

        self.model = openvino_model(path, shapes)
        # Beside the devices asked for: the unplaced model in each of their precisions, and in f32.
        precisions = dict.fromkeys(("f32", *(spec.precision for spec in devices)))
        references = [DeviceSpec(f"reference-{p}", "cpu", precision=p) for p in precisions]
        self.devices = Devices([*devices, *references])
        self.executors: dict[str, Any] = {}
        return {"openvino": self.devices.ov.__version__}

    def load(self, key: str, how: str, options: dict[str, Any]) -> dict[str, Any]:
        """Make an executor ready; ``how`` is one of those in the table."""
        from loadmaster.runtime._inputs import draw_inputs
        from loadmaster.runtime.openvino._executors import EXECUTORS

        began = time.perf_counter()
        executor = EXECUTORS[how](self.model, self.devices, **options)
        executor.feed(draw_inputs(self.model, 0))
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

    def outputs(self, key: str, seed: int) -> list[Any]:
        """The outputs on the inputs of a seed."""
        from loadmaster.runtime._inputs import draw_inputs

        executor = self.executors[key]
        executor.feed(draw_inputs(self.model, seed))
        _once(executor)
        found: list[Any] = executor.outputs()
        return found

    def run(self, key: str, inputs: list[Any]) -> list[Any]:
        """The outputs on given inputs."""
        executor = self.executors[key]
        executor.feed(inputs)
        _once(executor)
        found: list[Any] = executor.outputs()
        return found

    def compare(self, key: str, reference: str, seed: int, other: int) -> Any:
        """How far two executors are apart on one input, and the first from itself on another one."""
        from loadmaster.runtime._verifying import difference

        expected, changed = self.outputs(reference, seed), self.outputs(key, other)
        found = self.outputs(key, seed)
        return difference(found, expected), difference(changed, expected)

    def sample(
        self, keys: list[str], rounds: int, seconds: float, clock: str = "wall"
    ) -> list[tuple[str, float, float]]:
        """Rounds of one run of each, at most so many, until some seconds are over: (key, seconds, lost)."""
        from loadmaster.runtime._measuring import timed

        found = []
        end = time.perf_counter() + seconds
        for _ in range(rounds):
            for key in keys:
                executor = self.executors[key]
                _once(executor)  # what the one before left in the caches is not its to pay
                sample = executor.timed(clock) if hasattr(executor, "timed") else timed(executor.infer)
                found.append((key, sample.seconds, sample.lost))
            if time.perf_counter() >= end:
                break
        return found

    def latencies(self, key: str) -> list[float]:
        """Seconds of the single requests in the samples so far; none where a run is one request."""
        return list(getattr(self.executors[key], "latencies", ()))

    def spans(self, key: str) -> list[Any]:
        """When each submodel ran."""
        found: list[Any] = self.executors[key].spans()
        return found

    def profile(self, device: str, repeats: int, clock: str) -> Any:
        """Counters of one device, and the nodes that it made of the model's."""
        from loadmaster.runtime.openvino._counters import read_counters

        return read_counters(self.model, self.devices, device, repeats, clock)

    def unsupported(self, device: str) -> list[str]:
        """Ops that a device does not support."""
        return self.devices.unsupported(self.model, device)

    def crash(self) -> None:
        """Die as a fault in native code would, for tests."""
        os.kill(os.getpid(), signal.SIGKILL)

    def sleep(self, seconds: float) -> None:
        """Hang, for tests."""
        time.sleep(seconds)


def _once(executor: Any) -> None:
    """Run without measuring: a stream need not be run to its end for that."""
    getattr(executor, "once", executor.infer)()


def _end_with_parent() -> None:
    with contextlib.suppress(OSError, AttributeError):  # Linux only; elsewhere the end of the input does it
        ctypes.CDLL(None).prctl(DEATH_SIGNAL, signal.SIGKILL)


def main() -> None:
    """Answer requests until standard input ends."""
    _end_with_parent()
    cores = {int(core) for core in sys.argv[1].split(",")}
    os.sched_setaffinity(0, cores)  # before OpenVINO counts the cores
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    requests = sys.stdin.buffer
    session = Session()
    while True:
        try:
            command, arguments = receive(requests)
        except EOFError:
            return
        try:
            answer = (True, getattr(session, command)(**arguments))
        except Exception as error:
            from loadmaster.errors import LoadmasterError
            from loadmaster.graph.openvino import one_line

            ours = isinstance(error, LoadmasterError)
            answer = (False, (type(error).__name__, str(error) if ours else one_line(error)))
        send(answers, answer)


if __name__ == "__main__":
    main()
