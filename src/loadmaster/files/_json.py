"""Reading JSON so that a mistake is named: which file, which entry, which field."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec

from loadmaster.errors import InputError
from loadmaster.files._bytes import read_bytes
from loadmaster.files._kinds import kind_of
from loadmaster.files._limits import check_limit

__all__ = ["Record", "named", "parse_json", "read_json", "shown"]


DEEPEST = 64
"""Levels of lists and objects in a file of ours; what walks through them calls itself, level by level."""
LARGEST = 2**1023
"""Whole numbers in a file stay below this, so that each of them is also a floating point number."""
SHOWN = 80
"""Characters of a wrong value that a message shows."""
KEY_END = re.compile(rb'"\s*:')


def read_json(path: str | Path, wanted: str = "a JSON file") -> Any:
    """The content of a JSON file; plain lists, dicts and numbers. ``wanted`` is named where it is of another kind.

    Raises
    ------
    InputError : the file is not there, cannot be read, or is not JSON that :func:`parse_json` takes.
    """
    content = read_bytes(path)
    try:
        return parse_json(content, str(path))
    except InputError:
        kind = None if content.lstrip()[:1] in (b"{", b"[") else kind_of(path, content)
        if kind is None:
            raise
        what, advice = kind
        raise InputError(f"{path}: is {what}, not {wanted}{f': {advice}' if advice else ''}") from None


def parse_json(text: bytes, source: str) -> Any:
    """What a JSON text says; ``source`` is named in errors.

    Whatever comes out can be copied, printed and turned into floats without a second thought: it is at most
    :data:`DEEPEST` levels deep, no number is beyond the range of floats, and no object has a key twice.
    """
    # Before it becomes objects, each of which takes much more memory than its text. A plan of a million ops must pass.
    about = text.count(b",") + text.count(b"[") + 2 * text.count(b"{")
    check_limit("json", about, f"{source}: holds some {about:,} values")
    try:
        value = msgspec.json.decode(text)
    except RecursionError:
        raise too_deep(source, "JSON") from None
    except (msgspec.DecodeError, ValueError) as error:  # ValueError: bytes that are not UTF-8
        raise InputError(f"{source}: is not valid JSON ({error})") from None
    if count_keys(value, source) != len(KEY_END.findall(text)):
        _reject_double_keys(text, source)
    return value


def count_keys(value: Any, source: str, language: str = "JSON") -> int:
    """The number of keys of all objects, level by level; what is too deep or too large is refused on the way."""
    keys, level = 0, [value]
    for _ in range(DEEPEST + 1):
        inside: list[Any] = []
        for entry in level:
            if isinstance(entry, dict):
                keys += len(entry)
                inside += entry.values()
            elif isinstance(entry, list):
                inside += entry
            elif isinstance(entry, int) and abs(entry) >= LARGEST:
                raise InputError(
                    f"{source}: a whole number of {_digits(entry)} digits is too large: "
                    "numbers must be below 2**1023"
                )
        if not inside:
            return keys
        level = inside
    raise too_deep(source, language)


def _digits(number: int) -> str:
    """How many; Python writes out no number of more than some thousand, but reads such a one in hexadecimal."""
    bits = number.bit_length()
    return str(len(str(abs(number)))) if bits < 10_000 else f"about {int(bits * 0.30103):,}"


def too_deep(source: str, language: str) -> InputError:
    """The error about a file whose lists and objects hold each other too often."""
    return InputError(
        f"{source}: is not valid {language} for Loadmaster (nested too deeply: over {DEEPEST} levels)"
    )


def _reject_double_keys(text: bytes, source: str) -> None:
    """Raise if an object has a key twice: parsers silently take one of the two values."""

    def once(pairs: list[tuple[str, Any]]) -> None:
        seen: set[str] = set()
        for key, _ in pairs:
            if key in seen:
                raise InputError(f"{source}: the key {shown(key)} appears twice in one object")
            seen.add(key)

    json.loads(text, object_pairs_hook=once)


@contextmanager
def named(source: str) -> Iterator[None]:
    """Put the file before errors about what is in it, where they do not name it yet."""
    try:
        yield
    except InputError as error:
        if str(error).startswith(source):
            raise
        raise type(error)(f"{source}: {error}") from None


def shown(value: Any) -> str:
    """A wrong value as a message shows it: not longer than a line."""
    text = repr(value)
    return text if len(text) <= SHOWN else f"{text[:SHOWN]}…"


class Record:
    """A JSON object being read; every getter checks the type and names the place when it is wrong."""

    def __init__(self, value: Any, where: str) -> None:
        if not isinstance(value, dict):
            raise InputError(f"{where}: must be an object, not {_kind(value)}")
        self.value, self.where = value, where

    def __contains__(self, key: str) -> bool:
        return key in self.value

    def get(self, key: str) -> Any:
        """The raw value; missing is an error."""
        if key not in self.value:
            raise InputError(f"{self.where}: {key!r} is missing")
        return self.value[key]

    def number(self, key: str, default: float | None = None, *, minimum: float = 0.0) -> float:
        """A finite number of at least ``minimum``."""
        if default is not None and self.value.get(key) is None:
            return default
        value = self.get(key)
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise InputError(f"{self.where}: {key!r} must be a number, not {_kind(value)}")
        if not math.isfinite(value) or value < minimum:
            raise InputError(
                f"{self.where}: {key!r} must be a finite number >= {minimum:g}, not {shown(value)}"
            )
        return float(value)

    def integer(
        self, key: str, default: int | None = None, *, minimum: int | None = 0, maximum: int | None = None
    ) -> int:
        """A whole number; ``minimum=None`` takes any."""
        if default is not None and self.value.get(key) is None:
            return default
        value = self.get(key)
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        if isinstance(value, bool) or not isinstance(value, int):
            raise InputError(f"{self.where}: {key!r} must be a whole number, not {_kind(value)}")
        if minimum is not None and value < minimum:
            raise InputError(f"{self.where}: {key!r} must be >= {minimum}, not {shown(value)}")
        if maximum is not None and value > maximum:
            raise InputError(f"{self.where}: {key!r} must be at most {maximum}, not {shown(value)}")
        return value

    def flag(self, key: str, default: bool) -> bool:
        """true, false, 1 or 0."""
        value = self.value.get(key, default)
        if value not in (0, 1):
            raise InputError(f"{self.where}: {key!r} must be true or false, not {_kind(value)}")
        return bool(value)

    def text(self, key: str, default: str | None = None) -> str:
        """A string."""
        value = self.value.get(key, default) if default is not None else self.get(key)
        if not isinstance(value, str):
            raise InputError(f"{self.where}: {key!r} must be a string, not {_kind(value)}")
        return value

    def items(self, key: str, default: list[Any] | None = None) -> list[Any]:
        """A list."""
        value = self.value.get(key, default) if default is not None else self.get(key)
        if not isinstance(value, list):
            raise InputError(f"{self.where}: {key!r} must be a list, not {_kind(value)}")
        return value

    def records(self, key: str) -> list[Record]:
        """A list of objects."""
        return [Record(value, f"{self.where}: {key}[{i}]") for i, value in enumerate(self.items(key))]

    def lists(self, key: str) -> list[list[Any]]:
        """A list of lists; empty where the key is not there."""
        entries = self.items(key, [])
        for i, entry in enumerate(entries):
            if not isinstance(entry, list):
                raise InputError(f"{self.where}: {key}[{i}] must be a list, not {_kind(entry)}")
        return entries

    def matrix(self, key: str, shape: tuple[int, ...]) -> list[Any]:
        """A list of numbers of that length, or a list of such lists."""
        rows = self.items(key)
        flat = (
            rows
            if len(shape) == 1
            else [x for row in rows for x in (row if isinstance(row, list) else [None])]
        )
        right = len(rows) == shape[0] and (
            len(shape) == 1 or all(isinstance(r, list) and len(r) == shape[1] for r in rows)
        )
        if not right:
            raise InputError(f"{self.where}: {key!r} must be {' x '.join(map(str, shape))} numbers")
        if any(isinstance(x, bool) or not isinstance(x, int | float) for x in flat):
            raise InputError(f"{self.where}: {key!r} must hold numbers only")
        return rows


def _kind(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, str | int | float | bool):
        return shown(value)
    return "a list" if isinstance(value, list) else "an object"
