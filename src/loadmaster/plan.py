"""The plan file: a placement with everything that is known about it, and the problem it solves."""

from __future__ import annotations

import importlib.metadata
import json
import math
import platform
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from loadmaster import __version__
from loadmaster.errors import InputError, LimitError
from loadmaster.files import Record, read_json, shown, write_atomically
from loadmaster.graph import Given
from loadmaster.notebook import facts_html, rows_html
from loadmaster.packed import finite, pack_problem, plain, unpack_problem
from loadmaster.problem import Placement, Point, Problem, Solution, execution_model
from loadmaster.units import percent, seconds_text

__all__ = ["FORMAT", "Plan", "finite", "is_plan", "plain"]

FORMAT = "loadmaster-plan/1"
PROFILE = "loadmaster-profile/1"


def is_plan(data: Any) -> bool:
    """Whether parsed JSON looks like a plan."""
    return isinstance(data, dict) and str(data.get("format", "")).startswith("loadmaster-plan/")


class Plan:
    """One solution of one problem, as a JSON document.

    The document holds the result under the keys that ``loadmaster place --json`` prints, ops and devices by
    name, and the problem packed: a report or a what-if needs nothing else. Equal documents are equal bytes.

    >>> # plan = Plan.from_solution(problem, solution)
    >>> # plan.save("plan.json")
    >>> # Plan.load("plan.json").problem() == problem
    """

    def __init__(self, document: Mapping[str, Any], source: str = "the plan") -> None:
        self.document = document
        self.source = source

    def __repr__(self) -> str:
        return f"Plan({self.graph_name!r}, {self.document.get('model')}, cost {self.document.get('cost')})"

    def _repr_html_(self) -> str:
        names = list(self.document["placement"].values())
        rows = [
            (device["name"], device["kind"], f"{names.count(device['name']):,}")
            for device in self.document["devices"]
        ]
        facts = [
            ("cost", seconds_text(self.document["cost"])),
            ("bound", f"{seconds_text(self.document['bound'])} by {self.document['bound_by']}"),
            ("gap", "proven optimal" if self.document["optimal"] else percent(self.document["gap"])),
            ("execution model", str(self.document["model"])),
            ("method", f"{self.document['method']}, seed {self.document['seed']}"),
        ]
        table = rows_html(("device", "kind", "ops"), rows)
        return facts_html(f"Plan for {self.graph_name}", facts) + table

    def __eq__(self, other: object) -> bool:
        return self.to_bytes() == other.to_bytes() if isinstance(other, Plan) else NotImplemented

    def __hash__(self) -> int:
        return hash(self.to_bytes())

    @property
    def graph_name(self) -> str:
        """What the model is called."""
        return str(self.document["graph"]["name"])

    @property
    def graph_hash(self) -> str:
        """The digest of the model's graph: a plan fits a model of the same hash."""
        return str(self.document["graph"]["hash"])

    @property
    def values(self) -> dict[str, Any]:
        """Values of the model's inputs that were made constants before it was placed, by name; mostly none."""
        return dict(self.document.get("values") or {})

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """The sizes that the model was read with, where it leaves some open."""
        given = self.document["graph"].get("shapes", {})
        return {name: tuple(shape) for name, shape in given.items()}

    def given(
        self,
        shapes: Mapping[str, Sequence[int]] | Iterable[str] = (),
        values: Mapping[str, Any] | Iterable[str] = (),
    ) -> Given:
        """What the model is to be read with: shapes and values where some are given, else those of the plan."""
        asked = Given(shapes, values)
        return Given(dict(asked) or self.shapes, asked.constants or self.values)

    # -- making and reading ----------------------------------------------------------------------------------

    @staticmethod
    def from_solution(
        problem: Problem,
        solution: Solution,
        *,
        measured: Mapping[str, Any] | None = None,
        shapes: Mapping[str, Sequence[int]] | None = None,
        values: Mapping[str, Any] | None = None,
    ) -> Plan:
        """The plan of a solution; ``measured`` is what a runtime found when it ran the plan, ``shapes`` the sizes
        that the model was read with, ``values`` those of inputs that were made constants."""
        graph: dict[str, Any] = {"name": problem.graph.name, "hash": problem.graph.digest}
        if shapes:
            graph["shapes"] = {name: list(shape) for name, shape in sorted(shapes.items())}
        return Plan(
            {
                "format": FORMAT,
                **solution_document(problem, solution),
                "graph": graph,
                "history": [[point.seconds, point.evaluations, point.cost] for point in solution.history],
                "measured": None if measured is None else plain(measured),
                **({"values": plain(values)} if values else {}),
                "problem": pack_problem(problem),
                "versions": versions(),
            }
        )

    @staticmethod
    def load(path: str | Path) -> Plan:
        """Read and check a plan.

        Raises
        ------
        InputError : the file does not exist, is not a plan, has another version, or is damaged.
        """
        return Plan.parse(read_json(path, "a plan (what place -o writes)"), str(path))

    @staticmethod
    def parse(data: Any, source: str) -> Plan:
        """A plan from parsed JSON, checked; ``source`` is named in errors."""
        record = Record(data, source)
        if not is_plan(data):
            raise InputError(f"{source}: is not a plan (its format should be {FORMAT!r})")
        if record.text("format") != FORMAT:
            raise InputError(
                f"{source}: format is {shown(data['format'])}, but this version reads {FORMAT!r}"
            )
        graph = Record(record.get("graph"), f"{source}: graph")
        graph.text("name")
        graph.text("hash")
        _check_shapes(graph)
        _check_measured(record)
        record.text("tolerance", "")
        if "values" in record.value:
            Given((), Record(record.get("values"), f"{source}: values").value)
        plan = Plan(data, source)
        plan.solution()
        _check_devices(record, plan.problem())
        for key in ("gap", "optimal"):
            record.get(key)
        return plan

    def to_bytes(self) -> bytes:
        """The file's content."""
        return (json.dumps(self.document, sort_keys=True, indent=1, allow_nan=False) + "\n").encode()

    def save(self, path: str | Path) -> None:
        """Write the plan; an existing file is replaced only once the new one is complete."""
        write_atomically(path, self.to_bytes())

    # -- what is in it ---------------------------------------------------------------------------------------

    def problem(self) -> Problem:
        """The problem that the plan solves, bit for bit."""
        return self._problem

    @cached_property
    def _problem(self) -> Problem:
        record = Record(self.document, self.source)
        settings = Record(record.get("settings"), f"{self.source}: settings")
        packed = Record(record.get("problem"), "problem")
        model = execution_model(record.text("model"), **settings.value)
        try:
            problem = unpack_problem(packed, self.graph_name, model)
            intact = problem.digest == packed.text("hash") and problem.graph.digest == self.graph_hash
        except LimitError:
            raise
        except InputError as error:
            raise InputError(f"{self.source}: the plan's problem is damaged ({error})") from None
        if not intact:
            raise InputError(f"{self.source}: the plan's problem is damaged (it does not match its hash)")
        return problem

    def placement(self) -> Placement:
        """Which op goes where, for :meth:`problem`."""
        return placement_from_document(self.document, self.problem(), self.source)

    def solution(self) -> Solution:
        """The solution that the plan was made from."""
        record = Record(self.document, self.source)
        history = []
        for i, entry in enumerate(record.items("history")):
            if not isinstance(entry, list) or len(entry) != 3:
                raise InputError(f"{self.source}: history[{i}] must be [seconds, evaluations, cost]")
            point = Record(
                dict(zip(("seconds", "evaluations", "cost"), entry, strict=True)),
                f"{self.source}: history[{i}]",
            )
            history.append(Point(point.number("seconds"), point.integer("evaluations"), point.number("cost")))
        return Solution(
            placement=self.placement(),
            cost=record.number("cost"),
            bound=record.number("bound"),
            bound_by=record.text("bound_by"),
            method=record.text("method"),
            evaluations=record.integer("evaluations"),
            seconds=record.number("seconds"),
            seed=record.integer("seed", minimum=None),
            parameters=Record(record.get("parameters"), f"{self.source}: parameters").value,
            history=tuple(history),
            found_by=record.text("found_by"),
            stopped=record.text("stopped"),
        )


def _check_shapes(graph: Record) -> None:
    given = Record(graph.value.get("shapes", {}), f"{graph.where}: shapes")
    for name in given.value:
        if any(type(size) is not int or not 0 <= size < 2**63 for size in given.items(name)):
            raise InputError(f"{given.where}: {shown(name)} must be a list of whole numbers >= 0")


def _check_measured(record: Record) -> None:
    """What a runtime wrote about a run: figures in seconds, and perhaps the schedule that it saw."""
    if record.value.get("measured") is None:
        return
    measured = Record(record.get("measured"), f"{record.where}: measured")
    for key in ("cost", "median", "low", "high"):
        if measured.value.get(key) is not None:
            measured.number(key)
    if measured.value.get("schedule") is None:
        return
    for entry in measured.records("schedule"):
        entry.text("op")
        entry.text("device", "")
        entry.number("start", minimum=-math.inf)
        entry.number("end", minimum=-math.inf)


def _check_devices(record: Record, problem: Problem) -> None:
    """The devices by name, beside the problem that has them too."""
    given = [(device.text("name"), device.text("kind")) for device in record.records("devices")]
    if given != [(device.name, device.kind) for device in problem.cluster.devices]:
        raise InputError(f"{record.where}: 'devices' are not those of the plan's problem")


# -- results by name -----------------------------------------------------------------------------------------


def solution_document(problem: Problem, solution: Solution) -> dict[str, Any]:
    """A solution as plain JSON values, in seconds: what ``loadmaster place --json`` prints."""
    return {
        "cost": finite(solution.cost),
        "bound": finite(solution.bound),
        "bound_by": solution.bound_by,
        "gap": solution.gap,
        "optimal": solution.optimal,
        "feasible": math.isfinite(solution.cost),
        "model": problem.model.name,
        "settings": problem.model.settings,
        "method": solution.method,
        "found_by": solution.found_by or solution.method,
        "parameters": plain(solution.parameters),
        "seed": solution.seed,
        "seconds": solution.seconds,
        "evaluations": solution.evaluations,
        "stopped": solution.stopped,
        "devices": [{"name": device.name, "kind": device.kind} for device in problem.cluster.devices],
        **placement_document(problem, solution.placement),
    }


def placement_document(problem: Problem, placement: Placement) -> dict[str, Any]:
    """A placement by name: op -> device, and op -> number for its ``order`` and ``call`` if it has them."""
    document: dict[str, Any] = {"placement": placement.to_names(problem)}
    for key in ("order", "call"):
        array = getattr(placement, key)
        if array is not None:
            document[key] = dict(zip(problem.graph.names, array.tolist(), strict=True))
    return document


def placement_from_document(document: Any, problem: Problem, source: str) -> Placement:
    """The placement that :func:`placement_document` wrote; the numbers may also be a list, op by op.

    Raises
    ------
    InputError : an op or a device is unknown, or an op is left out.
    """
    record = Record(document, source)
    names = Record(record.get("placement"), f"{source}: placement").value
    for op, device in names.items():
        if not isinstance(device, str):
            raise InputError(
                f"{source}: placement: the device of op {op!r} must be a name, not {shown(device)}"
            )
    try:
        device_of = Placement.from_names(problem, names).device
    except InputError as error:
        raise InputError(f"{source}: {error}") from None
    return Placement(
        device_of, order=_numbers(record, "order", problem), call=_numbers(record, "call", problem)
    )


def _numbers(record: Record, key: str, problem: Problem) -> npt.NDArray[np.int32] | None:
    """One whole number per op, from an object by op name or a list in the order of the ops."""
    value = record.value.get(key)
    if value is None:
        return None
    if isinstance(value, list):
        if len(value) != problem.n:
            raise InputError(
                f"{record.where}: {key!r} must have {problem.n} entries, one per op, not {len(value)}"
            )
        value = dict(zip(problem.graph.names, value, strict=True))
    by_op = Record(value, f"{record.where}: {key}")
    for op in by_op.value:
        if op not in problem.graph.index:
            raise InputError(
                f"{by_op.where}: {shown(op)} is not an op of {problem.graph.name or 'the graph'}"
            )
    numbers = [by_op.integer(op) for op in problem.graph.names]
    if any(number >= 2**31 for number in numbers):
        raise InputError(f"{by_op.where}: numbers must be below 2**31")
    return np.array(numbers, np.int32)


def versions() -> dict[str, str]:
    """The programs that take part, by name."""
    return {
        "loadmaster": __version__,
        "python": platform.python_version(),
        **{name: importlib.metadata.version(name) for name in ("numpy", "numba")},
    }


# -- profiles: problems as files of their own -------------------------------------------------------------


def problem_document(problem: Problem) -> dict[str, Any]:
    """A whole problem, bit for bit, as a file of its own: what ``loadmaster profile -o`` writes."""
    return {
        "format": PROFILE,
        "model": problem.model.name,
        "settings": problem.model.settings,
        "name": problem.graph.name,
        "problem": pack_problem(problem),
    }


def is_profile(data: Any) -> bool:
    """Whether parsed JSON looks like what :func:`problem_document` makes."""
    return isinstance(data, dict) and str(data.get("format", "")).startswith("loadmaster-profile/")


def parse_profile(data: Any, source: str) -> Problem:
    """The problem in a profile; ``source`` is named in errors."""
    record = Record(data, source)
    if record.text("format") != PROFILE:
        raise InputError(f"{source}: format is {shown(data['format'])}, but this version reads {PROFILE!r}")
    packed = Record(record.get("problem"), "problem")
    settings = Record(record.get("settings"), f"{source}: settings")
    model = execution_model(record.text("model"), **settings.value)
    try:
        problem = unpack_problem(packed, record.text("name"), model)
        intact = problem.digest == packed.text("hash")
    except LimitError:
        raise
    except InputError as error:
        raise InputError(f"{source}: the profile is damaged ({error})") from None
    if not intact:
        raise InputError(f"{source}: the profile is damaged (it does not match its hash)")
    return problem
