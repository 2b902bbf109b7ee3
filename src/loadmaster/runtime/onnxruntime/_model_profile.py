"""A model profiled by ONNX Runtime on devices, as a problem to place."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from loadmaster.graph import Given, load_onnx
from loadmaster.problem import ExecutionModel, Problem
from loadmaster.runtime._cache import Cache, model_hash
from loadmaster.runtime._link_costs import LinkFit, measure_link
from loadmaster.runtime.onnxruntime._library import check_devices, device_of, onnxruntime
from loadmaster.runtime.onnxruntime._session import OnnxRuntimeSession
from loadmaster.runtime.openvino._device_profile import DeviceProfile, measure_profile
from loadmaster.runtime.openvino._devices import DeviceSpec
from loadmaster.runtime.openvino._model_profile import ModelProfile, _kinds

__all__ = ["OnnxRuntimeProfile", "profile_model"]

FORMAT = 1
"""Of what is kept in the cache."""


class OnnxRuntimeProfile(ModelProfile):
    """All that is known about a model on some devices of ONNX Runtime's."""

    def problem(self, *, cut_fused: bool = False, model: ExecutionModel | None = None) -> Problem:
        """The problem of placing the model on its devices, as :class:`ModelProfile` has it."""
        made = super().problem(cut_fused=cut_fused, model=model)
        cluster = replace(made.cluster, devices=tuple(device_of(spec) for spec in self.devices))
        return replace(
            made,
            cluster=cluster,
            provenance="measured by ONNX Runtime's profiler; links fitted to measured splits",
        )


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
    session: OnnxRuntimeSession | None = None,
) -> OnnxRuntimeProfile:
    """Profile a model on devices, and, with ``links_too``, what it takes to pass tensors between them.

    After the time ``until`` of ``time.monotonic`` ops are measured in as few runs as will do. An open ``session`` is
    used and left open; without one a worker is started where something has to be measured.

    Devices that differ in their core alone are profiled once.

    Raises
    ------
    InputError : the model or a device is wrong.
    BusyError : other work disturbed the measuring; what was measured before that is in the cache.
    """
    check_devices(devices)
    given = Given(shapes)
    network = load_onnx(path, given)
    graph = network.graph
    about = {
        "format": FORMAT,
        "model": model_hash(path),
        "shapes": {name: list(shape) for name, shape in sorted(given.items())},
        **({"values": given.constants} if given.constants else {}),
        "graph": graph.digest,
        "onnxruntime": onnxruntime("profiling").__version__,
        "clock": clock,
    }
    opened: list[OnnxRuntimeSession] = []
    fresh = False

    def running() -> OnnxRuntimeSession:
        nonlocal fresh
        fresh = True
        if session is not None:
            return session
        if not opened:
            opened.append(OnnxRuntimeSession(path, devices, given, clock=clock))
        return opened[0]

    def known(kind: str, more: Mapping[str, Any], made: Any) -> Any:
        return None if cache is None or refresh else cache.get_as(kind, {**about, **more}, made)

    def keep(kind: str, more: Mapping[str, Any], value: Any) -> None:
        if cache is not None:
            cache.put(kind, {**about, **more}, value)

    profiles: dict[str, DeviceProfile] = {}
    links: dict[tuple[str, str], LinkFit] = {}
    kinds = {spec.name: replace(spec, name="x", core=None).text for spec in devices}
    try:
        for at, spec in enumerate(devices):
            twin = next(
                (d for d in devices if d.name in profiles and kinds[d.name] == kinds[spec.name]), None
            )
            found = profiles[twin.name] if twin is not None else None
            about_device = {"device": kinds[spec.name]}
            found = found or known("profile", about_device, DeviceProfile)
            if found is None:
                seconds = max(0.0, until - time.monotonic()) / (len(devices) - at)
                found = measure_profile(running(), graph, spec.name, seconds=seconds)  # type: ignore[arg-type]
                keep("profile", about_device, found.document())
            profiles[spec.name] = found
        partial = OnnxRuntimeProfile(network, tuple(devices), profiles, {}, False)
        for a in devices if links_too else ():
            for b in devices:
                between = _kinds(a, b)
                if a is b or between in links:
                    continue
                ends = {"from": between[0], "to": between[1]}
                link = known("link", ends, LinkFit)
                if link is None:
                    groups = [*partial.groups, *[list(group) for group in network.colocation]]
                    spent = {d.name: partial.seconds(d.name) for d in (a, b)}
                    link = measure_link(running(), graph, groups, (a.name, b.name), spent)
                    keep("link", ends, link.document())
                links[between] = link
    finally:
        for each in opened:
            each.close()
    return OnnxRuntimeProfile(network, tuple(devices), profiles, links, not fresh)
