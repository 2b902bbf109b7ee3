"""Rows that are kept as they come: one JSON line per finished case."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from loadmaster.errors import InputError
from loadmaster.files import read_bytes

__all__ = ["Rows"]


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
            text = "" if fresh or not path.exists() else read_bytes(path).decode()
            whole, newline, torn = text.rpartition("\n")
            if fresh or torn:
                path.write_text(whole + newline)
        except InputError:
            raise
        except OSError as error:
            raise InputError(f"{path}: cannot be written ({error.strerror})") from None
        except UnicodeDecodeError:
            raise InputError(f"{path}: is not a text file in UTF-8: run with --fresh") from None
        for number, line in enumerate(whole.splitlines(), 1):
            try:
                entry = json.loads(line)
                self._rows[_name(entry["key"])] = {**entry["key"], **entry["row"], "when": entry["when"]}
            except (ValueError, KeyError, TypeError, RecursionError):
                raise InputError(f"{path}:{number}: is not a row of a study: run with --fresh") from None

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
