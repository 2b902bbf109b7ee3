"""The instances: a table in ``suites.toml``, what it describes made into problems, and their hashes."""

from __future__ import annotations

import hashlib
import json
import os
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl

import numpy as np

from loadmaster import api
from loadmaster.errors import InputError
from loadmaster.problem import Problem, dump_problem

__all__ = [
    "Instance",
    "Suite",
    "content_hash",
    "exported",
    "find_instances",
    "instances",
    "suites",
    "version",
]

SHARED = Path("../shared/workloads")
"""Where the published workloads are beside a checkout (see CONTRIBUTING)."""
TINY = {"ops": (5, 7), "devices": (2, 4), "placements": (200, 5000)}
"""Sizes of the drawn problems: a plain program tries all placements in seconds."""
HASHED = (
    "time", "size", "latency", "rate", "send_latency", "send_rate", "recv_latency", "recv_rate", "memory", "capacity",
    "resident", "class_of", "pin", "forbidden",
)  # fmt: skip
HASHED_GRAPH = (
    "tensor_producer",
    "consumer_ptr",
    "consumer_op",
    "tensor_bytes",
    "backward",
    "boundary",
)


@dataclass(frozen=True)
class Instance:
    """One line of the table, with its hash and its sizes where they are known."""

    name: str
    suite: str
    source: str
    model: str
    why: str
    cluster: str = ""
    room: float = 0.0
    slower: str = ""
    hash: str = ""
    ops: int = 0
    edges: int = 0
    devices: int = 0

    @property
    def origin(self) -> str:
        """Where it comes from, in words."""
        scheme, _, rest = self.source.partition(":")
        if scheme == "zoo":
            kind = "random layered graph" if rest.startswith("layered-") else "network of the zoo"
            return f"{kind} {rest} on {self.cluster}"
        if scheme == "hsdag":
            return f"{rest.partition('?')[0]} on the modelled machine of the HSDAG study"
        if scheme == "drawn":
            return f"random problem {rest.partition('?')[0]} of loadmaster.testing"
        return f"published workload {rest.removeprefix('msr/')}"

    def problem(self, workloads: str | Path | None = None) -> Problem:
        """The problem, made afresh.

        Raises
        ------
        InputError : it is read from a published file, and the folder of those is not known.
        """
        made = self._made(workloads)
        if self.slower:
            time = made.time.copy()
            for entry in self.slower.split(","):
                device, _, factor = entry.partition("=")
                time[:, made.cluster.index[device]] *= float(factor)
            made = replace(made, time=time, origin=None)
        if self.room:
            others = np.arange(made.devices) != made.cluster.host
            capacity = made.capacity.copy()
            capacity[others] = np.ceil(self.room * made.memory.sum() / others.sum())
            made = replace(made, capacity=capacity)
        return made

    def _made(self, workloads: str | Path | None) -> Problem:
        scheme, _, rest = self.source.partition(":")
        if scheme == "zoo":
            return api.problem(self.source, self.cluster, self.model)
        if scheme == "hsdag":
            from loadmaster.studies.hsdag.problems import study_problem

            name, _, query = rest.partition("?")
            options = dict(parse_qsl(query))
            return study_problem(name, level=options["level"], igpu="igpu" in options, model=self.model)
        if scheme == "drawn":
            from loadmaster.testing import drawn_problem

            number, _, query = rest.partition("?")
            fixed: dict[str, Any] = {key: (int(value), int(value)) for key, value in parse_qsl(query)}
            return drawn_problem(int(number), **{**TINY, **fixed})
        return api.problem(workloads_folder(workloads, self.name) / rest, model=self.model)


@dataclass(frozen=True)
class Suite:
    """Instances that are scored together."""

    name: str
    title: str
    why: str
    methods: tuple[str, ...]
    instances: tuple[Instance, ...]


def workloads_folder(given: str | Path | None, name: str) -> Path:
    """The folder of published workloads: as given, from the environment, or beside the checkout."""
    folder = given or os.environ.get("LOADMASTER_WORKLOADS") or (SHARED if SHARED.is_dir() else None)
    if folder is None:
        raise InputError(
            f"{name} is read from the published workloads: give their folder with --workloads or LOADMASTER_WORKLOADS"
        )
    return Path(folder)


@cache
def _table() -> dict[str, Any]:
    return tomllib.loads(files(__package__).joinpath("suites.toml").read_text("utf-8"))


def version() -> int:
    """Of the set of instances."""
    return int(_table()["version"])


@cache
def suites() -> dict[str, Suite]:
    """All suites by name."""
    sizes = json.loads(files(__package__).joinpath("hashes.json").read_text("utf-8"))
    return {
        name: Suite(
            name,
            entry["title"],
            entry["why"],
            tuple(entry["methods"]),
            tuple(Instance(suite=name, **line, **sizes.get(line["name"], {})) for line in entry["instance"]),
        )
        for name, entry in _table()["suite"].items()
    }


def instances() -> dict[str, Instance]:
    """All instances by name, in the order of the table."""
    return {instance.name: instance for suite in suites().values() for instance in suite.instances}


def find_instances(suite: str = "", names: Sequence[str] = ()) -> list[Instance]:
    """Those of a suite (several with commas; all if empty), or those with these names or parts of names.

    Raises
    ------
    InputError : there is none.
    """
    wanted = [part for part in suite.split(",") if part]
    for part in wanted:
        if part not in suites():
            raise InputError(f"there is no suite {part!r}: choose from {', '.join(suites())}")
    found = [entry for entry in instances().values() if not wanted or entry.suite in wanted]
    for name in names:
        if not any(name in entry.name for entry in found):
            raise InputError(f"no instance has {name!r} in its name: `loadmaster bench list` shows them")
    if names:
        found = [
            entry for entry in found if any(entry.name == name for name in names)
            or any(name in entry.name for name in names if name not in instances())
        ]  # fmt: skip
    return found


def content_hash(problem: Problem) -> str:
    """SHA-256 over all numbers that costs and constraints depend on, and the execution model.

    What a problem file keeps, and nothing else: an exported instance that is read again has the same hash. Arrays are
    hashed in a fixed order as little-endian float64, int64 or bytes, each after its name and its shape.
    """
    h = hashlib.sha256(b"loadmaster-bench/1\n")

    def add(name: str, value: Any) -> None:
        array = np.asarray(value)
        kind = {"f": "<f8", "b": "|u1"}.get(array.dtype.kind, "<i8")
        h.update(f"{name} {kind} {array.shape}\n".encode())
        h.update(array.astype(kind).tobytes())

    settings = {key: value for key, value in sorted(problem.model.settings.items())}
    h.update(json.dumps([problem.model.name, settings]).encode())
    h.update(json.dumps([device.kind for device in problem.cluster.devices]).encode())
    for name in HASHED:
        add(name, getattr(problem, name))
    for name in HASHED_GRAPH:
        add(name, getattr(problem.graph, name))
    if problem.kept is not None:
        add("kept", problem.kept)
    for tie in problem.ties:
        add("tie", [*map(float, tie.ops), tie.size, tie.memory])
    return h.hexdigest()


def exported(instance: Instance, problem: Problem) -> dict[str, Any]:
    """The instance as one problem file that needs nothing else, its execution model included."""
    settings = ",".join(f"{key}={value}" for key, value in problem.model.settings.items())
    return {
        **dump_problem(problem),
        "model": f"{problem.model.name}:{settings}" if settings else problem.model.name,
        "instance": instance.name,
        "hash": content_hash(problem),
    }
