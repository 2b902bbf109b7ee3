"""Nodes that are slower than they were when they were measured."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from loadmaster.problem import Problem
from loadmaster.runtime._lint import Finding
from loadmaster.runtime._piece_costs import piece_features
from loadmaster.runtime._pieces import Piece

__all__ = ["slow_devices"]

SLOW = 1.5
"""How many times as long as predicted, against the device that keeps to it best: calls and copies are all devices'."""


def slow_devices(
    problem: Problem, pieces: Sequence[Piece], spans: Sequence[Mapping[str, Any]], where: Mapping[str, str]
) -> list[Finding]:
    """What a run says about devices that took much longer than predicted; ``where``: device -> node.

    A device's share of a request is the sum of its submodels, of several requests the median.
    """
    expected, _, _ = piece_features(problem, pieces)
    predicted: dict[str, float] = {}
    for piece, seconds in zip(pieces, expected.tolist(), strict=True):
        predicted[piece.device] = predicted.get(piece.device, 0.0) + seconds
    taken: dict[str, dict[int, float]] = {}
    for span in spans:
        requests = taken.setdefault(span["device"], {})
        requests[span["request"]] = requests.get(span["request"], 0.0) + span["end"] - span["start"]
    times = {
        name: statistics.median(requests.values()) / predicted[name]
        for name, requests in taken.items()
        if predicted.get(name, 0.0) > 0
    }
    least = max(1.0, min(times.values(), default=1.0))
    return [
        Finding(
            "slow-node",
            "warning",
            f"device {name!r} on node {where.get(name, '')!r} takes {times[name]:.1f} times as long as it was measured "
            "to take: profile it again with --refresh, and place the model anew",
        )
        for name in sorted(times)
        if times[name] > SLOW * least
    ]
