"""Rows that are kept as they come: one JSON line per finished case."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

from loadmaster.errors import InputError
from loadmaster.files import Record, parse_json, read_bytes

__all__ = ["Entry", "Rows", "read_entries"]


class Entry(NamedTuple):
    """A finished case: what it was, when it ended, and what came out."""

    key: dict[str, Any]
    when: str
    row: dict[str, Any]


def read_entries(path: str | Path) -> tuple[list[Entry], int]:
    """The entries of a file, and how many bytes they take: a last line that a kill left torn is not among them.

    Raises
    ------
    InputError : the file cannot be read, or a line is no entry.
    """
    content = read_bytes(path)
    size = content.rfind(b"\n") + 1
    found = []
    for number, line in enumerate(content[:size].split(b"\n")[:-1], 1):
        where = f"{path}:{number}"
        try:
            record = Record(parse_json(line, where), where)
            key, row = (Record(record.get(name), f"{where}: {name}").value for name in ("key", "row"))
            found.append(Entry(key, record.text("when"), row))
        except InputError as error:
            raise InputError(f"{where}: is not a row of a study ({_after(error, where)})") from None
    return found, size


def _after(error: InputError, where: str) -> str:
    return str(error).removeprefix(f"{where}: ")


class Rows:
    """Finished cases by their key, in a file or, without a path, in memory only.

    A line that a kill left torn is dropped; the last row of a key counts.
    """

    def __init__(self, path: Path | None = None, *, fresh: bool = False) -> None:
        self.path = path
        self._rows: dict[str, dict[str, Any]] = {}
        if path is None:
            return
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            entries: list[Entry] = []
            if path.exists():
                entries, size = ([], 0) if fresh else read_entries(path)
                if size < path.stat().st_size:
                    os.truncate(path, size)  # at once, whatever happens: to write it anew would risk all rows
        except InputError as error:
            raise InputError(f"{error}: run with --fresh") from None
        except OSError as error:
            raise InputError(f"{path}: cannot be written ({error.strerror})") from None
        for entry in entries:
            self._rows[_name(entry.key)] = {**entry.key, **entry.row, "when": entry.when}

    def get(self, key: Mapping[str, Any]) -> dict[str, Any] | None:
        """The row of a case that has run."""
        return self._rows.get(_name(key))

    def all(self) -> list[dict[str, Any]]:
        """Every row that is kept."""
        return list(self._rows.values())

    def add(self, key: Mapping[str, Any], row: Mapping[str, Any]) -> dict[str, Any]:
        """Keep a row, on the disk before this returns."""
        when = datetime.now(UTC).isoformat(timespec="seconds")
        line = json.dumps({"key": dict(key), "when": when, "row": dict(row)}, allow_nan=False)
        if self.path is not None:
            with self.path.open("a") as file:
                file.write(line + "\n")
                file.flush()
                os.fsync(file.fileno())
        self._rows[_name(key)] = {**key, **row, "when": when}
        return self._rows[_name(key)]


def _name(key: Mapping[str, Any]) -> str:
    return json.dumps(key, sort_keys=True)
