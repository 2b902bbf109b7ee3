"""Devices and the links between them: where ops run."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import numpy.typing as npt

from loadmaster.errors import InputError
from loadmaster.files import check_limit

__all__ = ["PRECISIONS", "Cluster", "Device", "Link"]

PRECISIONS = ("fp64", "fp32", "tf32", "bf16", "fp16", "int8")
"""Number formats for which a device may state a peak."""


@dataclass(frozen=True)
class Device:
    """One place where ops can run.

    ``kind`` is ``"cpu"`` or anything else; under the ``offload`` execution model all CPUs are one unlimited
    pool and everything else is an accelerator. The speeds are None where the costs of ops are given from
    outside. How they become op times is in :func:`loadmaster.hardware.roofline`.
    """

    name: str
    kind: str = "cpu"
    capacity: float = math.inf
    """Memory in bytes."""
    flops: float | None = None
    """Peak floating point operations per second in fp32."""
    bandwidth: float | None = None
    """Bytes per second to and from the device's own memory."""
    launch: float = 0.0
    """Seconds that every op takes at least (launch overhead)."""
    precisions: Mapping[str, float] = field(default_factory=dict, hash=False)
    """Peaks in other precisions (:data:`PRECISIONS`)."""
    efficiency: Mapping[str, float] = field(default_factory=dict, hash=False)
    """Kind of op -> share of the peak that such ops reach; ``default`` for the kinds not listed,
    ``bandwidth`` for the share of the memory bandwidth."""
    saturation: Mapping[str, float] = field(default_factory=dict, hash=False)
    """Kind of op (or ``default``) -> output elements at which half of the peak speed is reached."""
    weight_bandwidth: float | None = None
    """Bytes per second at which weights are read; None is ``bandwidth``. On a CPU activations come from its
    caches."""
    model: str = ""
    """The product's name."""
    source: tuple[str, ...] = ()
    """Where the figures come from."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "source", tuple(self.source))
        if not self.name:
            raise InputError("a device has an empty name")
        speeds = {"flops": self.flops, "bandwidth": self.bandwidth, "weight_bandwidth": self.weight_bandwidth}
        for group in ("precisions", "efficiency", "saturation"):
            speeds |= {f"{group} of {key}": value for key, value in getattr(self, group).items()}
        for what, number in speeds.items():
            if number is not None and not (math.isfinite(number) and number > 0):
                raise InputError(f"device {self.name!r}: {what} must be a finite number > 0, not {number}")
        if not (math.isfinite(self.launch) and self.launch >= 0):
            raise InputError(f"device {self.name!r}: launch must be a finite number >= 0, not {self.launch}")
        if math.isnan(self.capacity) or self.capacity < 0:
            raise InputError(f"device {self.name!r}: capacity must be >= 0, not {self.capacity}")

    def peak(self, precision: str = "fp32") -> float | None:
        """Peak operations per second in a precision; one without a figure runs as fast as fp32."""
        if precision not in PRECISIONS:
            raise InputError(f"the precision {precision!r} is unknown: choose one of {', '.join(PRECISIONS)}")
        return self.flops if precision == "fp32" else self.precisions.get(precision, self.flops)


@dataclass(frozen=True)
class Link:
    """What it takes to bring bytes from one device to another: ``latency + bytes / bandwidth`` seconds."""

    latency: float
    bandwidth: float

    def __post_init__(self) -> None:
        if not (math.isfinite(self.latency) and self.latency >= 0):
            raise InputError(f"a link's latency must be a finite number >= 0, not {self.latency}")
        if math.isnan(self.bandwidth) or self.bandwidth <= 0:
            raise InputError(f"a link's bandwidth must be > 0, not {self.bandwidth}")


@dataclass(frozen=True)
class Cluster:
    """Devices and the links between them.

    ``links[d][e]`` is the link from device d to device e (None on the diagonal); empty where transfer costs
    are given from outside. ``host`` is the index of the device whose memory is the host's. ``source`` says
    where the figures of the links come from.
    """

    name: str
    devices: tuple[Device, ...]
    links: tuple[tuple[Link | None, ...], ...] = ()
    host: int = 0
    description: str = ""
    source: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not self.devices:
            raise InputError(f"cluster {self.name!r} has no device")
        names = [device.name for device in self.devices]
        check_limit("devices", len(names), f"cluster {self.name!r} has {len(names):,} devices")
        if len(set(names)) < len(names):
            twice = next(name for name, count in Counter(names).items() if count > 1)
            raise InputError(f"cluster {self.name!r}: device {twice!r} appears twice")
        if not 0 <= self.host < len(self.devices):
            raise InputError(
                f"cluster {self.name!r}: host {self.host} is not one of its {len(self.devices)} devices"
            )
        if self.links:
            if len(self.links) != len(names) or any(len(row) != len(names) for row in self.links):
                raise InputError(f"cluster {self.name!r}: links must be {len(names)} x {len(names)}")
            for d, row in enumerate(self.links):
                for e, link in enumerate(row):
                    if d != e and link is None:
                        raise InputError(f"cluster {self.name!r}: no link from {names[d]!r} to {names[e]!r}")

    def __len__(self) -> int:
        return len(self.devices)

    @cached_property
    def index(self) -> dict[str, int]:
        """Device name -> index."""
        return {device.name: d for d, device in enumerate(self.devices)}

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The device names, in order."""
        return tuple(device.name for device in self.devices)

    @property
    def capacity(self) -> npt.NDArray[np.float64]:
        """(devices,) bytes, infinite where unlimited."""
        return np.array([device.capacity for device in self.devices], np.float64)

    def link_arrays(self) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
        """(devices, devices) latency in seconds and rate in seconds per byte, zero on the diagonal."""
        size = len(self.devices)
        latency, rate = np.zeros((size, size)), np.zeros((size, size))
        for d, row in enumerate(self.links):
            for e, link in enumerate(row):
                if link is not None and d != e:
                    latency[d, e], rate[d, e] = link.latency, 1.0 / link.bandwidth
        return latency, rate
