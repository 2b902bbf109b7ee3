"""On a node: one device with its submodels, as the actor that a driver calls. Nothing of Ray is imported here."""

from __future__ import annotations

import contextlib
import ctypes
import os
import platform
import re
import resource
import time
from collections import deque
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from loadmaster.errors import RunError
from loadmaster.files import scratch_folder
from loadmaster.graph.openvino import one_line
from loadmaster.runtime._cores import allowed_cores, pin
from loadmaster.runtime._measuring import run_queue_waits
from loadmaster.runtime.openvino import Devices, DeviceSpec, available, draw_inputs
from loadmaster.runtime.openvino import read_counters as counters_of

__all__ = ["DeviceHost", "memory_of_this_node", "seen_here"]

LIMITS = (
    ("/sys/fs/cgroup/memory.max", "memory.current"),
    ("/sys/fs/cgroup/memory/memory.limit_in_bytes", "memory.usage_in_bytes"),
)
"""Of a container, by cgroup v2 and v1: its limit, and beside it what is used."""
KEPT = 10_000
"""Runs of submodels that are remembered, if nobody asks for them."""


def memory_of_this_node() -> tuple[float, float]:
    """Bytes that a process may use here at most, and those of them that are free.

    Of the machine, of its cgroups, or by the limit of the process, whichever is least.
    """
    page = float(os.sysconf("SC_PAGE_SIZE"))
    limits = [(page * os.sysconf("SC_PHYS_PAGES"), _available())]
    for name, used in (*LIMITS, *_own_limits()):
        try:
            text = Path(name).read_text().strip()
        except OSError:
            continue
        if text.isdecimal():
            limits.append((float(text), float(text) - _held(Path(name).parent, used)))
    for kind, field in ((resource.RLIMIT_AS, 0), (resource.RLIMIT_DATA, 5)):
        soft, _ = resource.getrlimit(kind)
        if soft != resource.RLIM_INFINITY:
            own = float(Path("/proc/self/statm").read_text().split()[field]) * page
            limits.append((float(soft), soft - own))
    return min(limit for limit, _ in limits), max(0.0, min(free for _, free in limits))


def _available() -> float:
    """Bytes of the machine that are free, or can be."""
    try:
        found = re.search(r"^MemAvailable:\s+(\d+) kB", Path("/proc/meminfo").read_text(), re.M)
    except OSError:
        found = None
    pages = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return 1024.0 * int(found[1]) if found else float(pages)


def _held(group: Path, used: str) -> float:
    """Bytes that a cgroup uses and cannot give back: pages of files are not among them."""
    try:
        stat = dict(line.split() for line in (group / "memory.stat").read_text().splitlines())
        own = next((float(stat[name]) for name in ("total_rss", "anon") if name in stat), None)
        if own is None:
            return float((group / used).read_text())
    except (OSError, ValueError):
        return 0.0
    return own + next((float(stat[name]) for name in ("total_shmem", "shmem") if name in stat), 0.0)


def _own_limits() -> list[tuple[str, str]]:
    """The files in which the cgroups of this process keep their limit, and what is used of it."""
    try:
        lines = Path("/proc/self/cgroup").read_text().splitlines()
    except OSError:
        return []
    found = []
    for line in lines:
        _, kinds, path = line.split(":", 2)
        if kinds == "":
            found.append((f"/sys/fs/cgroup{path}/memory.max", "memory.current"))
        elif "memory" in kinds.split(","):
            found.append((f"/sys/fs/cgroup/memory{path}/memory.limit_in_bytes", "memory.usage_in_bytes"))
    return found


def own_memory() -> int:
    """Bytes of this process that are not pages of files, without what it could give back."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)
    found = re.search(r"^RssAnon:\s+(\d+) kB", Path("/proc/self/status").read_text(), re.M)
    return 1024 * int(found[1]) if found else 0


def seen_here() -> dict[str, Any]:
    """What a node has: OpenVINO's devices, cores, memory, and the versions that must agree."""
    import openvino

    import loadmaster

    limit, free = memory_of_this_node()
    return {
        "devices": available(),
        "cores": allowed_cores(),
        "memory": limit,
        "free": free,
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
        """Of a model that was loaded to be kept, with the bytes that it takes and the ops that it cannot run."""
        model = self._models[key, 0]
        unsupported = list(self.devices.unsupported(model, self.spec.name))
        memory = self._footprint(model)
        found = counters_of(model, self.devices, self.spec.name, repeats, clock, seconds)
        return {**found, "memory": memory, "unsupported": unsupported}

    def _footprint(self, model: Any) -> int:
        """Bytes by which this process grows when it compiles a model and runs it: its weights as the device wants them,
        and room for activations. What is read from a file can be read again, and is not counted."""
        import openvino as ov

        before = own_memory()
        request = self.devices.compile(model, self.spec.name).create_infer_request()
        for at, array in enumerate(draw_inputs(model, 0)):
            request.set_input_tensor(at, ov.Tensor(array))
        request.infer()
        return max(0, own_memory() - before)

    def free(self) -> float:
        """Bytes that are free on this node."""
        return memory_of_this_node()[1]
