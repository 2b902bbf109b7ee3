"""What a killed process leaves behind, and how the next one knows that it may be taken away.

Whatever is only there for a moment has the process that made it in its name: ``.plan.json.OWNER.TOKEN.new`` beside a
file that is being written, ``loadmaster-OWNER-TOKEN`` for a folder of scratch files. ``OWNER`` is
``HOST-BOOT-PID-START``: a machine (and the processes that are visible in it), since when it runs, a process, and since
when that runs. A process that is gone does not come back under that name, and what another machine has put into a
shared folder is left alone.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import secrets
import shutil
import socket
import stat
import tempfile
from functools import cache
from pathlib import Path

__all__ = ["beside", "common_folder", "scratch_folder", "sweep_beside", "sweep_by_process", "sweep_scratch"]

OWNER = r"([0-9a-f]{6})-([0-9a-f]{6})-(\d{1,10})-(\d{1,20})"
NEW = re.compile(rf"\..*\.{OWNER}\.[0-9a-f]{{12}}\.new")
SCRATCH = re.compile(rf"loadmaster-{OWNER}-\w+")


def beside(target: Path) -> Path:
    """A name for the new content of a file, in its folder."""
    return target.with_name(f".{target.name[:100]}.{_owner(os.getpid())}.{secrets.token_hex(6)}.new")


def sweep_beside(target: Path) -> None:
    """Take away what killed processes have left of writing this file."""
    prefix = f".{target.name[:100]}."
    with contextlib.suppress(OSError):
        names = [name for name in os.listdir(target.parent) if name.startswith(prefix)]
        for name in names:
            match = NEW.fullmatch(name)
            if match and _is_gone(match):
                with contextlib.suppress(OSError):
                    os.unlink(target.parent / name)


def scratch_folder() -> tempfile.TemporaryDirectory[str]:
    """A folder for scratch files, gone when it is closed; those of killed processes are taken away first."""
    sweep_scratch()
    return tempfile.TemporaryDirectory(
        prefix=f"loadmaster-{_owner(os.getpid())}-", ignore_cleanup_errors=True
    )


def sweep_scratch() -> None:
    """Take away the scratch folders of killed processes, our own only."""
    home = Path(tempfile.gettempdir())
    with contextlib.suppress(OSError), os.scandir(home) as entries:
        for entry in entries:
            match = SCRATCH.fullmatch(entry.name)
            if match is None or not entry.is_dir(follow_symlinks=False):
                continue
            ours = not hasattr(os, "getuid") or entry.stat(follow_symlinks=False).st_uid == os.getuid()
            if ours and _is_gone(match):
                shutil.rmtree(entry.path, ignore_errors=True)


def common_folder(name: str) -> Path | None:
    """A folder of this user and machine for what other programs keep there on our behalf; its name is short, for some
    of them put sockets into it. None where somebody else was there first."""
    user = os.getuid() if hasattr(os, "getuid") else 0
    home = Path(tempfile.gettempdir()) / f"loadmaster-{name}-{user}-{_host()}"
    try:
        home.mkdir(mode=0o700, exist_ok=True)
        found = home.lstat()
    except OSError:
        return None
    ours = stat.S_ISDIR(found.st_mode) and (not hasattr(os, "getuid") or found.st_uid == os.getuid())
    return home if ours else None


def sweep_by_process(home: Path, pattern: str) -> None:
    """Take away the folders in ``home`` of processes that are gone; ``pattern`` finds the process in their names."""
    with contextlib.suppress(OSError), os.scandir(home) as entries:
        for entry in entries:
            match = re.fullmatch(pattern, entry.name)
            if match and entry.is_dir(follow_symlinks=False) and not _started(int(match[1])):
                shutil.rmtree(entry.path, ignore_errors=True)


def _is_gone(match: re.Match[str]) -> bool:
    """Whether the process in a name has ended for certain."""
    host, boot, pid, start = match.groups()
    here, now, _, _ = _owner(os.getpid()).split("-")
    if host != here:
        return False
    return boot != now or _started(int(pid)) != start


def _owner(pid: int) -> str:
    return f"{_host()}-{_boot()}-{pid}-{_started(pid)}"


@cache
def _host() -> str:
    """The machine, and within it the processes that can be seen from here (a container sees its own)."""
    try:
        seen = os.readlink("/proc/self/ns/pid")
    except OSError:
        seen = ""
    return hashlib.sha256(f"{socket.gethostname()} {seen}".encode()).hexdigest()[:6]


@cache
def _boot() -> str:
    try:
        since = Path("/proc/sys/kernel/random/boot_id").read_text()
    except OSError:
        since = ""
    return hashlib.sha256(since.encode()).hexdigest()[:6]


def _started(pid: int) -> str:
    """When a process began, in ticks of the kernel; "" where there is none, "0" where that cannot be known."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return "" if fields[0] in "ZX" else fields[19]
    except (OSError, IndexError, ValueError):
        pass
    if os.path.isdir("/proc/self"):
        return ""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return ""
    except OSError:
        pass
    return "0"
