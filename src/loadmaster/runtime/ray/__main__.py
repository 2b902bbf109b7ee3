"""``python -m loadmaster.runtime.ray N``: N nodes of this machine, on loopback alone, until Ctrl-C.

Prints the address for ``--on``: so several commands share a cluster, and none waits for it to start.
"""

from __future__ import annotations

import signal
import sys

from loadmaster.runtime.ray._connection import end_nodes, local_nodes


def main() -> None:
    """Start the nodes, say where, and wait."""
    if len(sys.argv) != 2 or not sys.argv[1].isdecimal() or not 0 < int(sys.argv[1]) < 100:
        sys.exit("give the number of nodes, e.g. python -m loadmaster.runtime.ray 2")
    cluster = local_nodes(int(sys.argv[1]))
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    print(cluster.address, flush=True)
    try:
        signal.pause()
    except KeyboardInterrupt:
        pass
    finally:
        end_nodes(cluster)


if __name__ == "__main__":
    main()
