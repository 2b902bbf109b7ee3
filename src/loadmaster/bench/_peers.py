"""Peers as they are: adapters to other people's programs, which are neither copied nor changed.

METIS, OR-tools and HiGHS are placers of Loadmaster already (``metis``, ``cp-sat``, ``milp``). Here are those that take
part in the benchmark alone.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from loadmaster import api
from loadmaster.arrays import IntArray
from loadmaster.bench._instances import Instance, workloads_folder
from loadmaster.cores import allowed_cores
from loadmaster.errors import InputError, UndecidedError, UnsupportedError
from loadmaster.files import scratch_folder
from loadmaster.placers import Placer, Search, Searcher
from loadmaster.placers.frame.feasible import Atoms, atoms_of, repair
from loadmaster.problem import Concurrent, Pipeline, Placement, Problem

__all__ = ["PEERS", "MtKahypar", "NetworkxKernighanLin", "published_split"]

UNITS = 100_000
"""Partitioners take whole numbers: the largest weight becomes this."""
CODE = "LOADMASTER_PUBLISHED_CODE"
"""The environment variable with the folder of the published code (msr-fiddle/dnn-partitioning)."""


def _in_parallel(name: str, problem: Problem) -> str | None:
    if isinstance(problem.model, Concurrent) or (
        isinstance(problem.model, Pipeline)
        and problem.model.contiguity == "none"
        and not problem.model.microbatches
    ):
        return None
    return f"{name} balances devices that work in parallel in any order, which the execution model does not allow"


def _mended(problem: Problem, atoms: Atoms, at: IntArray) -> IntArray:
    """The parts as a placement: what its device cannot take goes where it takes least."""
    usual = np.where(atoms.allowed, atoms.time, np.inf).argmin(axis=1)
    ok = atoms.allowed[np.arange(atoms.count), at]
    return repair(problem, np.where(ok, at, usual).astype(np.int32)[atoms.of_op])


def _weights(atoms: Atoms) -> tuple[IntArray, Any]:
    """Whole weights of atoms (their least time), and the share of the work of each device (its speed)."""
    least = np.where(atoms.allowed, atoms.time, np.inf).min(axis=1)
    least = np.where(np.isfinite(least), least, 0.0)
    weight = np.maximum(1, np.rint(UNITS * least / max(least.max(), 1e-300))).astype(np.int64)
    alone = np.array([
        np.where(atoms.allowed[:, d], atoms.time[:, d], 0.0).sum() / max(least[atoms.allowed[:, d]].sum(), 1e-300)
        for d in range(atoms.allowed.shape[1])
    ])  # fmt: skip
    speed = np.where(alone > 0, 1.0 / np.maximum(alone, 1e-300), 0.0)
    return weight.astype(np.int32), speed / speed.sum()


def _nets(problem: Problem, atoms: Atoms) -> tuple[list[list[int]], list[int]]:
    """Tensors as nets of atoms, with whole weights by what receiving them takes."""
    graph, nets, cost = problem.graph, [], []
    rate, latency = problem.rate.mean(), problem.latency.mean()
    for t in range(graph.tensors):
        pins = {int(atoms.of_op[graph.tensor_producer[t]]), *atoms.of_op[graph.consumers(t)].tolist()}
        if len(pins) > 1:
            nets.append(sorted(pins))
            cost.append(float(latency + problem.size[t] * rate))
    most = max(cost, default=1.0) or 1.0
    return nets, [max(1, round(UNITS * x / most)) for x in cost]


@dataclass(frozen=True)
class MtKahypar(Searcher):
    """Mt-KaHyPar: the hypergraph of tensors divided into a part per device, with few parts per tensor."""

    imbalance: float = 0.03
    """How much more than its share a device may get."""

    name: ClassVar[str] = "mt-kahypar"
    summary: ClassVar[str] = "Mt-KaHyPar hypergraph partitioning (its wheel), balanced by speed"

    def supports(self, problem: Problem) -> str | None:
        """``concurrent``, and ``pipeline`` without contiguity."""
        return _in_parallel(self.name, problem)

    def explore(self, search: Search, start: Placement | None, seed: int) -> None:
        """One partition, repaired where it is not allowed."""
        try:
            import mtkahypar
        except ImportError:
            raise UnsupportedError("mt-kahypar is not installed: pip install mtkahypar") from None
        problem = search.problem
        atoms = atoms_of(problem)
        weight, share = _weights(atoms)
        nets, cost = _nets(problem, atoms)
        mtkahypar.set_seed(seed)
        system = _system()
        context = system.context_from_preset(mtkahypar.PresetType.DETERMINISTIC)
        context.set_partitioning_parameters(problem.devices, self.imbalance, mtkahypar.Objective.KM1)
        room = np.ceil((1 + self.imbalance) * share * float(weight.sum())) + float(weight.max())
        context.set_individual_target_block_weights([int(x) for x in room])
        context.logging = False
        hypergraph = system.create_hypergraph(context, atoms.count, len(nets), nets, weight.tolist(), cost)
        part = np.array(hypergraph.partition(context).get_partition(), np.int32)
        search.try_device(_mended(problem, atoms, part))


_made: list[Any] = []


def _system() -> Any:
    """Mt-KaHyPar is initialised once in a process."""
    if not _made:
        import mtkahypar

        _made.append(mtkahypar.initialize(len(allowed_cores()), False))
    return _made[0]


@dataclass(frozen=True)
class NetworkxKernighanLin(Searcher):
    """What one gets from networkx: bisections by Kernighan and Lin, one after another."""

    name: ClassVar[str] = "networkx-kl"
    summary: ClassVar[str] = "networkx: recursive Kernighan-Lin bisection, parts in the order of devices"

    def supports(self, problem: Problem) -> str | None:
        """As Mt-KaHyPar, for up to 2,000 ops."""
        if problem.n > 2000:
            return "networkx-kl takes minutes for more than 2,000 ops"
        return _in_parallel(self.name, problem)

    def explore(self, search: Search, start: Placement | None, seed: int) -> None:
        """One partition, repaired where it is not allowed."""
        import networkx
        from networkx.algorithms.community import kernighan_lin_bisection

        problem = search.problem
        atoms = atoms_of(problem)
        nets, cost = _nets(problem, atoms)
        graph = networkx.Graph()
        graph.add_nodes_from(range(atoms.count))
        for net, weight in zip(nets, cost, strict=True):
            for u in net[1:]:
                before = graph.get_edge_data(net[0], u, {"weight": 0})["weight"]
                graph.add_edge(net[0], u, weight=before + weight)
        at = np.zeros(atoms.count, np.int32)

        def divide(members: set[int], devices: list[int]) -> None:
            if len(devices) == 1 or len(members) < 2:
                at[list(members)] = devices[0]
                return
            one, other = kernighan_lin_bisection(graph.subgraph(members), weight="weight", seed=seed)
            divide(set(one), devices[: len(devices) // 2])
            divide(set(other), devices[len(devices) // 2 :])

        divide(set(range(atoms.count)), list(range(problem.devices)))
        search.try_device(_mended(problem, atoms, at))


PEERS: dict[str, Callable[[], Placer]] = {"mt-kahypar": MtKahypar, "networkx-kl": NetworkxKernighanLin}
"""Peers by name, beside ``published-dp``."""


def published_split(instance: Instance, problem: Problem, seconds: float) -> Placement:
    """What the published dynamic program answers to the workload of an instance.

    Raises
    ------
    UnsupportedError : the folder of its source is not named, or there is no compiler.
    UndecidedError : it gave no split in time.
    """
    folder = os.environ.get(CODE)
    if not folder:
        raise UnsupportedError(f"published-dp needs the folder of the published code in {CODE}")
    source = Path(folder) / "throughput-dp" / "dp.cpp"
    if not source.is_file():
        raise InputError(f"{CODE}: {source} does not exist")
    compiler = shutil.which("g++")
    if compiler is None:
        raise UnsupportedError("published-dp is compiled from its source, and there is no g++")
    file = workloads_folder(None, instance.name) / instance.source.removeprefix("workload:")
    with scratch_folder() as made:
        program, split = Path(made) / "dp", Path(made) / "split.json"
        built = subprocess.run(
            [compiler, "-O3", str(source), "-o", str(program)], capture_output=True, text=True
        )
        if built.returncode:
            raise UnsupportedError(f"{source} cannot be compiled: {built.stderr.strip().splitlines()[0]}")
        try:
            with file.open() as given:
                ended = subprocess.run(
                    [str(program)], stdin=given, capture_output=True, text=True,
                    timeout=None if np.isinf(seconds) else seconds,
                )  # fmt: skip
        except subprocess.TimeoutExpired:
            raise UndecidedError(f"published-dp did not end within {seconds:g} s") from None
        if ended.returncode:
            raise UndecidedError(f"published-dp failed: {ended.stdout.strip()[:200]}")
        split.write_text(ended.stdout)
        wide, placement = api.read_placement(split, file, model=problem.model)
    if wide.devices != problem.devices:
        raise UndecidedError("published-dp uses devices that the instance does not have")
    return placement
