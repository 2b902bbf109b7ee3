"""Small networks in files, the devices that tests run them on, and problems and plans of them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import openvino as ov
from openvino import opset13 as ops

from loadmaster.graph import load_openvino
from loadmaster.hardware import Cluster, Device, Link
from loadmaster.plan import Plan
from loadmaster.problem import Concurrent, Placement, Problem, Solution
from loadmaster.runtime import cut
from loadmaster.runtime.openvino import parse_devices

DEVICES = ["A=cpu", "B=cpu", "C=cpu"]
CLOCK = "core"
"""Tests run beside other tests: no sample is undisturbed, and no time is asserted."""


def block(x, generator, name: str, channels: int = 8):
    """A residual block whose weights keep the signal."""
    y = x
    for i in range(2):
        weight = generator.normal(size=(channels, channels, 3, 3)).astype(np.float32) * 0.12
        filters = ops.constant(weight, name=f"{name}/weight{i}")
        y = ops.convolution(y, filters, [1, 1], [1, 1], [1, 1], [1, 1], name=f"{name}/conv{i}")
        bias = ops.constant(
            generator.normal(size=(1, channels, 1, 1)).astype(np.float32), name=f"{name}/bias{i}"
        )
        y = ops.relu(ops.add(y, bias, name=f"{name}/add{i}"), name=f"{name}/relu{i}")
    return ops.add(y, x, name=f"{name}/sum")


def write_network(path: Path, *, blocks: int = 3, seed: int = 0) -> Path:
    generator = np.random.default_rng(seed)
    x = ops.parameter([1, 8, 16, 16], np.float32, name="image")
    y = x
    for i in range(blocks):
        y = block(y, generator, f"block{i}")
    model = ov.Model([ops.result(y, name="features")], [x], "net")
    ov.save_model(model, str(path))
    return path


def branched(path):
    """Blocks of two branches that end in a Concat, as Inception has them; two outputs."""
    generator = np.random.default_rng(0)

    def conv(x, name, channels_in, channels):
        weight = generator.normal(size=(channels, channels_in, 3, 3)).astype(np.float32) * 0.15
        y = ops.convolution(x, ops.constant(weight), [1, 1], [1, 1], [1, 1], [1, 1], name=f"{name}/conv")
        return ops.relu(y, name=f"{name}/relu")

    x = ops.parameter([1, 8, 12, 12], np.float32, name="image")
    y, early = x, None
    for i in range(3):
        left, right = conv(y, f"block{i}/left", 8, 4), conv(y, f"block{i}/right", 8, 4)
        right = conv(right, f"block{i}/right2", 4, 4)
        y = ops.concat([left, right], 1, name=f"block{i}/concat")
        early = early or ops.result(left, name="early")
    flat = ops.reduce_mean(y, ops.constant(np.array([2, 3])), False, name="mean")
    ov.save_model(ov.Model([ops.result(flat, name="late"), early], [x], "branched"), str(path))
    return path


def problem_of(path, devices=2):
    network = load_openvino(path)
    cluster = Cluster(
        "test",
        tuple(Device(name, "cpu") for name in "ABC"[:devices]),
        tuple(tuple(None if i == j else Link(1e-6, 1e9) for j in range(devices)) for i in range(devices)),
    )
    seconds = np.full((network.graph.n, devices), 1e-3)
    return Problem.make(network.graph, cluster, Concurrent(), time=seconds)


def random_pieces(problem, seed, **options):
    generator = np.random.default_rng(seed)
    return cut(problem, Placement(generator.integers(problem.devices, size=problem.n)), **options)


def overlapping_plan(path, model, seed=3, devices=("A=cpu", "B=cpu")):
    """A plan with random devices, as ``place`` writes it."""
    plain = problem_of(path)
    cluster = replace(plain.cluster, devices=tuple(spec.device() for spec in parse_devices(devices)))
    problem = replace(plain, cluster=cluster, model=model)
    placement = Placement(np.random.default_rng(seed).integers(2, size=problem.n))
    return Plan.from_solution(problem, Solution(placement, 1.0, 0.0, "nothing", "by hand"))


def halves(problem):
    position = problem.graph.position[problem.members[1][problem.members[0][:-1]]][problem.class_of]
    return Placement((position > problem.n // 2).astype(np.int32))
