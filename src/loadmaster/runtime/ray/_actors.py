"""The driver's end of devices on nodes: actors, what is sent to them, and what a failed call means."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from loadmaster import errors
from loadmaster.errors import InputError, LoadmasterError, RunError, RunTimeoutError, WorkerError
from loadmaster.files import scratch_folder
from loadmaster.runtime.openvino import DeviceSpec
from loadmaster.runtime.ray._connection import Machines
from loadmaster.runtime.ray._device import MAIL, DeviceHost, Wires, keep_freed_memory, seen_here

__all__ = ["Actors", "devices_of_nodes", "pinned", "see"]

CHUNK = 4 * 2**20
"""Bytes of weights that are sent at once: however large a model is, its parts fit a small object store."""
PATIENCE = 600.0
"""Seconds for a call that has no limit of its own."""
LOOK = 20.0
"""Seconds in which a device that is there says so, even on a busy machine, or its node is known to be dead."""
LEAVE = 2.0
"""Seconds for devices to take away their files, before they are ended; else the next run does it."""


def pinned(machines: Machines, node: str) -> Any:
    """The scheduling that keeps an actor or a task to a node, and nowhere else."""
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    return NodeAffinitySchedulingStrategy(machines.node(node).id, soft=False)


def see(machines: Machines) -> dict[str, dict[str, Any]]:
    """What every node has, by its name.

    Raises
    ------
    InputError : a node runs another version of Loadmaster.
    """
    import ray

    import loadmaster

    nodes = machines.nodes()
    asked = {
        node.name: ray.remote(max_calls=1)(seen_here)  # its process goes: it takes tens of megabytes
        .options(num_cpus=0, scheduling_strategy=pinned(machines, node.name), max_retries=1)
        .remote()
        for node in nodes
    }
    found = {}
    for name, ref in asked.items():
        try:
            found[name] = ray.get(ref, timeout=PATIENCE)
        except ray.exceptions.RayError as error:
            raise RunError(f"node {name!r} cannot say what it has: {_line(error)}") from None
        there = found[name]["loadmaster"]
        if there != loadmaster.__version__:
            raise InputError(f"node {name!r} has Loadmaster {there}, this machine {loadmaster.__version__}")
    return found


def devices_of_nodes(seen: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """What :func:`see` found, as ``loadmaster devices`` lists it: devices by ``node/name``, and the nodes."""
    return {
        "available": [
            {**device, "name": f"{name}/{device['name']}", "node": name}
            for name, node in seen.items()
            for device in node["devices"]
        ],
        "nodes": [
            {"name": name, "cores": len(node["cores"]), "memory": node["memory"], "host": node["host"]}
            for name, node in seen.items()
        ],
    }


class Actors:
    """One actor for each device. A context manager: leaving it ends them."""

    def __init__(self, machines: Machines, devices: Iterable[DeviceSpec]) -> None:
        keep_freed_memory()
        self.machines = machines
        self.specs: dict[str, DeviceSpec] = {}
        self.handles: dict[str, Any] = {}
        self._dead: set[str] = set()
        self.sent: dict[str, int] = {}
        """Bytes of submodels that each device was sent."""
        try:
            self.add(devices)
        except BaseException:
            self.close()
            raise

    def add(self, devices: Iterable[DeviceSpec]) -> None:
        """One more actor for each of some devices, or a new one for one that was forgotten."""

        given = {spec.name: spec for spec in devices}
        for spec in given.values():
            if not spec.node:
                raise InputError(
                    f"device {spec.name!r} names no node: give e.g. {spec.name}={spec.plugin}:node="
                    f"{self.machines.nodes()[0].name}",
                    option="--device",
                )
        made = _actor_class()
        handles = {
            name: made.options(
                num_cpus=0,
                max_restarts=0,
                allow_out_of_order_execution=True,
                scheduling_strategy=pinned(self.machines, spec.node),
                runtime_env=self.machines.runtime_env,
            ).remote(spec)
            for name, spec in given.items()
        }
        self.specs |= given
        self.handles |= handles
        self.sent |= dict.fromkeys(given, 0)
        for name in given:
            self.get(self.handles[name].hello.remote())
        self.all(lambda handle: handle.meet.remote(self.handles))

    def get(self, refs: Any, limit: float = PATIENCE) -> Any:
        """The answers of calls.

        Raises
        ------
        WorkerError : a node or a device is gone; the message names it.
        RunTimeoutError : there is no answer in ``limit`` seconds.
        LoadmasterError : what the device raised.
        """
        import ray

        try:
            return ray.get(refs, timeout=limit)
        except ray.exceptions.GetTimeoutError:
            raise RunTimeoutError(f"the devices took longer than {limit:g} s to answer") from None
        except ray.exceptions.RayError as error:
            raise self._meant(error) from None

    def _meant(self, error: BaseException) -> LoadmasterError:
        cause = getattr(error, "cause", None)
        if isinstance(cause, LoadmasterError):
            kind = getattr(errors, type(cause).__name__, RunError)
            made: LoadmasterError = kind(str(cause), option=cause.option)
            return made
        if self.gone():
            return WorkerError(self.who_died())
        return RunError(f"a call to a device failed: {_line(cause or error)}")

    def gone(self) -> list[str]:
        """The devices that are dead, in their order; who was found so once stays so.

        Dead is whose node is dead for the cluster, or whose actor the cluster gave up. Who is only slow is not.
        """
        import ray

        asked = {name: self.handles[name].hello.remote() for name in self.handles if name not in self._dead}
        end = time.monotonic() + LOOK
        while asked and time.monotonic() < end:
            ready, _ = ray.wait(list(asked.values()), num_returns=len(asked), timeout=0.2)
            there = {node.name for node in self.machines.nodes()}
            for name, ref in list(asked.items()):
                if self.specs[name].node not in there:
                    del asked[name]
                    self._dead.add(name)
                elif ref in ready:
                    del asked[name]
                    try:
                        ray.get(ref)
                    except ray.exceptions.ActorUnavailableError:  # the cluster does not know yet
                        asked[name] = self.handles[name].hello.remote()
                    except ray.exceptions.RayError:
                        self._dead.add(name)
        return [name for name in self.handles if name in self._dead]

    def who_died(self) -> str:
        """Of those that :meth:`gone` has found: a sentence."""
        dead = [name for name in self.handles if name in self._dead]
        return f"{', '.join(f'node {self.specs[name].node!r} (device {name!r})' for name in dead)} died"

    def forget(self, names: Iterable[str]) -> None:
        """Go on without some devices."""
        for name in names:
            del self.specs[name], self.handles[name]
            self._dead.discard(name)

    def send(
        self, device: str, key: str, number: int, model: Any, what: str, wires: Wires | None = None
    ) -> None:
        """Bring a submodel to its device and compile it there: its own weights, in parts, and nothing else.

        Without ``wires`` it is kept to be profiled.
        """
        import openvino as ov

        handle = self.handles[device]
        with scratch_folder() as folder:
            paper, weights = Path(folder) / "part.xml", Path(folder) / "part.bin"
            ov.serialize(model, str(paper), str(weights))
            with weights.open("rb") as file:
                while content := file.read(CHUNK):
                    self.get(handle.receive.remote(key, number, content))  # parts must arrive in order
                    self.sent[device] += len(content)
            text = paper.read_text()
            self.sent[device] += len(text)
        self.get(handle.load.remote(key, number, text, what, wires))

    def all(self, call: Callable[[Any], Any]) -> dict[str, Any]:
        """The answer of every device."""
        names: Sequence[str] = list(self.handles)
        return dict(zip(names, self.get([call(self.handles[name]) for name in names]), strict=True))

    def close(self) -> None:
        """End the actors."""
        import ray

        if ray.is_initialized() and self.handles:
            leaving = [handle.leave.remote() for handle in self.handles.values()]
            ray.wait(leaving, num_returns=len(leaving), timeout=LEAVE)
            for handle in self.handles.values():
                ray.kill(handle)
        self.handles = {}

    def __enter__(self) -> Actors:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _actor_class() -> Any:
    """Of devices: what must not wait for a submodel has a thread of its own."""
    import ray

    for name in MAIL:
        ray.method(concurrency_group="mail")(getattr(DeviceHost, name))
    return ray.remote(concurrency_groups={"mail": 1})(DeviceHost)


def _line(error: BaseException) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return (lines[-1] if lines else type(error).__name__)[:200]
