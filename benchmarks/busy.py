"""Run a command while other processes keep all cores busy.

python -m benchmarks.busy 6 loadmaster bench run --suite memory --budget 10s -o busy.jsonl
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence

__all__ = ["main"]

LOOP = "while True: pass"


def main(arguments: Sequence[str] | None = None) -> int:
    """The command's exit code; the busy processes end with it."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    if len(words) < 2 or not words[0].isdigit():
        print("python -m benchmarks.busy: give a number of processes, and a command", file=sys.stderr)
        return 2
    loops = [subprocess.Popen([sys.executable, "-c", LOOP]) for _ in range(int(words[0]))]
    try:
        return subprocess.run(words[1:]).returncode
    except OSError as error:
        print(f"python -m benchmarks.busy: {words[1]}: {error.strerror}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130
    finally:
        for loop in loops:
            loop.kill()
            loop.wait()


if __name__ == "__main__":
    raise SystemExit(main())
