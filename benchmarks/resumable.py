"""Results of a long benchmark, one line of JSON each: a run that was stopped goes on behind the last line."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any


class Log:
    """Results by number, in a file of their own. ``about`` is the first line: results about something else are
    begun anew."""

    def __init__(self, path: Path, about: dict[str, Any]) -> None:
        self.path, self.rows = path, {}
        lines = path.read_text().splitlines() if path.exists() else []
        whole = [json.loads(line) for line in lines if line.endswith("}")]
        if not whole or whole[0] != about:
            path.write_text(json.dumps(about) + "\n")
            return
        self.rows: dict[int, dict[str, Any]] = {row["number"]: row for row in whole[1:]}
        path.write_text("".join(json.dumps(line) + "\n" for line in whole))  # half a line is of no use

    def result(self, number: int, make: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        """The result of this number: from the file, or made now and kept."""
        if number not in self.rows:
            self.rows[number] = {"number": number, **make()}
            with self.path.open("a") as file:
                file.write(json.dumps(self.rows[number]) + "\n")
        return self.rows[number]
