"""The content of a file, or one sentence that says why there is none."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import BinaryIO

from loadmaster.errors import InputError
from loadmaster.files._limits import check_limit, limit

__all__ = ["check_regular", "read_bytes", "read_text"]

KINDS = (
    (stat.S_ISDIR, "cannot be read (Is a directory)"),
    (stat.S_ISFIFO, "is a pipe, not a file: write what comes out of it to a file first"),
    (stat.S_ISSOCK, "is a socket, not a file"),
    (stat.S_ISCHR, "is a device, not a file"),
    (stat.S_ISBLK, "is a device, not a file"),
)


PART = 1 << 20
"""Bytes that are read at a time."""


def check_regular(path: str | Path, within: str = "file") -> int:
    """The size of a plain file, which may be read now; ``within`` is the limit for its size.

    Raises
    ------
    InputError : the file is not there, cannot be read, is too large, or is a folder, a pipe, a socket or a device.
    """
    handle, size = _opened(path, within)
    os.close(handle)
    return size


def read_bytes(path: str | Path, within: str = "file") -> bytes:
    """The content of a file; ``within`` is the limit for its size.

    Raises
    ------
    InputError : the file is not there, cannot be read, is too large, or is a folder, a pipe, a socket or a device.
    """
    handle, _ = _opened(path, within)
    try:
        with os.fdopen(handle, "rb") as file:
            content = _up_to(file, limit(within) + 1)  # what is in /proc has no size beforehand
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror})") from None
    check_limit(within, len(content), f"{path}: has more bytes than may be read")
    return content


def _up_to(file: BinaryIO, size: int) -> bytes:
    """At most so many bytes; ``file.read(size)`` would take that much memory first, which a limited process lacks."""
    parts: list[bytes] = []
    while size > 0 and (part := file.read(min(size, PART))):
        parts.append(part)
        size -= len(part)
    return b"".join(parts)


def _opened(path: str | Path, within: str) -> tuple[int, int]:
    """A descriptor, and the size. A pipe without a writer must not make us wait: that is what O_NONBLOCK is for."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        raise InputError(f"{path}: there is no such file") from None
    except (OSError, ValueError) as error:  # ValueError: a zero byte in the path
        raise InputError(f"{path}: cannot be read ({getattr(error, 'strerror', None) or error})") from None
    try:
        found = os.fstat(handle)
        for is_kind, said in KINDS:
            if is_kind(found.st_mode):
                raise InputError(f"{path}: {said}")
        check_limit(within, found.st_size, f"{path}: has {found.st_size:,} bytes")
    except BaseException:
        os.close(handle)
        raise
    return handle, found.st_size


def read_text(path: str | Path, within: str = "file") -> str:
    """The content of a text file, line ends as ``\\n``.

    Raises
    ------
    InputError : the file is not there, cannot be read, or is not UTF-8.
    """
    try:
        text = read_bytes(path, within).decode("utf-8")
    except UnicodeDecodeError:
        raise InputError(f"{path}: is not a text file in UTF-8") from None
    return text.replace("\r\n", "\n").replace("\r", "\n")
