"""On a node: one device with its submodels, as the actor that a driver calls. Nothing of Ray is imported here."""

from __future__ import annotations

import os
import platform
import resource
import time
from collections import deque
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from loadmaster.errors import RunError
from loadmaster.files import scratch_folder
from loadmaster.graph.openvino import one_line
from loadmaster.runtime._cores import allowed_cores, pin
from loadmaster.runtime._measuring import run_queue_waits
from loadmaster.runtime.openvino import Devices, DeviceSpec, available
from loadmaster.runtime.openvino import read_counters as counters_of

__all__ = ["DeviceHost", "memory_of_this_node", "seen_here"]

LIMITS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")
"""Of a container, by cgroup v2 and v1."""
KEPT = 10_000
"""Runs of submodels that are remembered, if nobody asks for them."""


def memory_of_this_node() -> float:
    """Bytes that a process may use here: of the machine, of its cgroup, or of its own limit, whichever is least."""
    found = [float(os.sysconf("SC_PAGE_SIZE")) * os.sysconf("SC_PHYS_PAGES")]
    for name in (*LIMITS, *_own_limits()):
        try:
            text = Path(name).read_text().strip()
        except OSError:
            continue
        if text.isdecimal():
            found.append(float(text))
    for kind in (resource.RLIMIT_AS, resource.RLIMIT_DATA):
        soft, _ = resource.getrlimit(kind)
        if soft != resource.RLIM_INFINITY:
            found.append(float(soft))
    return min(found)


def _own_limits() -> list[str]:
    """The files in which the cgroups of this process keep their limit."""
    try:
        lines = Path("/proc/self/cgroup").read_text().splitlines()
    except OSError:
        return []
    found = []
    for line in lines:
        _, kinds, path = line.split(":", 2)
        if kinds == "":
            found.append(f"/sys/fs/cgroup{path}/memory.max")
        elif "memory" in kinds.split(","):
            found.append(f"/sys/fs/cgroup/memory{path}/memory.limit_in_bytes")
    return found


def seen_here() -> dict[str, Any]:
    """What a node has: OpenVINO's devices, cores, memory, and the versions that must agree."""
    import openvino

    import loadmaster

    return {
        "devices": available(),
        "cores": allowed_cores(),
        "memory": memory_of_this_node(),
        "host": platform.node(),
        "loadmaster": loadmaster.__version__,
        "openvino": openvino.__version__,
    }


class DeviceHost:
    """A device of this node: submodels arrive in parts, are compiled, and run one at a time."""

    def __init__(self, spec: DeviceSpec) -> None:
        if spec.core is not None:
            if spec.core not in allowed_cores():
                cores = ", ".join(map(str, allowed_cores()))
                raise RunError(f"device {spec.name!r}: node {spec.node!r} may use the cores {cores} alone")
            pin({spec.core})
        self.spec = spec
        self.devices = Devices([spec])
        self._folder = scratch_folder()
        self._ready: dict[tuple[str, int], tuple[Any, Any]] = {}
        self._models: dict[tuple[str, int], Any] = {}
        self._spans: deque[dict[str, Any]] = deque(maxlen=KEPT)
        self.received = 0

    def hello(self) -> dict[str, Any]:
        """That it is there, and where."""
        return {"pid": os.getpid(), "cores": allowed_cores(), "received": self.received}

    def leave(self) -> None:
        """Take away the files: whoever ends an actor leaves it no time for that."""
        self._folder.cleanup()

    # -- submodels -------------------------------------------------------------------------------------------

    def receive(self, key: str, number: int, content: bytes) -> None:
        """Some more of the weights of a submodel."""
        self.received += len(content)
        with self._file(key, number).open("ab") as file:
            file.write(content)

    def load(self, key: str, number: int, text: str, what: str, keep: bool = False) -> None:
        """Compile a submodel, whose weights have arrived; its file goes."""
        self.received += len(text)
        weights = self._file(key, number)
        weights.touch()
        paper = weights.with_suffix(".xml")
        paper.write_text(text)
        try:
            model = self.devices.core.read_model(str(paper), str(weights))
            if keep:
                self._models[key, number] = model
                return
            compiled = self.devices.compile(model, self.spec.name)
        except RuntimeError as error:
            raise RunError(f"device {self.spec.name!r} cannot compile {what} ({one_line(error)})") from None
        finally:
            if not keep:
                weights.unlink()
                paper.unlink()
        request = compiled.create_infer_request()
        self._ready[key, number] = request, self.spec.paced(request.infer)

    def _file(self, key: str, number: int) -> Path:
        return Path(self._folder.name) / f"{key}-{number}.bin"

    def drop(self, key: str) -> None:
        """Free the submodels of one way to run the model."""
        for held in (self._ready, self._models):
            for at in [at for at in held if at[0] == key]:
                del held[at]
        for file in Path(self._folder.name).glob(f"{key}-*"):
            file.unlink()

    # -- running ---------------------------------------------------------------------------------------------

    def run(self, key: str, number: int, request: int, *inputs: npt.NDArray[Any]) -> Any:
        """The outputs of one submodel, in their order."""
        import openvino as ov

        infer, run = self._ready[key, number]
        start, core = time.time(), time.thread_time()
        for at, array in enumerate(inputs):
            infer.set_input_tensor(at, ov.Tensor(np.array(array, order="C")))
        try:
            run()
        except RuntimeError as error:
            raise RunError(f"device {self.spec.name!r} failed: {one_line(error)}") from None
        found = [np.array(tensor.data) for tensor in infer.output_tensors]
        self._spans.append(
            {
                "key": key,
                "submodel": number,
                "device": self.spec.name,
                "request": request,
                "start": start,
                "end": time.time(),
                "core": time.thread_time() - core,
            }
        )
        return found[0] if len(found) == 1 else tuple(found)

    def spans(self) -> list[dict[str, Any]]:
        """What ran since this was asked last, by the clock of this node."""
        found = list(self._spans)
        self._spans.clear()
        return found

    def waited(self) -> dict[str, float]:
        """Seconds that each thread has waited for a core."""
        return run_queue_waits()

    def peak_memory(self) -> int:
        """Most bytes that this process has held at once."""
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024

    def echo(self, array: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """As many bytes as came in, for measuring links."""
        return array.copy()

    # -- profiling -------------------------------------------------------------------------------------------

    def counters(self, key: str, repeats: int, clock: str, seconds: float) -> dict[str, Any]:
        """Of a whole model that was loaded to be kept."""
        return counters_of(self._models[key, 0], self.devices, self.spec.name, repeats, clock, seconds)

    def unsupported(self, key: str) -> Sequence[str]:
        """Ops of it that this device does not support."""
        return self.devices.unsupported(self._models[key, 0], self.spec.name)
