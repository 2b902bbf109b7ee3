"""The content of a file, or one sentence that says why there is none."""

from __future__ import annotations

import stat
from pathlib import Path

from loadmaster.errors import InputError

__all__ = ["read_bytes", "read_text"]


def read_bytes(path: str | Path) -> bytes:
    """The content of a file or a pipe.

    Raises
    ------
    InputError : the file is not there, cannot be read, or is a device such as /dev/zero, which never ends.
    """
    try:
        with Path(path).open("rb") as file:
            mode = Path(path).stat().st_mode
            if stat.S_ISCHR(mode) or stat.S_ISBLK(mode):
                raise InputError(f"{path}: is a device, not a file")
            return file.read()
    except FileNotFoundError:
        raise InputError(f"{path}: there is no such file") from None
    except (OSError, ValueError) as error:  # ValueError: a zero byte in the path
        if isinstance(error, InputError):
            raise
        raise InputError(f"{path}: cannot be read ({getattr(error, 'strerror', None) or error})") from None


def read_text(path: str | Path) -> str:
    """The content of a text file, line ends as ``\\n``.

    Raises
    ------
    InputError : the file is not there, cannot be read, or is not UTF-8.
    """
    try:
        text = read_bytes(path).decode("utf-8")
    except UnicodeDecodeError:
        raise InputError(f"{path}: is not a text file in UTF-8") from None
    return text.replace("\r\n", "\n").replace("\r", "\n")
