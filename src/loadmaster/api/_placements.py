"""Placements read from files."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from loadmaster.api._models import Shapes, Values, load, problem
from loadmaster.errors import InputError
from loadmaster.files import read_json
from loadmaster.graph import Graph, Network
from loadmaster.graph.workload import Split, Workload, is_split, parse_split
from loadmaster.hardware import Cluster
from loadmaster.plan import Plan, is_plan, placement_from_document
from loadmaster.problem import ExecutionModel, Offload, Placement, Problem, place_split


def read_placement(
    path: str | Path,
    source: Any,
    cluster: str | Cluster | None = None,
    model: str | ExecutionModel | None = None,
    *,
    costs: str | Path | None = None,
    scale_to: str | Mapping[str, float] | None = None,
    precision: str | None = None,
    shapes: Shapes = (),
    values: Values = (),
    pins: Iterable[str] = (),
    forbids: Iterable[str] = (),
    pin_outputs: bool = False,
    **settings: str | int | None,
) -> tuple[Problem, Placement]:
    """A placement from a file, with the problem that it refers to.

    The file is a plan, an object ``{"placement": {op: device}}`` (``order`` and ``call`` where wanted), or a
    split of a workload. Groups of a split beyond the workload's devices become extra devices of the problem,
    which is a violation. The other arguments are those of :func:`problem`; where ``source`` is a file, a plan
    also brings its execution model, and for a graph alone its devices, unless others are asked for.

    Raises
    ------
    InputError : the file is none of these, is a plan for another model, or does not fit the ops and devices.
    """
    data = read_json(path, "a placement")
    plan = Plan.parse(data, str(path)) if is_plan(data) else None
    if plan is not None and isinstance(source, str | Path):
        given = plan.given(shapes, values)
        values, shapes = given.constants, dict(given)
    loaded = load(source, shapes, values=values)
    if plan is not None:
        graph = loaded if isinstance(loaded, Graph) else loaded.graph
        if plan.graph_hash != graph.digest:
            raise InputError(
                f"{path}: is a plan for a different model ({plan.graph_name}, {plan.graph_hash[:12]}) than "
                f"{graph.name} ({graph.digest[:12]})"
            )
        if model is None and isinstance(source, str | Path):
            model = plan.problem().model
        if cluster is None and isinstance(loaded, Graph | Network):
            cluster = plan.problem().cluster
    target = problem(
        loaded,
        cluster,
        model,
        costs=costs,
        scale_to=scale_to,
        precision=precision,
        shapes=(),
        values=(),
        pins=pins,
        forbids=forbids,
        pin_outputs=pin_outputs,
        **settings,
    )
    if is_split(data):
        if not isinstance(loaded, Workload):
            raise InputError(f"{path}: is a split of a workload, but {target.graph.name} is not a workload")
        return _split_placement(loaded, target, parse_split(data, str(path)), str(path))
    if not isinstance(data, dict) or "placement" not in data:
        raise InputError(f"{path}: is not a plan, a split, or an object with a 'placement' of ops to devices")
    if isinstance(loaded, Workload) and isinstance(target.model, Offload):
        data = {**data, "placement": _pooled(data["placement"], loaded.cpus)}
    return target, placement_from_document(data, target, str(path))


def _pooled(placement: Any, cpus: int) -> Any:
    """A placement on a workload's CPUs, which the ``offload`` model takes as the one device ``cpu0``."""
    if not isinstance(placement, dict):
        return placement
    pool = {f"cpu{i}" for i in range(cpus)}
    return {
        op: "cpu0" if isinstance(device, str) and device in pool else device
        for op, device in placement.items()
    }


def _split_placement(
    workload: Workload, target: Problem, split: Split, source: str
) -> tuple[Problem, Placement]:
    """A split as a placement; pins and forbids survive when the problem is widened by surplus devices."""
    try:
        wide, placement = place_split(workload, target, split)
    except InputError as error:
        raise InputError(f"{source}: {error}") from None
    if wide is target:
        return target, placement
    place_of = np.array([wide.cluster.index[name] for name in target.cluster.names])
    forbidden = wide.forbidden.copy()
    forbidden[:, place_of] = target.forbidden
    pin = np.where(target.pin >= 0, place_of[target.pin], -1).astype(np.int32)
    return replace(wide, pin=pin, forbidden=forbidden), placement
