"""The only way to make a :class:`Graph`: a builder that rejects what is wrong, by name."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence

import numpy as np

from loadmaster.errors import GraphError
from loadmaster.files import shown
from loadmaster.graph._check import check_graph
from loadmaster.graph._graph import Graph

__all__ = ["GraphBuilder"]

LARGEST = sys.float_info.max
"""Numbers stay within this also where they are whole ones, which Python lets grow beyond any float."""


class GraphBuilder:
    """Collects ops, tensors and edges, then checks them all in :meth:`build`.

    >>> b = GraphBuilder("tiny")
    >>> conv = b.op("conv", "Conv", flops=1e9)
    >>> relu = b.op("relu", "Relu")
    >>> t = b.tensor(conv, bytes=4096, consumers=[relu])
    >>> b.build()
    Graph('tiny', 2 ops, 1 tensors, 1 edges)
    """

    def __init__(self, name: str = "") -> None:
        self.name = name
        self._names: list[str] = []
        self.index: dict[str, int] = {}
        """Op name -> index, of the ops added so far."""
        self._types: list[str] = []
        self._shapes: list[tuple[tuple[int, ...], ...]] = []
        self._numbers: list[tuple[float, float, float, float]] = []
        self._backward: list[bool] = []
        self._boundary: list[bool] = []
        self._producer: list[int] = []
        self._bytes: list[float] = []
        self._consumers: list[list[int]] = []

    def __len__(self) -> int:
        return len(self._names)

    def op(
        self,
        name: str,
        op_type: str = "",
        *,
        shapes: Sequence[Sequence[int]] = (),
        flops: float = 0.0,
        bytes_read: float = 0.0,
        bytes_written: float = 0.0,
        param_bytes: float = 0.0,
        backward: bool = False,
        boundary: bool = False,
    ) -> int:
        """Add an op and return its index; ``boundary``: an input or output of the model, which is no work.

        Raises
        ------
        GraphError : the name is taken or empty, or a number is negative or not finite.
        """
        if not name:
            raise GraphError(f"op {len(self._names)} has an empty name")
        if name in self.index:
            raise GraphError(f"op {name!r} appears twice: names must be unique")
        for what, number in (
            ("flops", flops),
            ("bytes_read", bytes_read),
            ("bytes_written", bytes_written),
            ("param_bytes", param_bytes),
        ):
            if not 0 <= number <= LARGEST:
                raise GraphError(f"op {name!r}: {what} must be a finite number >= 0, not {shown(number)}")
        self.index[name] = len(self._names)
        self._names.append(name)
        self._types.append(op_type)
        self._shapes.append(tuple(tuple(int(x) for x in shape) for shape in shapes))
        self._numbers.append((flops, bytes_read, bytes_written, param_bytes))
        self._backward.append(bool(backward))
        self._boundary.append(bool(boundary))
        return len(self._names) - 1

    def tensor(self, producer: int | str, *, bytes: float = 0.0, consumers: Iterable[int | str] = ()) -> int:
        """Add the next output of ``producer`` and return the tensor's index."""
        v = self._resolve(producer, f"the producer of tensor {len(self._producer)}")
        if not 0 <= bytes <= LARGEST:
            raise GraphError(
                f"a tensor of op {self._names[v]!r}: bytes must be a finite number >= 0, not {shown(bytes)}"
            )
        self._producer.append(v)
        self._bytes.append(bytes)
        self._consumers.append([])
        for consumer in consumers:
            self.edge(len(self._producer) - 1, consumer)
        return len(self._producer) - 1

    def edge(self, tensor: int, consumer: int | str) -> None:
        """Let ``consumer`` read ``tensor``."""
        if not 0 <= tensor < len(self._producer):
            raise GraphError(f"tensor {tensor} does not exist (there are {len(self._producer)})")
        producer = self._names[self._producer[tensor]]
        v = self._resolve(consumer, f"a consumer of a tensor of op {producer!r}")
        if v == self._producer[tensor]:
            raise GraphError(f"op {producer!r} reads its own output: a cycle")
        self._consumers[tensor].append(v)

    def _resolve(self, op: int | str, what: str) -> int:
        if isinstance(op, str):
            if op not in self.index:
                raise GraphError(f"{what} is {op!r}, which is not an op of the graph")
            return self.index[op]
        if not 0 <= op < len(self._names):
            raise GraphError(f"{what} is op {op}, which does not exist (there are {len(self._names)})")
        return int(op)

    def build(self) -> Graph:
        """Check everything (:func:`check_graph`), and return the immutable graph.

        Raises
        ------
        GraphError : names the ops of a cycle, the edge that appears twice, or the number that is too large.
        """
        counts = [len(c) for c in self._consumers]
        ptr = np.zeros(len(counts) + 1, np.int32)
        np.cumsum(counts, out=ptr[1:])
        consumer = np.array([v for c in self._consumers for v in c], np.int32)
        producer = np.array(self._producer, np.int32)
        numbers = np.array(self._numbers, np.float64).reshape(-1, 4)
        return check_graph(
            Graph(
                name=self.name,
                names=tuple(self._names),
                op_types=tuple(self._types),
                output_shapes=tuple(self._shapes),
                flops=numbers[:, 0].copy(),
                bytes_read=numbers[:, 1].copy(),
                bytes_written=numbers[:, 2].copy(),
                param_bytes=numbers[:, 3].copy(),
                backward=np.array(self._backward, np.bool_),
                tensor_producer=producer,
                tensor_bytes=np.array(self._bytes, np.float64),
                consumer_ptr=ptr,
                consumer_op=consumer,
                boundary=np.array(self._boundary, np.bool_),
            )
        )
