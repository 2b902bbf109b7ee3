"""Curves of a training run: TensorBoard event files, written without TensorBoard, and a CSV file beside each."""

from __future__ import annotations

import struct
import time
from pathlib import Path

import numpy as np

from loadmaster.errors import InputError
from loadmaster.placers.frame.search import Search

__all__ = ["Curves", "Scalars", "event_record"]


class Curves:
    """Appends to two new files in a folder: an event file, and a CSV file of steps, names and values.

    Nothing is written for no folder.
    """

    def __init__(self, folder: str, label: str) -> None:
        self._event: Path | None = None
        if not folder:
            return
        event = Path(folder) / f"events.out.tfevents.{int(time.time())}.{label}"
        self._event, self._table = event, event.with_name(f"{label}.{int(time.time())}.csv")
        try:
            event.parent.mkdir(parents=True, exist_ok=True)
            event.write_bytes(_record(_double(1, time.time()) + _bytes(3, b"brain.Event:2")))
            self._table.write_text("step,name,value\n")
        except OSError as error:
            raise InputError(f"{folder}: scalars cannot be written there ({error.strerror})") from None

    def write(self, step: int, values: dict[str, float]) -> None:
        """The values at a step."""
        if self._event is None:
            return
        with self._event.open("ab") as events:
            events.write(event_record(step, values))
        with self._table.open("a") as table:
            table.writelines(f'{step},"{name}",{value!r}\n' for name, value in values.items())


class Scalars:
    """The curves of a search: best cost, gap to the bound, and what else the training tells."""

    def __init__(self, folder: str, search: Search, every: float = 0.5) -> None:
        self._search, self._every, self._told, self._on = search, every, -np.inf, bool(folder)
        self._curves = Curves(folder, search.method)

    def write(self, step: int, **values: float) -> None:
        """The values at a step, at most twice a second."""
        if not self._on or time.monotonic() - self._told < self._every:
            return
        self._told = time.monotonic()
        search = self._search
        everything = {"best": search.cost, "evaluations": float(search.evaluations), **values}
        if search.simulated:  # of a machine there is no bound
            everything["gap"] = 1.0 - search.bound.value / search.cost if search.cost > 0 else 0.0
        self._curves.write(step, {name: float(value) for name, value in everything.items()})


def event_record(step: int, values: dict[str, float]) -> bytes:
    """One record of an event file: a length, the protocol buffer ``Event``, and their check sums."""
    summary = b"".join(
        _bytes(1, _bytes(1, name.encode()) + _varint(2 << 3 | 5) + struct.pack("<f", value))
        for name, value in values.items()
    )
    return _record(_double(1, time.time()) + _varint(2 << 3) + _varint(step) + _bytes(5, summary))


def _record(event: bytes) -> bytes:
    length = struct.pack("<Q", len(event))
    return length + _check(length) + event + _check(event)


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    return bytes([*out, value])


def _bytes(field: int, content: bytes) -> bytes:
    return _varint(field << 3 | 2) + _varint(len(content)) + content


def _double(field: int, value: float) -> bytes:
    return _varint(field << 3 | 1) + struct.pack("<d", value)


def _check(content: bytes) -> bytes:
    """The masked CRC-32C of the format."""
    crc = 0xFFFFFFFF
    for byte in content:
        crc = TABLE[(crc ^ byte) & 255] ^ crc >> 8
    crc ^= 0xFFFFFFFF
    return struct.pack("<I", ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF)


def _table() -> list[int]:
    table = []
    for crc in range(256):
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
        table.append(crc)
    return table


TABLE = _table()
