"""What ops cost on devices, and how that is known."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase

import numpy as np
import numpy.typing as npt

from loadmaster.arrays import FloatArray
from loadmaster.errors import InputError
from loadmaster.files import SECONDS, parse_quantity
from loadmaster.graph import Graph
from loadmaster.hardware._cluster import Cluster
from loadmaster.hardware._roofline import roofline

__all__ = ["ORIGINS", "Costs", "estimate", "parse_totals", "scale_to"]


ORIGINS = ("estimated", "imported", "measured")
"""How a number came to be, least certain first: by a model of the machine, from somebody's file, by running
it here. The index is what arrays hold."""


@dataclass(frozen=True, eq=False)
class Costs:
    """Op times with their provenance.

    Attributes
    ----------
    time : (ops, devices) seconds; infinite where a device does not support an op.
    origin : (ops, devices) index into :data:`ORIGINS`.
    text : where the numbers come from, in words.
    """

    time: FloatArray
    origin: npt.NDArray[np.uint8]
    text: str


def estimate(graph: Graph, cluster: Cluster, *, precision: str = "fp32") -> Costs:
    """Costs by :func:`roofline`."""
    time = roofline(graph, cluster, precision=precision)
    origin = np.zeros(time.shape, np.uint8)
    return Costs(time, origin, f"estimated by roofline on {cluster.name} ({precision})")


def scale_to(costs: Costs, graph: Graph, cluster: Cluster, totals: Mapping[str, float]) -> Costs:
    """The costs with all times of a device multiplied so that the whole graph takes ``totals[device]``
    seconds on it.

    This keeps what a model is good at (which op is how much more expensive than another) and takes from a
    measurement what the measurement knows (how long a single device takes for everything). Devices may be
    patterns (``gpu*``: each takes that long); those not named keep their times. An estimate stays an
    estimate, of a known sum.

    Raises
    ------
    InputError : the device is unknown, does not support every op, or takes no time at all.
    """
    time = costs.time.copy()
    for pattern, total in totals.items():
        if not (math.isfinite(total) and total > 0):
            raise InputError(
                f"the total of device {pattern!r} must be a finite number of seconds > 0, not {total}"
            )
        found = [d for d, name in enumerate(cluster.names) if name == pattern or fnmatchcase(name, pattern)]
        if not found:
            raise InputError(
                f"there is no device {pattern!r} to scale: choose one of {', '.join(cluster.names)}"
            )
        for d in found:
            unsupported = np.flatnonzero(np.isinf(time[:, d]))
            if len(unsupported):
                op = graph.names[unsupported[0]]
                raise InputError(
                    f"device {cluster.names[d]!r} does not support op {op!r}, so its total cannot be scaled"
                )
            with np.errstate(over="ignore"):
                now = float(time[:, d].sum())
            if now <= 0:
                raise InputError(
                    f"no op takes any time on device {cluster.names[d]!r}, so it cannot be scaled"
                )
            with np.errstate(over="ignore", invalid="ignore"):
                time[:, d] *= total / now
            if not np.isfinite(time[:, d]).all():
                raise InputError(
                    f"the times on device {cluster.names[d]!r} ({now:g} s in total) cannot be scaled to {total:g} s"
                )
    said = ", ".join(f"{device}={total:g} s" for device, total in totals.items())
    return replace(costs, time=time, text=f"{costs.text}, scaled to {said}") if said else costs


def parse_totals(text: str) -> dict[str, float]:
    """Totals as the command line gives them.

    >>> parse_totals("cpu=0.0128,gpu=12ms")
    {'cpu': 0.0128, 'gpu': 0.012}
    """
    totals: dict[str, float] = {}
    for entry in text.split(","):
        device, separator, value = entry.strip().partition("=")
        if not separator or not device:
            raise InputError(
                f"--scale-to {text!r} must be written DEVICE=SECONDS,…, e.g. cpu=0.0128,gpu=12ms"
            )
        if device in totals:
            raise InputError(f"--scale-to {text!r} names device {device!r} twice")
        try:
            totals[device] = parse_quantity(value, SECONDS)
        except ValueError as error:
            raise InputError(f"--scale-to {text!r}: the total of device {device!r} {error}") from None
    return totals
