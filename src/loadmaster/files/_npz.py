"""Arrays by name from an ``.npz`` file, which may be anything at all."""

from __future__ import annotations

import io
import zipfile
from pathlib import Path
from typing import Any

from loadmaster.errors import InputError
from loadmaster.files._bytes import read_bytes

__all__ = ["read_arrays"]


def read_arrays(path: str | Path, what: str) -> dict[str, Any]:
    """All arrays of a file that ``numpy.savez`` wrote; ``what`` completes "FILE: is not …" in errors.

    Raises
    ------
    InputError : the file is not there, is no such file, or would unpack to more than it holds: ``savez`` does not
        compress.
    """
    import numpy as np

    content = read_bytes(path)
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as parts:
            unpacked = sum(part.file_size for part in parts.infolist())
        if unpacked > len(content):
            raise ValueError(f"it would unpack to {unpacked:,} bytes")
        with np.load(io.BytesIO(content), allow_pickle=False) as found:
            return {name: found[name] for name in found.files}
    except Exception as error:  # zipfile and numpy raise many kinds
        raise InputError(f"{path}: is not {what} ({str(error) or type(error).__name__})") from None
