"""Writing files so that nothing is lost: the whole new content is there, or the old file is untouched."""

from __future__ import annotations

import os
from pathlib import Path

from loadmaster.errors import InputError
from loadmaster.files._leftovers import beside, sweep_beside

__all__ = ["check_writable", "write_atomically"]


def check_writable(path: str | Path) -> None:
    """Find out, before hours of search, whether a file can be written later.

    Raises
    ------
    InputError : the path is a folder, its folder is missing, or nothing can be created there.
    """
    try:
        target = Path(path).resolve()
        if target.is_dir():
            raise InputError(f"{path}: is a folder, give the name of a file to write")
        if not target.parent.is_dir():
            raise InputError(f"{path}: there is no folder {target.parent} to write it to")
        if _is_special(target):
            return
        sweep_beside(target)
        probe = beside(target)
        probe.touch(exist_ok=False)
        probe.unlink()
    except (OSError, RuntimeError) as error:  # RuntimeError: symbolic links in a circle
        raise InputError(f"{path}: cannot be written ({getattr(error, 'strerror', error)})") from None


def write_atomically(path: str | Path, content: bytes) -> None:
    """Write to a new file beside the target, flush it to the disk, then rename it into place.

    What a process that was killed meanwhile has left of the same file is taken away.
    """
    try:
        target = Path(path).resolve()  # a symbolic link stays one: what it points to is replaced
        if _is_special(target):
            target.write_bytes(content)
            return
        sweep_beside(target)
        new = beside(target)
        try:
            with new.open("xb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            os.replace(new, target)
        except BaseException:
            new.unlink(missing_ok=True)
            raise
    except (OSError, RuntimeError) as error:  # RuntimeError: symbolic links in a circle
        raise InputError(f"{path}: cannot be written ({getattr(error, 'strerror', error)})") from None


def _is_special(target: Path) -> bool:
    """A pipe or a device such as /dev/null, which a rename would replace by a plain file."""
    return target.exists() and not target.is_file()
