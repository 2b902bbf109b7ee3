"""Scalars of a training run as TensorBoard event files, written without TensorBoard."""

from __future__ import annotations

import struct
import time
from pathlib import Path

import numpy as np

from loadmaster.errors import InputError
from loadmaster.placers.frame.search import Search

__all__ = ["Scalars", "event_record", "new_event_file"]


def new_event_file(folder: str, label: str) -> Path | None:
    """A new event file in a folder, to which records can be appended; None for no folder."""
    if not folder:
        return None
    file = Path(folder) / f"events.out.tfevents.{int(time.time())}.{label}"
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(_record(_double(1, time.time()) + _bytes(3, b"brain.Event:2")))
    except OSError as error:
        raise InputError(f"{folder}: scalars cannot be written there ({error.strerror})") from None
    return file


class Scalars:
    """Appends to one event file in a folder: best cost, gap to the bound, and what else the training tells."""

    def __init__(self, folder: str, search: Search, every: float = 0.5) -> None:
        self._search, self._every, self._told = search, every, -np.inf
        self._file = new_event_file(folder, search.method)

    def write(self, step: int, **values: float) -> None:
        """The values at a step, at most twice a second."""
        if self._file is None or time.monotonic() - self._told < self._every:
            return
        self._told = time.monotonic()
        search = self._search
        gap = 1.0 - search.bound.value / search.cost if search.simulated and search.cost > 0 else 0.0
        everything = {"best": search.cost, "gap": gap, "evaluations": float(search.evaluations), **values}
        with self._file.open("ab") as file:
            file.write(event_record(step, everything))


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
