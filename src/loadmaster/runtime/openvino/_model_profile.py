"""A model profiled on devices: from the cache where it is there, measured where it is not, as a problem to place."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from loadmaster.graph import Given, Network, load_openvino
from loadmaster.graph.openvino import openvino
from loadmaster.hardware import ORIGINS, Cluster, Link
from loadmaster.problem import ExecutionModel, Problem, Serial
from loadmaster.runtime._cache import Cache, model_hash
from loadmaster.runtime._link_costs import LinkFit, measure_link
from loadmaster.runtime._piece_costs import OverlapFit
from loadmaster.runtime.openvino._device_profile import DeviceProfile, measure_profile
from loadmaster.runtime.openvino._devices import DeviceSpec
from loadmaster.runtime.openvino._session import OpenVinoSession

__all__ = ["ModelProfile", "profile_model"]

T = TypeVar("T")

FORMAT = 1
"""Of what is kept in the cache."""


@dataclass(frozen=True, eq=False)
class ModelProfile:
    """All that is known about a model on some devices."""

    network: Network
    devices: tuple[DeviceSpec, ...]
    profiles: Mapping[str, DeviceProfile]
    links: Mapping[tuple[str, str], LinkFit]
    """By kinds of devices, both ends in alphabetical order."""
    cached: bool
    """Whether nothing had to be measured."""
    capacity: Mapping[str, float] = field(default_factory=dict)
    """Device -> bytes of memory, where they are known."""
    provenance: str = "measured by OpenVINO's counters; links fitted to measured splits"
    calls: OverlapFit | None = None
    """What calls cost devices of other machines."""

    @property
    def groups(self) -> list[list[int]]:
        """Ops that some device runs as one."""
        index = self.network.graph.index
        found = []
        for profile in self.profiles.values():
            found += [[index[op] for op in group] for group in profile.fused]
        return found

    def seconds(self, device: str) -> npt.NDArray[np.float64]:
        """(n,) seconds of ops on a device; infinite where it does not support one."""
        graph, profile = self.network.graph, self.profiles[device]
        found = np.array([profile.seconds.get(name, 0.0) for name in graph.names])
        found[[graph.index[op] for op in profile.unsupported]] = np.inf
        return found

    def problem(self, *, cut_fused: bool = False, model: ExecutionModel | None = None) -> Problem:
        """The problem of placing the model on its devices under ``serial``, as HETERO runs it, or another model.

        Inputs and results are in host memory whatever a placement says: they take no time, go with their first reader
        or what they come from, and nothing is charged for bringing an input. ``cut_fused`` lets a plan
        cut what a device runs as one.
        """
        graph = self.network.graph
        links = []
        for a in self.devices:
            row: list[Link | None] = []
            for b in self.devices:
                fit = None if a is b else self.links.get(_kinds(a, b), LinkFit(0.0, 0.0, (), ()))
                row.append(None if fit is None else Link(fit.latency, 1 / fit.rate if fit.rate else np.inf))
            links.append(tuple(row))
        devices = tuple(
            replace(spec.device(), capacity=self.capacity.get(spec.name, math.inf)) for spec in self.devices
        )
        cluster = Cluster("measured", devices, tuple(links))
        time = np.stack([self.seconds(spec.name) for spec in self.devices], axis=1)
        origin = np.full(time.shape, ORIGINS.index("measured"), np.uint8)
        joined = [] if cut_fused else self.groups
        return Problem.make(
            graph,
            cluster,
            model or Serial(),
            time=time,
            size=np.where(np.isin(graph.tensor_producer, self.network.inputs), 0.0, graph.tensor_bytes),
            colocation=[*self.network.colocation, *joined, *self._ends()],
            provenance=self.provenance,
            origin=origin,
            **self._wires(cluster),
        )

    def _wires(self, cluster: Cluster) -> dict[str, Any]:
        """What a device of another machine pays for sending and receiving: its slowest link, whoever is host."""
        if not any(spec.node for spec in self.devices):
            return {}
        latency, rate = (array.max(axis=1) for array in cluster.link_arrays())
        return {"send_latency": latency, "send_rate": rate, "recv_latency": latency, "recv_rate": rate}

    def _ends(self) -> list[list[int]]:
        """Every input with its first reader, every result with what it comes from."""
        graph, found = self.network.graph, []
        for v in self.network.inputs:
            readers = graph.successors[1][graph.successors[0][v] : graph.successors[0][v + 1]]
            if len(readers):
                found.append([v, int(min(readers, key=lambda u: graph.position[u]))])
        for v in self.network.outputs:
            sources = graph.predecessors[1][graph.predecessors[0][v] : graph.predecessors[0][v + 1]]
            found.extend([v, int(u)] for u in sources)
        return found

    @property
    def age(self) -> float:
        """When the oldest of it was measured, in seconds since 1970."""
        return min(
            [profile.made for profile in self.profiles.values()] + [fit.made for fit in self.links.values()]
        )


def _kinds(a: DeviceSpec, b: DeviceSpec) -> tuple[str, str]:
    first, second = sorted((a.place, b.place))
    return first, second


def profile_model(
    path: str | Path,
    devices: Sequence[DeviceSpec],
    shapes: Mapping[str, Sequence[int]] | Iterable[str] = (),
    *,
    cache: Cache | None = None,
    refresh: bool = False,
    clock: str = "wall",
    links_too: bool = True,
    until: float = math.inf,
    session: OpenVinoSession | None = None,
) -> ModelProfile:
    """Profile a model on devices, and, with ``links_too``, what HETERO takes to pass tensors between them.

    After the time ``until`` of ``time.monotonic`` ops are measured in as few runs as will do. An open ``session`` is
    used and left open; without one a worker is started where something has to be measured.

    Raises
    ------
    InputError : the model or a device is wrong.
    BusyError : other work disturbed the measuring; what was measured before that is in the cache.
    """
    version = openvino(f"{path}: running it").__version__
    given = Given(shapes)
    network = load_openvino(path, given)
    graph = network.graph
    about = {
        "format": FORMAT,
        "model": model_hash(path),
        "shapes": {name: list(shape) for name, shape in sorted(given.items())},
        **({"values": given.constants} if given.constants else {}),
        "graph": graph.digest,
        "openvino": version,
        "clock": clock,
    }
    given_session = session

    def known(kind: str, more: Mapping[str, Any], made: type[T]) -> T | None:
        return None if cache is None or refresh else cache.get_as(kind, {**about, **more}, made)

    def keep(kind: str, more: Mapping[str, Any], value: Any) -> None:
        if cache is not None:
            cache.put(kind, {**about, **more}, value)

    profiles: dict[str, DeviceProfile] = {}
    links: dict[tuple[str, str], LinkFit] = {}
    fresh = False
    try:
        for at, spec in enumerate(devices):
            stored = known("profile", {"device": spec.text}, DeviceProfile)
            twin = next((profiles[d.name] for d in devices if d.name in profiles and _alike(d, spec)), None)
            if stored is not None:
                profiles[spec.name] = stored
                continue
            if (
                twin is not None
            ):  # the same plugin, precision and threads: a core more or less makes no difference
                profiles[spec.name] = twin
                continue
            session = session or OpenVinoSession(path, devices, given, clock=clock)
            seconds = max(0.0, until - time.monotonic()) / (len(devices) - at)
            profiles[spec.name], fresh = measure_profile(session, graph, spec.name, seconds=seconds), True
            keep("profile", {"device": spec.text}, profiles[spec.name].document())
        partial = ModelProfile(network, tuple(devices), profiles, {}, False)
        for a in devices if links_too else ():
            for b in devices:
                kinds = _kinds(a, b)
                if a is b or kinds in links:
                    continue
                ends = {"from": a.text, "to": b.text}
                fitted = known("link", ends, LinkFit)
                if fitted is not None:
                    links[kinds] = fitted
                    continue
                session = session or OpenVinoSession(path, devices, given, clock=clock)
                groups = [*partial.groups, *[list(group) for group in network.colocation]]
                spent = {d.name: partial.seconds(d.name) for d in (a, b)}
                links[kinds], fresh = measure_link(session, graph, groups, (a.name, b.name), spent), True
                keep("link", ends, links[kinds].document())
    finally:
        if session is not None and session is not given_session:
            session.close()
    return ModelProfile(network, tuple(devices), profiles, links, not fresh)


def _alike(a: DeviceSpec, b: DeviceSpec) -> bool:
    return a.kind == b.kind
