"""Cost tables: the time of every op on every device, from CSV or JSON.

CSV has a header ``op,DEVICE,DEVICE,…`` and a row per op; JSON is ``{"times": {OP: {DEVICE: TIME}}}``. A time
is a number of seconds, a text with a unit (``"12 us"``), ``unsupported`` (JSON: null), or ``estimate``, which
leaves it to the roofline. The row ``*`` is for the ops that have none. Provenance is ``imported`` unless the
file says otherwise: a column (JSON: an entry of the row, or of the file) ``provenance`` with one of
estimated, imported, measured.
"""

from __future__ import annotations

import bisect
import csv
import io
import json
import math
import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn

import numpy as np

from loadmaster.errors import InputError
from loadmaster.files import SECONDS, parse_json, parse_quantity, read_text, shown
from loadmaster.graph import Graph
from loadmaster.hardware._cluster import Cluster
from loadmaster.hardware._costs import ORIGINS, Costs, estimate

__all__ = ["read_costs"]

REST = "*"
UNSUPPORTED = ("unsupported", "inf")


@dataclass
class _Row:
    """The entries of one op; ``lines`` holds the line of each, for messages."""

    line: int
    times: dict[str, Any] = field(default_factory=dict)
    lines: dict[str, int] = field(default_factory=dict)
    origin: Any = None


@dataclass
class _Sheet:
    """A cost file before it is checked against graph and cluster."""

    source: str
    rows: dict[str, _Row]
    origin: Any = "imported"

    def fail(self, line: int, text: str) -> NoReturn:
        raise InputError(f"{self.source}, line {line}: {text}")


def read_costs(path: str | Path, graph: Graph, cluster: Cluster, *, precision: str = "fp32") -> Costs:
    """The costs in a CSV or JSON file.

    Raises
    ------
    InputError : an op or a device is missing, unknown or given twice, or a time is wrong; the message names
        the line.
    """
    text = read_text(path)
    as_json = str(path).endswith(".json")
    sheet = _read_json(text, str(path)) if as_json else _read_csv(text, str(path), graph.n + 1)
    for op, row in sheet.rows.items():
        if op != REST and op not in graph.index:
            sheet.fail(row.line, f"there is no op {shown(op)} in {graph.name or 'the graph'}")
        for device in row.times:
            if device not in cluster.index:
                known = ", ".join(cluster.names)
                sheet.fail(
                    row.lines[device],
                    f"there is no device {shown(device)} in cluster {cluster.name}: it has {known}",
                )
        for device in cluster.names:
            if device not in row.times:
                sheet.fail(
                    row.line,
                    f"op {op!r} has no time on device {device!r}: give one, 'unsupported' or 'estimate'",
                )
    time = np.empty((graph.n, len(cluster)))
    origin = np.empty(time.shape, np.uint8)
    for v, op in enumerate(graph.names):
        found = sheet.rows.get(op, sheet.rows.get(REST))
        if found is None:
            sheet.fail(
                1,
                f"op {op!r} is missing: add its row, or a row '*' with 'estimate' for all missing ops",
            )
        for d, device in enumerate(cluster.names):
            time[v, d], origin[v, d] = _time(sheet, found, op, device)
    return _filled(time, origin, graph, cluster, Path(path).name, precision)


def _filled(time: Any, origin: Any, graph: Graph, cluster: Cluster, name: str, precision: str) -> Costs:
    """What is left to the roofline (not a number so far) is estimated."""
    open_ = np.isnan(time)
    text = f"from {name}"
    if open_.any():
        time[open_] = estimate(graph, cluster, precision=precision).time[open_]
        text += f", {int(open_.sum())} of {open_.size} times estimated by roofline ({precision})"
    return Costs(time, origin, text)


def _time(sheet: _Sheet, row: _Row, op: str, device: str) -> tuple[float, int]:
    """(seconds, index of the origin); not a number where it is to be estimated."""
    value, line = row.times[device], row.lines[device]
    origin = sheet.origin if row.origin in (None, "") else row.origin
    if origin not in ORIGINS:
        sheet.fail(row.line, f"'provenance' must be one of {', '.join(ORIGINS)}, not {shown(origin)}")
    if isinstance(value, str):
        value = value.strip()
        if value == "estimate":
            return math.nan, 0
        if value in UNSUPPORTED:
            return math.inf, ORIGINS.index(origin)
    if value is None:
        return math.inf, ORIGINS.index(origin)
    try:
        seconds = parse_quantity(value, SECONDS)
    except ValueError as error:
        sheet.fail(line, f"the time of op {op!r} on device {device!r} {error}")
    if seconds < 0:
        sheet.fail(line, f"the time of op {op!r} on device {device!r} must be >= 0, not {shown(value)}")
    return seconds, ORIGINS.index(origin)


def _read_csv(text: str, source: str, most: int) -> _Sheet:
    """The rows, up to the first that is more than ``most``: one of them is of no op then, and the rest may be long."""
    reader = csv.reader(io.StringIO(text.removeprefix("\ufeff")))
    sheet = _Sheet(source, {})
    header: list[str] = []
    while len(sheet.rows) <= most:
        try:
            cells = next(reader, None)
        except csv.Error as error:  # a cell of over 131,072 characters, say
            sheet.fail(reader.line_num, f"is not valid CSV ({error})")
        if cells is None:
            break
        cells = [cell.strip() for cell in cells]
        if not any(cells):
            continue
        line = reader.line_num
        if not header:
            header = cells
            if header[0] != "op":
                sheet.fail(
                    line,
                    f"the header must be op,DEVICE,DEVICE,…, and begin with 'op', not {shown(header[0])}",
                )
            twice = [name for name, count in Counter(header).items() if count > 1]
            if twice:
                sheet.fail(line, f"the column {shown(twice[0])} appears twice")
            continue
        if len(cells) != len(header):
            sheet.fail(line, f"there are {len(cells)} cells, but the header has {len(header)}")
        row = dict(zip(header, cells, strict=True))
        op = row.pop("op")
        if op in sheet.rows:
            sheet.fail(line, f"op {op!r} appears twice (first in line {sheet.rows[op].line})")
        origin = row.pop("provenance", None)
        sheet.rows[op] = _Row(line, dict(row), dict.fromkeys(row, line), origin)
    if not header:
        sheet.fail(1, "the file is empty: its header must be op,DEVICE,DEVICE,…")
    return sheet


def _read_json(text: str, source: str) -> _Sheet:
    data = parse_json(text.encode(), source)
    if not isinstance(data, Mapping) or not isinstance(data.get("times"), Mapping):
        raise InputError(f'{source}, line 1: must be an object {{"times": {{OP: {{DEVICE: TIME}}}}}}')
    keys = _Keys(text)
    for key in data:
        if key not in ("times", "provenance"):
            line = keys.line(keys.find(key, 0))
            raise InputError(f"{source}, line {line}: {key!r} is not a known key: 'times', 'provenance'")
    sheet = _Sheet(source, {}, data.get("provenance", "imported"))
    at = keys.find("times", 0)
    for op, entries in data["times"].items():
        at = keys.find(op, at)
        if not isinstance(entries, Mapping):
            sheet.fail(keys.line(at), f"op {op!r} must have an object of devices and times")
        row = _Row(keys.line(at), origin=entries.get("provenance"))
        for device, value in entries.items():
            if device != "provenance":
                row.times[device] = value
                row.lines[device] = keys.line(keys.find(device, at))
        sheet.rows[op] = row
    return sheet


class _Keys:
    """Where the keys of a JSON text are: parsers do not say, so they are searched for in the order in which
    they come."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.breaks = [match.start() for match in re.finditer("\n", text)]

    def find(self, key: str, start: int) -> int:
        """Offset just behind ``"key"`` and its colon, from ``start`` on; ``start`` where it is not found."""
        for written in (json.dumps(key, ensure_ascii=False), json.dumps(key)):
            at = self.text.find(written, start)
            while at >= 0:
                behind = at + len(written)
                while behind < len(self.text) and self.text[behind].isspace():
                    behind += 1
                if self.text[behind : behind + 1] == ":":
                    return behind + 1
                at = self.text.find(written, at + 1)
        return start

    def line(self, offset: int) -> int:
        """The line of an offset, from 1."""
        return bisect.bisect_left(self.breaks, offset) + 1
