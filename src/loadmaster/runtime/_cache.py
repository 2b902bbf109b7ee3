"""What was measured, kept in a SQLite file, by everything that it depends on."""

from __future__ import annotations

import hashlib
import json
import os
import sqlite3
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from loadmaster.errors import InputError
from loadmaster.files import check_regular

__all__ = ["Cache", "default_path", "model_hash"]

T = TypeVar("T")

PATIENCE = 30.0
"""Seconds that one process waits for another to finish writing."""
SCHEMA = """
    CREATE TABLE IF NOT EXISTS measured (
        key TEXT PRIMARY KEY, kind TEXT NOT NULL, made REAL NOT NULL, about TEXT NOT NULL, value TEXT NOT NULL
    )
"""


def default_path() -> Path:
    """``LOADMASTER_CACHE``, or a file in the user's cache folder."""
    given = os.environ.get("LOADMASTER_CACHE")
    if given:
        return Path(given)
    home = os.environ.get("XDG_CACHE_HOME")
    return (Path(home) if home else Path.home() / ".cache") / "loadmaster" / "measured.sqlite"


def model_hash(path: str | Path) -> str:
    """SHA-256 of a model's file, and of the weights beside it."""
    digest = hashlib.sha256()
    for file in (Path(path), Path(path).with_suffix(".bin")):
        if file.is_file():
            with file.open("rb") as stream:
                digest.update(hashlib.file_digest(stream, "sha256").digest())
    return digest.hexdigest()


class Cache:
    """Measurements by kind and by what they are about. Several processes may use one file at once.

    Writing never raises: what could not be kept is still a measurement. ``trouble`` says what went wrong.
    """

    def __init__(self, path: str | Path | None = None) -> None:
        self.path = Path(path) if path is not None else default_path()
        self.trouble: str | None = None
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise InputError(f"{self.path}: a cache cannot be created here ({error.strerror})") from None
        if os.path.isdir(self.path):
            raise InputError(
                f"{self.path}: is a folder, give the name of a file as the cache", option="--cache"
            )
        if self.path.exists():
            check_regular(self.path, "model")
        writable = os.access(self.path if self.path.exists() else self.path.parent, os.W_OK)
        if not writable and not self.path.exists():
            raise InputError(
                f"{self.path}: the cache cannot be written: give another file as the cache", option="--cache"
            )
        self._writable = writable
        try:
            with self._open() as connection:
                if writable:
                    connection.execute(SCHEMA)
                connection.execute("SELECT key, kind, made, about, value FROM measured LIMIT 1")
        except (sqlite3.DatabaseError, UnicodeDecodeError) as error:  # SQLite quotes what it found
            raise InputError(
                f"{self.path}: is not a cache of Loadmaster, or is damaged ({error}): "
                "delete it, or give another file as the cache",
                option="--cache",
            ) from None

    def _open(self) -> _Connection:
        return _Connection(self.path, self._writable)

    def get(self, kind: str, about: Mapping[str, Any]) -> tuple[Any, float] | None:
        """What was measured, and when (seconds since 1970); None where nothing was."""
        try:
            with self._open() as connection:
                row = connection.execute(
                    "SELECT value, made FROM measured WHERE key = ?", (_key(kind, about),)
                ).fetchone()
            return None if row is None else (json.loads(row[0]), float(row[1]))
        except (sqlite3.Error, ValueError, TypeError, RecursionError) as error:
            self.trouble = f"{self.path}: the cache could not be read ({error})"
            return None

    def get_as(self, kind: str, about: Mapping[str, Any], made: type[T]) -> T | None:
        """The same as an object of a dataclass; what does not fit the class was never measured."""
        found = self.get(kind, about)
        if found is None:
            return None
        try:
            return msgspec.convert(found[0], made)
        except (msgspec.ValidationError, RecursionError) as error:
            self.trouble = f"{self.path}: an entry of the cache is damaged ({error})"
            return None

    def put(self, kind: str, about: Mapping[str, Any], value: Any) -> None:
        """Keep a measurement, in place of an older one."""
        if not self._writable:
            self.trouble = f"{self.path}: the cache is read-only, so this measurement was not kept"
            return
        try:
            with self._open() as connection:
                connection.execute(
                    "INSERT OR REPLACE INTO measured VALUES (?, ?, ?, ?, ?)",
                    (
                        _key(kind, about),
                        kind,
                        time.time(),
                        json.dumps(about, sort_keys=True),
                        json.dumps(value),
                    ),
                )
        except sqlite3.Error as error:
            self.trouble = f"{self.path}: a measurement could not be kept ({error})"

    def __len__(self) -> int:
        with self._open() as connection:
            return int(connection.execute("SELECT COUNT(*) FROM measured").fetchone()[0])


class _Connection:
    """A connection for one transaction, closed behind it: nothing is held while a model runs for minutes."""

    def __init__(self, path: Path, writable: bool) -> None:
        mode = "rwc" if writable else "ro"
        self._connection = sqlite3.connect(
            f"{path.absolute().as_uri()}?mode={mode}", uri=True, timeout=PATIENCE
        )

    def __enter__(self) -> sqlite3.Connection:
        return self._connection

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        try:
            if kind is None:
                self._connection.commit()
        finally:
            self._connection.close()


def _key(kind: str, about: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps([kind, about], sort_keys=True).encode()).hexdigest()
