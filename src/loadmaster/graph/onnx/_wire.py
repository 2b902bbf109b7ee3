"""An ONNX file without its large weights, taken from its bytes: no more of it is read than is used.

Protobuf's own reader would read gigabytes of weights, to be thrown away, and make objects of a hundred bytes out of
messages of two. So the file is walked through first: messages are counted, and the data of large tensors left out.
"""

from __future__ import annotations

import mmap
from pathlib import Path

from loadmaster.errors import InputError
from loadmaster.files import check_limit, check_regular, limit

__all__ = ["without_weights"]

SMALL = 16 * 1024
"""Bytes of tensor data that are kept: whatever a shape can depend on is far below."""
DEEPEST = 60
"""Graphs within graphs; protobuf itself stops at a hundred messages."""

# Message -> the fields that hold messages, by number (onnx.proto), or that hold the data of a tensor (None).
TENSOR: dict[int, str | None] = dict.fromkeys((4, 5, 6, 7, 9, 10, 11))
FIELDS: dict[str, dict[int, str | None]] = {
    "model": {7: "graph", 25: "function", 20: "training", 14: "pair"},
    "training": {1: "graph", 2: "graph"},
    "function": {7: "node", 11: "attribute", 12: "value"},
    "graph": {
        1: "node",
        5: "tensor",
        11: "value",
        12: "value",
        13: "value",
        14: "quantization",
        15: "sparse",
    },
    "node": {5: "attribute", 9: "pair"},
    "attribute": {5: "tensor", 6: "graph", 10: "tensor", 11: "graph", 22: "sparse", 23: "sparse"},
    "sparse": {1: "tensor", 2: "tensor"},
    "tensor": TENSOR,
    "value": {2: "type"},
    "type": {1: "tensor type", 4: "sequence", 9: "sequence"},
    "sequence": {1: "type"},
    "tensor type": {2: "shape"},
    "shape": {1: "pair"},
    "quantization": {2: "pair"},
    "pair": {},
}


class _DamagedError(Exception):
    """Bytes that are no message."""


def without_weights(path: str | Path) -> bytes:
    """The bytes of a model whose large tensors have no data.

    Raises
    ------
    InputError : the file is not there, is too large, is no protobuf message, or holds too many of them.
    """
    size = check_regular(path, "model")
    if not size:
        raise InputError(f"{path}: is not an ONNX model: it is empty")
    with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
        try:
            walk = _Walk(content, path)
            walk.message("model", 0, size, 0)
            return b"".join(walk.parts)
        except (_DamagedError, IndexError):
            raise InputError(f"{path}: is not an ONNX model, or only a part of one") from None


class _Walk:
    """Copies a message piece by piece, and counts its fields."""

    def __init__(self, content: mmap.mmap, path: str | Path) -> None:
        self.content, self.path = content, path
        self.parts: list[bytes] = []
        self.count, self.most = 0, limit("values")

    def message(self, kind: str, at: int, end: int, depth: int) -> int:
        """Append the message in ``content[at:end]``; how many bytes of it are left."""
        if depth > DEEPEST:
            raise _DamagedError
        inside, made, kept = FIELDS[kind], 0, at
        while at < end:
            self.count += 1
            if self.count > self.most:
                check_limit("values", self.count, f"{self.path}: holds more than {self.most:,} messages")
            begin = at
            key, at = self._number(at, end)
            number, wire = key >> 3, key & 7
            if not number:
                raise _DamagedError
            if wire == 0:
                _, at = self._number(at, end)
            elif wire == 2:
                length, at = self._number(at, end)
                stop = at + length
                if stop > end:
                    raise _DamagedError
                inner = inside.get(number, "")
                if inner is None and length > SMALL:
                    made += self._copy(kept, begin)
                    kept = stop
                elif inner:
                    made += self._copy(kept, begin)
                    made += self._nested(inner, key, at, stop, depth)
                    kept = stop
                at = stop
            elif wire in (1, 5):
                at += 8 if wire == 1 else 4
            else:
                raise _DamagedError
            if at > end:
                raise _DamagedError
        return made + self._copy(kept, end)

    def _nested(self, kind: str, key: int, at: int, end: int, depth: int) -> int:
        """A message within one: its length is known when it has been walked through."""
        place = len(self.parts)
        self.parts.append(b"")
        length = self.message(kind, at, end, depth + 1)
        self.parts[place] = _written(key) + _written(length)
        return len(self.parts[place]) + length

    def _copy(self, at: int, end: int) -> int:
        if end > at:
            self.parts.append(self.content[at:end])
        return end - at

    def _number(self, at: int, end: int) -> tuple[int, int]:
        value = shift = 0
        while at < end and shift < 70:
            byte = self.content[at]
            at += 1
            value |= (byte & 127) << shift
            if byte < 128:
                return value, at
            shift += 7
        raise _DamagedError


def _written(value: int) -> bytes:
    found = bytearray()
    while value > 127:
        found.append(value & 127 | 128)
        value >>= 7
    found.append(value)
    return bytes(found)
