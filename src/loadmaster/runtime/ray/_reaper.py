"""``python _reaper.py PID``: waits until that process, which started it, is gone, then ends all of its Ray cluster.

Ray ends the most important ones itself; agents of its nodes go on for a minute: they want to tell the dead about it.
All of them write into the folder of a session, which has the PID in its name. (Their environment tells nothing: Ray
writes their titles over it.) Imports nothing of Loadmaster, for it is started with every cluster.
"""

from __future__ import annotations

import os
import re
import signal
import sys
import time

__all__ = ["end_all"]

LOOKS = 20
"""How often to look, a tenth of a second apart: a process may be about to start another."""


def end_all(owner: int) -> None:
    """Kill every process of the cluster of a process, until none is left."""
    session = re.compile(rf"/session_[-\d_]+_{owner}/")
    for _ in range(LOOKS):
        found = [
            pid
            for pid in map(int, filter(str.isdecimal, os.listdir("/proc")))
            if _writes(pid, owner, session)
        ]
        for pid in found:
            try:
                os.kill(pid, signal.SIGKILL)
            except OSError:
                continue
        if not found:
            return
        time.sleep(0.1)


def _writes(pid: int, owner: int, session: re.Pattern[str]) -> bool:
    """Whether a process, other than the owner, has a file of the session open."""
    try:
        return pid != owner and any(
            session.search(os.readlink(f"/proc/{pid}/fd/{number}"))
            for number in os.listdir(f"/proc/{pid}/fd")
        )
    except OSError:
        return False


def main() -> None:
    """Wait for the end of standard input; whoever ends in order says so before."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    if not sys.stdin.buffer.read():
        end_all(int(sys.argv[1]))


if __name__ == "__main__":
    main()
