"""Zip archives of PyTorch, looked at before PyTorch opens them."""

from __future__ import annotations

import zipfile
from pathlib import Path

from loadmaster.errors import InputError
from loadmaster.files._bytes import check_regular
from loadmaster.files._limits import check_limit

__all__ = ["read_archive"]

MOST_PARTS = 100_000


def read_archive(path: str | Path, what: str, wanted: str = "", within: str = "model") -> dict[str, bytes]:
    """The parts of an archive whose names end in ``wanted`` (none if empty), after a look at all of them.

    PyTorch does not compress, so an archive cannot unpack to more than it holds; one that would is refused. ``what``
    completes "FILE: is not …"; ``within`` is the limit for its size.

    Raises
    ------
    InputError : it is no archive, or one that unpacks to more than its size.
    """
    size = check_regular(path, within)
    try:
        with zipfile.ZipFile(path) as archive:
            parts = archive.infolist()
            if len(parts) > MOST_PARTS or any(part.compress_type != zipfile.ZIP_STORED for part in parts):
                raise ValueError("its parts are compressed, or too many")
            if sum(part.file_size for part in parts) > size:
                raise ValueError("it would unpack to more than it holds")
            chosen = [part for part in parts if wanted and part.filename.endswith(wanted)]
            inside = sum(part.file_size for part in chosen)
            check_limit("unpacked", inside, f"{path}: describes its program in {inside:,} bytes")
            return {part.filename: archive.read(part) for part in chosen}
    except InputError:
        raise
    except Exception as error:  # zipfile raises many kinds
        raise InputError(f"{path}: is not {what} ({str(error) or type(error).__name__})") from None
