"""Reading JSON so that a mistake is named: which file, which entry, which field."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import msgspec

from loadmaster.errors import InputError

__all__ = ["Record", "read_json"]


def read_json(path: str | Path) -> Any:
    """The content of a JSON file; plain lists, dicts and numbers.

    Raises
    ------
    InputError : the file is not there, cannot be read, or is not JSON.
    """
    try:
        text = Path(path).read_bytes()
    except FileNotFoundError:
        raise InputError(f"{path}: there is no such file") from None
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror})") from None
    try:
        return msgspec.json.decode(text)
    except msgspec.DecodeError as error:
        raise InputError(f"{path}: is not valid JSON ({error})") from None
    except RecursionError:
        raise InputError(f"{path}: is not valid JSON (nested too deeply)") from None


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
            raise InputError(f"{self.where}: {key!r} must be a finite number >= {minimum:g}, not {value}")
        return float(value)

    def integer(self, key: str, default: int | None = None, *, minimum: int | None = 0) -> int:
        """A whole number; ``minimum=None`` takes any."""
        if default is not None and self.value.get(key) is None:
            return default
        value = self.get(key)
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        if isinstance(value, bool) or not isinstance(value, int):
            raise InputError(f"{self.where}: {key!r} must be a whole number, not {_kind(value)}")
        if minimum is not None and value < minimum:
            raise InputError(f"{self.where}: {key!r} must be >= {minimum}, not {value}")
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
        return repr(value)
    return "a list" if isinstance(value, list) else "an object"
