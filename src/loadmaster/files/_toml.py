"""TOML read so that a mistake is named: which file, which line, which key.

The standard library's parser keeps no line numbers of values. They are found by scanning the text once more
for table headers and ``key =`` (:func:`line_numbers`); an inline table has the line of its key, and a missing
key that of its table.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Iterator
from typing import Any, NoReturn

from loadmaster.errors import InputError
from loadmaster.files._json import DEEPEST, count_keys, shown, too_deep
from loadmaster.files._quantities import COUNT, Quantity, parse_quantity

__all__ = ["Table", "line_numbers", "parse_toml"]

KeyPath = tuple[str | int, ...]

PART = r"""(?:"(?:[^"\\]|\\.)*"|'[^']*'|[A-Za-z0-9_-]+)"""
KEY = re.compile(rf"\s*({PART}(?:\s*\.\s*{PART})*)\s*=")
BARE_UNIT = re.compile(r"=\s*[-+.\d]+\s*[A-Za-zµ]")
DOTTED = re.compile(rf"""(?<![A-Za-z0-9_"'-])(?:[A-Za-z0-9_"'-]++\s*+\.\s*+){{{DEEPEST}}}""")
"""A key of too many parts: Python's parser needs memory by the square of their number."""
HEADER = re.compile(rf"\s*(\[\[?)\s*({PART}(?:\s*\.\s*{PART})*)\s*\]\]?")


def parse_toml(text: str, source: str) -> Table:
    """The whole document as a table; ``source`` is named in errors."""
    if DOTTED.search(text):
        raise too_deep(source, "TOML")
    try:
        data = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        match = re.fullmatch(r"(.*) \(at (?:line (\d+), column \d+|end of document)\)", str(error))
        what, line = (match[1], match[2]) if match else (str(error), None)
        lines = text.splitlines() or [""]
        number = int(line) if line else len(lines)
        wrong = lines[min(number, len(lines)) - 1]
        key = KEY.match(wrong)
        subject = f"{_parts(key[1])[-1]!r} " if key else ""
        hint = "; a number with a unit is written in quotes" if BARE_UNIT.search(wrong) else ""
        what = f"{what[:1].lower()}{what[1:]}{hint}"
        raise InputError(f"{source}, line {number}: {subject}is not valid TOML ({what})") from None
    except RecursionError:
        raise too_deep(source, "TOML") from None
    except (ValueError, ArithmeticError) as error:  # Python's own, about a number or a date
        raise InputError(f"{source}: is not valid TOML ({_own(error)})") from None
    count_keys(data, source, "TOML")
    return Table(data, (), source, line_numbers(text), "the file")


def _own(error: Exception) -> str:
    """What Python says of a value, without its advice to programmers."""
    return str(error).partition("; use sys.")[0]


def line_numbers(text: str) -> dict[KeyPath, int]:
    """Key path -> line (from 1); entries of an array of tables are numbered from 0.

    >>> line_numbers('host = "cpu"\\n[[device]]\\nname = "cpu"\\n')
    {('host',): 1, ('device', 0): 2, ('device', 0, 'name'): 3}
    """
    found: dict[KeyPath, int] = {}
    latest: dict[KeyPath, int] = {}
    table: KeyPath = ()
    lines = text.splitlines()
    i = 0
    while i < len(lines):
        header, key = HEADER.match(lines[i]), KEY.match(lines[i])
        if header:
            table = ()
            parts = _parts(header[2])
            for depth, part in enumerate(parts):
                table = (*table, part)
                if header[1] == "[[" and depth == len(parts) - 1:
                    latest[table] = latest.get(table, -1) + 1
                if table in latest:
                    table = (*table, latest[table])
            found.setdefault(table, i + 1)
        elif key:
            found.setdefault((*table, *_parts(key[1])), i + 1)
            i = _last_line_of_value(lines, i, key.end())
        i += 1
    return found


def _parts(dotted: str) -> list[str]:
    return [part.strip("\"'") for part in re.findall(PART, dotted)]


def _last_line_of_value(lines: list[str], i: int, column: int) -> int:
    """The line on which the value that begins at (i, column) ends: brackets are counted, strings skipped."""
    depth = 0
    while True:
        line = lines[i]
        while column < len(line):
            triple, char = line[column : column + 3], line[column]
            if triple in ('"""', "'''"):
                i, column = _end_of_text(lines, i, column + 3, triple)
                line = lines[i]
                continue
            if char in "\"'":
                match = re.compile(PART).match(line, column)
                column = match.end() if match else len(line)
                continue
            if char == "#":
                break
            depth += (char in "[{") - (char in "]}")
            column += 1
        if depth <= 0 or i + 1 >= len(lines):
            return i
        i, column = i + 1, 0


def _end_of_text(lines: list[str], i: int, column: int, quotes: str) -> tuple[int, int]:
    """Just behind the closing triple quotes."""
    while (end := lines[i].find(quotes, column)) < 0 and i + 1 < len(lines):
        i, column = i + 1, 0
    return i, (end + 3 if end >= 0 else len(lines[i]))


class Table:
    """A table of a TOML file being read; every getter names file, line and key when something is wrong."""

    def __init__(self, value: Any, path: KeyPath, source: str, lines: dict[KeyPath, int], what: str) -> None:
        self.value, self.path, self.source, self.lines, self.what = value, path, source, lines, what

    def __contains__(self, key: str) -> bool:
        return key in self.value

    def __iter__(self) -> Iterator[str]:
        return iter(self.value)

    def line(self, key: str | None = None) -> int:
        """The line of a key, or of the table where the key is not there."""
        path = self.path if key is None else (*self.path, key)
        while path and path not in self.lines:
            path = path[:-1]
        return self.lines.get(path, 1)

    def fail(self, key: str | None, text: str) -> NoReturn:
        """Raise an error about ``key``, or about the table itself."""
        subject = f"{self.what}: " if self.path else ""
        about = f"{key!r} {text}" if key is not None else text
        raise InputError(f"{self.source}, line {self.line(key)}: {subject}{about}")

    def reject_unknown(self, known: Iterable[str]) -> None:
        """Every key must be one of these."""
        for key in self.value:
            if key not in known:
                self.fail(key, f"is not a known key: choose from {', '.join(known)}")

    def require(self, key: str) -> Any:
        """The raw value."""
        if key not in self.value:
            self.fail(key, "is missing")
        return self.value[key]

    def text(self, key: str, default: str | None = None) -> str:
        """A string."""
        value = self.value.get(key, default) if default is not None else self.require(key)
        if not isinstance(value, str):
            self.fail(key, f"must be a string in quotes, not {shown(value)}")
        return value

    def texts(self, key: str) -> tuple[str, ...]:
        """A string or a list of strings; empty where the key is not there."""
        value = self.value.get(key, [])
        entries = [value] if isinstance(value, str) else value
        if not isinstance(entries, list) or any(not isinstance(entry, str) for entry in entries):
            self.fail(key, f"must be a string in quotes or a list of them, not {shown(value)}")
        return tuple(entries)

    def quantity(
        self, key: str, quantity: Quantity, *, zero: bool = False, most: float | None = None
    ) -> float:
        """A number, which may be a string with a unit; > 0, or >= 0 where ``zero`` is allowed."""
        try:
            number = parse_quantity(self.require(key), quantity)
        except ValueError as error:
            self.fail(key, str(error))
        if number < 0 or (number == 0 and not zero):
            self.fail(key, f"must be {'>=' if zero else '>'} 0, not {shown(self.value[key])}")
        if most is not None and number > most:
            self.fail(key, f"must be at most {most:g}, not {shown(self.value[key])}")
        return number

    def count(self, key: str, most: int) -> int:
        """A whole number from 1 to ``most``."""
        value = self.require(key)
        if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= most:
            self.fail(key, f"must be a whole number >= 1 and <= {most}, not {shown(value)}")
        return value

    def shares(self, key: str, known: Iterable[str], *, most: float | None = None) -> dict[str, float]:
        """A table of positive numbers under known keys; empty where it is not there."""
        table = self.table(key)
        if table is None:
            return {}
        table.reject_unknown(known)
        return {name: table.quantity(name, COUNT, most=most) for name in table}

    def table(self, key: str) -> Table | None:
        """A table, or None where the key is not there."""
        if key not in self.value:
            return None
        value = self.value[key]
        if not isinstance(value, dict):
            self.fail(key, f"must be a table, not {shown(value)}")
        what = f"{self.what}: {key}" if self.path else key
        return Table(value, (*self.path, key), self.source, self.lines, what)

    def tables(self, key: str) -> list[Table]:
        """An array of tables; empty where the key is not there."""
        value = self.value.get(key, [])
        if not isinstance(value, list) or any(not isinstance(entry, dict) for entry in value):
            self.fail(key, f"must be written as [[{key}]] tables")
        return [
            Table(entry, (*self.path, key, i), self.source, self.lines, f"{key} {i + 1}")
            for i, entry in enumerate(value)
        ]
