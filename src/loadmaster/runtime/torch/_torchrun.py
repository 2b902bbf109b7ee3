"""torchrun, but it ends with the process that has started it, however that went: its ranks are ended by it.

Started as ``python -m loadmaster.runtime.torch._torchrun PARENT OPTIONS``, where ``PARENT`` is the id of that process.
"""

from __future__ import annotations

import os
import signal
import sys

from loadmaster.runtime import end_with_parent

__all__ = ["main"]


def main(parent: int, words: list[str]) -> None:
    """Run torchrun, unless the parent is gone already."""
    end_with_parent(signal.SIGTERM)  # torchrun ends its ranks on it
    if os.getppid() != parent:
        return
    from torch.distributed.run import main as run

    run(words)


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2:])
