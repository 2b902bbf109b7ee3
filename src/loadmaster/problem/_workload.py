"""Workload files as problems, and splits as placements."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from loadmaster.errors import InputError
from loadmaster.files import check_limit
from loadmaster.graph.workload import Split, Workload
from loadmaster.hardware import Cluster, Device
from loadmaster.problem._model import ExecutionModel, Offload
from loadmaster.problem._placement import Placement
from loadmaster.problem._problem import Problem

__all__ = ["place_split", "workload_problem"]


def workload_problem(workload: Workload, model: ExecutionModel) -> Problem:
    """The problem of a workload file: accelerators ``acc0``… and then CPUs ``cpu0``….

    An out-cost c is what an accelerator pays to send or receive the tensor; between devices it is c to or
    from a CPU, 2c between two accelerators (through the host), and nothing between CPUs. Under ``offload``
    the CPUs are one unlimited pool, so there is one device ``cpu0`` whatever the file says.
    """
    cpus = 1 if isinstance(model, Offload) else workload.cpus
    if workload.accelerators + cpus == 0:
        raise InputError(f"{workload.graph.name}: maxFPGAs and maxCPUs are both 0, so there is no device")
    return _problem(workload, model, workload.accelerators, cpus, provenance="imported")


def _problem(workload: Workload, model: ExecutionModel, k: int, cpus: int, provenance: str) -> Problem:
    name, ops = workload.graph.name, workload.graph.n
    check_limit("devices", k + cpus, f"{name}: asks for {k + cpus:,} devices")
    check_limit(
        "pairs",
        ops * (k + cpus),
        f"{name}: {ops:,} ops on {k + cpus:,} devices are {ops * (k + cpus):,} times",
    )
    devices = [Device(f"acc{i}", "acc", capacity=workload.capacity) for i in range(k)]
    devices += [Device(f"cpu{i}", "cpu") for i in range(cpus)]
    is_acc = np.array([device.kind != "cpu" for device in devices])
    rate = is_acc[:, None].astype(float) + is_acc[None, :]
    np.fill_diagonal(rate, 0.0)
    time = np.where(is_acc, workload.acc_time[:, None], workload.cpu_time[:, None])
    zero = np.zeros(len(devices))
    return Problem.make(
        workload.graph,
        Cluster("workload", tuple(devices), host=k if cpus else 0),
        model,
        time=time,
        size=workload.out_cost,
        latency=np.zeros_like(rate),
        rate=rate,
        send_latency=zero,
        send_rate=is_acc.astype(float),
        recv_latency=zero,
        recv_rate=is_acc.astype(float),
        memory=workload.memory,
        colocation=workload.colocation,
        provenance=provenance,
    )


def place_split(workload: Workload, problem: Problem, split: Split) -> tuple[Problem, Placement]:
    """A split of a workload's nodes as a placement.

    Groups beyond the problem's devices become extra devices (``surplus``: using one is a violation), so the
    problem that the placement refers to is returned with it. Nodes that the split leaves out go where their
    colocation class is.

    Raises
    ------
    InputError : a node is in two groups or unknown, or is left out and its class too.
    """
    if isinstance(problem.model, Offload):
        split = replace(split, cpus=(tuple(op for group in split.cpus for op in group),))
    k, cpus = problem.pool.tolist().count(False), problem.pool.tolist().count(True)
    more_acc = max(0, _used(split.accelerators) - k)
    more_cpu = max(0, _used(split.cpus) - cpus)
    if more_acc or more_cpu:
        wide = _problem(workload, problem.model, k + more_acc, cpus + more_cpu, problem.provenance)
        surplus = (*range(k, k + more_acc), *range(k + more_acc + cpus, k + more_acc + cpus + more_cpu))
        problem = replace(wide, surplus=surplus)
        k, cpus = k + more_acc, cpus + more_cpu
    device = np.full(problem.n, -1, np.int32)
    index = problem.graph.index
    groups = [(d, group) for d, group in enumerate(split.accelerators)]
    groups += [(k + d, group) for d, group in enumerate(split.cpus)]
    for d, group in groups:
        for op in group:
            if op not in index:
                raise InputError(f"the split names node {op}, which is not in {problem.graph.name}")
            if device[index[op]] >= 0:
                raise InputError(f"the split names node {op} twice")
            device[index[op]] = d
    first = np.full(problem.classes, -1, np.int32)
    placed = np.flatnonzero(device >= 0)[::-1]
    first[problem.class_of[placed]] = device[placed]
    device = np.where(device >= 0, device, first[problem.class_of])
    missing = np.flatnonzero(device < 0)
    if len(missing):
        names = ", ".join(problem.graph.names[v] for v in missing[:5]) + (", …" if len(missing) > 5 else "")
        raise InputError(f"the split leaves out node {names}, and no node of the same colour class is in it")
    return problem, Placement(device)


def _used(groups: tuple[tuple[str, ...], ...]) -> int:
    """Number of groups, trailing empty ones left out."""
    return max((i + 1 for i, group in enumerate(groups) if group), default=0)
