"""A linear relaxation of placement under ``serial``, for a lower bound with any number of devices."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.optimize import linprog
from scipy.sparse import coo_array, csr_array, vstack

from loadmaster.arrays import FloatArray
from loadmaster.placers.frame.feasible import Atoms
from loadmaster.problem import Problem

__all__ = ["Relaxation", "relax"]


class Relaxation(NamedTuple):
    """What the linear relaxation says.

    bound : seconds; no feasible placement costs less.
    at : (atoms,) the device on which the largest part of an atom is.
    price : (D,) seconds per byte that the memory of a device is worth.
    """

    bound: float
    at: npt.NDArray[np.int32]
    price: FloatArray


def relax(problem: Problem, atoms: Atoms, largest: int, seconds: float) -> Relaxation | None:
    """A lower bound on the cost of any placement; None if the relaxation is too large or the time does not
    suffice.

    Variables: ``x[a, d]`` (atom a is on device d) and ``q[t, d, e]`` (tensor t goes from d to e). Every atom
    is on one device; what leaves d is there (``q[t, d, e] <= x[producer, d]``); what a reader on e needs
    arrives (``Σ_d q[t, d, e] >= x[reader, e]``); memories are kept. For two devices this is the dual of a
    maximum flow, so the bound is exact there (without memory limits).

    The bound is computed from the solver's dual values by hand: for any signs-respecting duals it is the
    constant term plus every variable's negative reduced cost (all lie between 0 and 1), so the solver's
    tolerances cannot make it invalid.
    """
    graph, devices = problem.graph, problem.devices
    producer = atoms.of_op[graph.tensor_producer].astype(np.int64)
    consumer, tensor = atoms.of_op[graph.consumer_op].astype(np.int64), graph.edge_tensor.astype(np.int64)
    outside = consumer != producer[tensor]
    pairs = np.unique(np.stack([tensor[outside], consumer[outside]]), axis=1)
    used, row_of = np.unique(pairs[0], return_inverse=True)
    n, m = atoms.count, len(used)
    size = n * devices + m * devices * devices
    if size == 0 or size > largest or seconds <= 0:
        return None
    ops, tensors, d, e = np.arange(n), np.arange(m), np.arange(devices), np.arange(devices)

    def x(atom: npt.NDArray[np.int64], device: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        return atom * devices + device

    def q(
        t: npt.NDArray[np.int64], a: npt.NDArray[np.int64], b: npt.NDArray[np.int64]
    ) -> npt.NDArray[np.int64]:
        return n * devices + (t * devices + a) * devices + b

    allowed = atoms.allowed.ravel()
    time = np.where(atoms.allowed, atoms.time, 0.0).ravel()
    link = problem.latency[None] + problem.size[used][:, None, None] * problem.rate[None]
    link = np.where(np.eye(devices, dtype=bool)[None], 0.0, link)
    cost = np.concatenate([time, link.ravel()])
    upper = np.concatenate([allowed.astype(np.float64), np.ones(m * devices * devices)])

    every, one = x(ops[:, None], d[None, :]).ravel(), np.repeat(ops, devices)
    equal = csr_array(coo_array((np.ones(n * devices), (one, every)), shape=(n, size)))
    # q[t, d, e] - x[producer, d] <= 0
    t3, d3, e3 = (axis.ravel() for axis in np.meshgrid(tensors, d, e, indexing="ij"))
    rows = np.arange(len(t3))
    leave = coo_array(
        (
            np.concatenate([np.ones(len(t3)), -np.ones(len(t3))]),
            (np.concatenate([rows, rows]), np.concatenate([q(t3, d3, e3), x(producer[used][t3], d3)])),
        ),
        shape=(len(t3), size),
    )
    # x[reader, e] - Σ_d q[t, d, e] <= 0
    edge, e2 = (axis.ravel() for axis in np.meshgrid(np.arange(pairs.shape[1]), e, indexing="ij"))
    rows = np.arange(len(edge))
    sources = [q(row_of[edge], np.full(len(edge), source), e2) for source in range(devices)]
    arrive = coo_array(
        (
            np.concatenate([np.ones(len(edge)), *[-np.ones(len(edge))] * devices]),
            (np.tile(rows, devices + 1), np.concatenate([x(pairs[1][edge], e2), *sources])),
        ),
        shape=(len(edge), size),
    )
    limited = np.flatnonzero(np.isfinite(problem.capacity))
    memory = coo_array(
        (
            np.tile(atoms.memory, len(limited)),
            (np.repeat(np.arange(len(limited)), n), x(np.tile(ops, len(limited)), np.repeat(limited, n))),
        ),
        shape=(len(limited), size),
    )
    less = csr_array(vstack([leave, arrive, memory]))
    right = np.concatenate([np.zeros(leave.shape[0] + arrive.shape[0]), problem.capacity[limited]])
    options = {"time_limit": seconds} if math.isfinite(seconds) else {}
    solve: Any = linprog  # its stubs know no sparse matrices
    solved = solve(
        cost, A_ub=less, b_ub=right, A_eq=equal, b_eq=np.ones(n), bounds=np.stack([np.zeros(size), upper], axis=1),
        method="highs", options=options,
    )  # fmt: skip
    if solved.status not in (0, 1) or solved.eqlin is None or solved.eqlin.marginals is None:
        return None
    dual_equal = np.nan_to_num(np.asarray(solved.eqlin.marginals))
    dual_less = np.minimum(np.nan_to_num(np.asarray(solved.ineqlin.marginals)), 0.0)
    reduced = cost - equal.T @ dual_equal - less.T @ dual_less
    value = dual_equal.sum() + right @ dual_less + (np.minimum(reduced, 0.0) * upper).sum()
    price = np.zeros(devices)
    price[limited] = -dual_less[len(dual_less) - len(limited) :]
    parts = (
        np.zeros((n, devices))
        if solved.x is None
        else np.asarray(solved.x)[: n * devices].reshape(n, devices)
    )
    at = np.where(atoms.allowed, parts, -1.0).argmax(axis=1).astype(np.int32)
    return Relaxation(max(0.0, float(value) * (1 - 1e-9)), at, price)
