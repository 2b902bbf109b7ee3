"""On a node: one device with its submodels, as the actor that a driver calls. Nothing of Ray is imported here."""

from __future__ import annotations

import contextlib
import ctypes
import os
import platform
import re
import resource
import threading
import time
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from loadmaster.cores import allowed_cores
from loadmaster.errors import RunError
from loadmaster.files import scratch_folder
from loadmaster.graph.openvino import one_line
from loadmaster.runtime._cores import pin
from loadmaster.runtime._measuring import run_queue_waits
from loadmaster.runtime.openvino import Devices, DeviceSpec, available, draw_inputs
from loadmaster.runtime.openvino import read_counters as counters_of

__all__ = ["MAIL", "DeviceHost", "Wires", "keep_freed_memory", "memory_of_this_node", "seen_here"]

LIMITS = (
    ("/sys/fs/cgroup/memory.max", "memory.current"),
    ("/sys/fs/cgroup/memory/memory.limit_in_bytes", "memory.usage_in_bytes"),
)
"""Of a container, by cgroup v2 and v1: its limit, and beside it what is used."""
MAIL = ("hello", "deliver", "drop", "spans", "waited")
"""Calls that are answered while a submodel runs, by a thread of their own."""
ALIGNED = 64
"""Bytes to which arrays that are not copied must be aligned."""
KEPT_FREE = {-3: 32 * 2**20, -1: 128 * 2**20, -2: 16 * 2**20}
"""Of mallopt(3): blocks from M_MMAP_THRESHOLD on are the system's own, M_TRIM_THRESHOLD free bytes are given back,
M_TOP_PAD more than needed are asked for."""
GIVEN_BACK = 128 * 2**10
"""What they are at first; once set they stay, where they would grow with what is freed."""
COLD = 24 * 2**20
"""Bytes that fill the caches of a core."""
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


def keep_freed_memory(keep: bool = True) -> None:
    """Have the allocator keep what is freed for a while: a tensor on its way is copied several times, and pages that
    are new each time cost more than the copies. Or have it give back all of it, and large blocks at once, so that one
    sees what is in use. Nothing where it is not GNU's."""
    with contextlib.suppress(OSError, AttributeError):
        allocator = ctypes.CDLL(None)
        for setting, value in KEPT_FREE.items():
            allocator.mallopt(setting, value if keep else GIVEN_BACK)
        if not keep:
            allocator.malloc_trim(0)


def own_memory() -> int:
    """Bytes of this process that are not pages of files, without what it could give back."""
    keep_freed_memory(False)
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


@dataclass(frozen=True)
class Wires:
    """Where the inputs of a submodel come from, and where its outputs go."""

    inputs: tuple[tuple[int | None, int], ...]
    """Of each input, the submodel that makes it and the number of its output; None: it comes with the call, and what
    is read more than once comes once."""
    readers: tuple[Mapping[str, int], ...]
    """Of each output, how many submodels of every device read it."""
    final: tuple[int, ...]
    """Outputs that go back with the answer."""

    def routes(self) -> dict[str, list[int]]:
        """Device -> the outputs that it is sent."""
        found: dict[str, list[int]] = {}
        for at, readers in enumerate(self.readers):
            for device in readers:
                found.setdefault(device, []).append(at)
        return found


@dataclass
class Letter:
    """A tensor that waits for the submodels that read it."""

    array: npt.NDArray[Any]
    readers: int


class _Same:
    """The memory of an array that Ray brought: it is marked as not to be written to, which OpenVINO refuses, though it
    only reads its inputs."""

    def __init__(self, array: npt.NDArray[Any]) -> None:
        self.held = array
        where, _ = array.__array_interface__["data"]
        self.__array_interface__ = {**array.__array_interface__, "data": (where, False)}


def _tensor(array: npt.NDArray[Any]) -> Any:
    """An input, without a copy where there is no need for one."""
    import openvino as ov

    if not array.size or not array.flags.c_contiguous or array.ctypes.data % ALIGNED:
        return ov.Tensor(np.array(array, order="C"))
    return ov.Tensor(np.asarray(_Same(array)), shared_memory=True)


class DeviceHost:
    """A device of this node: submodels arrive in parts, are compiled, and run one at a time.

    What a submodel makes goes straight to the devices that read it, each of which keeps it until they do; whoever
    calls :meth:`run` is told no more than that it is done. All of this is by calls of actors.
    """

    def __init__(self, spec: DeviceSpec) -> None:
        if spec.core is not None:
            if spec.core not in allowed_cores():
                cores = ", ".join(map(str, allowed_cores()))
                raise RunError(f"device {spec.name!r}: node {spec.node!r} may use the cores {cores} alone")
            pin({spec.core})
        self.spec = spec
        self.devices = Devices([spec])
        self._folder = scratch_folder()
        self._ready: dict[tuple[str, int], tuple[Any, Any, Wires]] = {}
        self._cold: npt.NDArray[Any] | None = None
        self._uncounted = 0.0
        self._keeps = False
        self._inputs: dict[tuple[str, int], list[npt.NDArray[Any]]] = {}
        self._peers: dict[str, Any] = {}
        self._mail = threading.Condition()
        self._letters: dict[tuple[str, int, int, int], Letter] = {}
        self._keys: set[str] = set()
        """Ways to run the model whose tensors are kept."""
        self._models: dict[tuple[str, int], Any] = {}
        self._spans: deque[dict[str, Any]] = deque(maxlen=KEPT)
        self.received = 0

    def hello(self) -> dict[str, Any]:
        """That it is there, and where."""
        return {"pid": os.getpid(), "cores": allowed_cores(), "received": self.received}

    def place(self) -> dict[str, Any]:
        """The machine that it is on, and bytes that are free on the node while it is there."""
        return {"host": platform.node(), "free": memory_of_this_node()[1]}

    def meet(self, peers: Mapping[str, Any]) -> None:
        """Know the other devices."""
        self._peers = dict(peers)

    def leave(self) -> None:
        """Take away the files: whoever ends an actor leaves it no time for that."""
        self._folder.cleanup()

    # -- submodels -------------------------------------------------------------------------------------------

    def receive(self, key: str, number: int, content: bytes) -> None:
        """Some more of the weights of a submodel."""
        self.received += len(content)
        with self._file(key, number).open("ab") as file:
            file.write(content)

    def load(self, key: str, number: int, text: str, what: str, wires: Wires | None = None) -> None:
        """Compile a submodel, whose weights have arrived; its file goes.

        Without ``wires`` it is kept to be profiled.
        """
        self.received += len(text)
        keep_freed_memory(False)  # compiling frees much, and what is left may be needed for more
        self._keeps = False
        weights = self._file(key, number)
        weights.touch()
        paper = weights.with_suffix(".xml")
        paper.write_text(text)
        try:
            model = self.devices.core.read_model(str(paper), str(weights))
            if wires is None:
                self._models[key, number] = model
                return
            compiled = self.devices.compile(model, self.spec.name)
        except RuntimeError as error:
            raise RunError(f"device {self.spec.name!r} cannot compile {what} ({one_line(error)})") from None
        finally:
            if wires is not None:
                weights.unlink()
                paper.unlink()
        request = compiled.create_infer_request()
        self._ready[key, number] = request, self.spec.paced(request.infer), wires
        self._keys.add(key)

    def _file(self, key: str, number: int) -> Path:
        return Path(self._folder.name) / f"{key}-{number}.bin"

    def drop(self, key: str) -> None:
        """Free the submodels of one way to run the model."""
        with self._mail:
            self._keys.discard(key)
            everything: Sequence[dict[Any, Any]] = (self._ready, self._models, self._letters, self._inputs)
            for held in everything:
                for at in [at for at in held if at[0] == key]:
                    del held[at]
            self._mail.notify_all()
        for file in Path(self._folder.name).glob(f"{key}-*"):
            file.unlink()

    # -- running ---------------------------------------------------------------------------------------------

    def run(self, key: str, number: int, request: int, *given: Any) -> Any:
        """Run one submodel: None, and those of its outputs that are the model's.

        ``given`` are the inputs that come with the call, and behind them what it had to wait for.
        """
        if not self._keeps:
            keep_freed_memory()
            self._keeps = True
        infer, run, wires = self._ready[key, number]
        inputs = [
            given[at] if source is None else self._taken((key, request, source, at))
            for source, at in wires.inputs
        ]
        start, core = time.time(), time.thread_time()
        for at, array in enumerate(inputs):
            infer.set_input_tensor(at, _tensor(array))
        self._inputs[key, number] = inputs  # they are read where they are
        try:
            run()
        except RuntimeError as error:
            raise RunError(f"device {self.spec.name!r} failed: {one_line(error)}") from None
        outputs = [tensor.data for tensor in infer.output_tensors]
        for device, ports in wires.routes().items():
            counts = [wires.readers[port][device] for port in ports]
            self._send(device, key, request, number, ports, counts, [outputs[port] for port in ports])
        found = [np.array(outputs[at]) for at in wires.final]
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
        return (None, *found) if found else None

    def _send(
        self,
        device: str,
        key: str,
        request: int,
        number: int,
        ports: Sequence[int],
        counts: Sequence[int],
        arrays: Sequence[npt.NDArray[Any]],
    ) -> None:
        """Bring outputs of a submodel to a device; nothing is waited for. A call takes a copy of what it is given."""
        if device == self.spec.name:
            self.deliver(key, request, number, ports, counts, *(np.array(array) for array in arrays))
        else:
            self._peers[device].deliver.remote(key, request, number, ports, counts, *arrays)

    def deliver(
        self,
        key: str,
        request: int,
        source: int,
        ports: Sequence[int],
        counts: Sequence[int],
        *arrays: npt.NDArray[Any],
    ) -> None:
        """Outputs of a submodel, for some that run here: ``counts`` says how many read each."""
        with self._mail:
            if key in self._keys:
                for port, readers, array in zip(ports, counts, arrays, strict=True):
                    self._letters[key, request, source, port] = Letter(array, readers)
                self._mail.notify_all()

    def _taken(self, at: tuple[str, int, int, int]) -> npt.NDArray[Any]:
        """A tensor that was sent here; it is waited for until it comes, or nobody wants it any more."""
        with self._mail:
            while at not in self._letters:
                if at[0] not in self._keys:
                    raise RunError(f"device {self.spec.name!r}: the plan was closed")
                self._mail.wait()
            letter = self._letters[at]
            letter.readers -= 1
            if not letter.readers:
                del self._letters[at]
            return letter.array

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

    # -- measuring links -------------------------------------------------------------------------------------

    def expect(self, key: str) -> None:
        """Keep what is sent under a key, though there are no submodels of it."""
        self._keys.add(key)

    def relay(
        self, key: str, number: int, to: str, cold: bool, array: npt.NDArray[Any] | None, *_: Any
    ) -> None:
        """As a submodel that computes nothing: wait for an array, unless it is given, and send it on, if anywhere.

        If ``cold``, caches are filled with something else before, as a submodel does; that time is not counted.
        """
        keep_freed_memory()
        if cold:
            began = time.thread_time()
            if self._cold is None:
                self._cold = np.zeros(COLD // 8)
            self._cold += 1
            self._uncounted += time.thread_time() - began
        taken = self._taken((key, number - 1, 0, 0)) if array is None else array
        if to:
            self._send(to, key, number, 0, [0], [1], [taken])

    def spent(self) -> float:
        """Seconds of the core that this process has used."""
        return time.process_time() - self._uncounted

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
