"""A process that solves maximum flows for ``_flow_process.py``: arrays come in, a cut goes out, until the pipe ends.

A file of its own that imports nothing of the package, so that it starts in a third of a second.
"""

from __future__ import annotations

import sys
from typing import BinaryIO

import numpy as np
import numpy.typing as npt
from ortools.graph.python import max_flow


def main() -> None:
    """One network after another: (arcs, source, sink, whether flows are wanted), tails, heads, capacities."""
    come, go = sys.stdin.buffer, sys.stdout.buffer
    while True:
        head = come.read(32)
        if len(head) < 32:
            return
        arcs, source, sink, flows = np.frombuffer(head, np.int64).tolist()
        tails, heads = (_read(come, arcs, np.dtype(np.int32)) for _ in range(2))
        units = _read(come, arcs, np.dtype(np.int64))
        flow = max_flow.SimpleMaxFlow()
        flow.add_arcs_with_capacity(tails, heads, units)
        flow.add_arc_with_capacity(source, sink, 0)  # both ends exist even without any other arc
        status = flow.solve(source, sink)
        side = np.asarray(flow.get_source_side_min_cut(), np.int32)
        ok = int(status == flow.OPTIMAL)
        go.write(np.array([ok, flow.optimal_flow(), len(side)], np.int64).tobytes())
        go.write(side.tobytes())
        if flows:
            go.write(flow.flows(np.arange(arcs)).astype(np.int64).tobytes())
        go.flush()


def _read(come: BinaryIO, count: int, kind: np.dtype[np.generic]) -> npt.NDArray[np.generic]:
    return np.frombuffer(come.read(count * kind.itemsize), kind)


if __name__ == "__main__":
    main()
