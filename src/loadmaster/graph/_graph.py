"""The operator graph: what is placed."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from functools import cached_property

import numpy as np
import numpy.typing as npt

from loadmaster.arrays import BoolArray, FloatArray, IntArray
from loadmaster.graph.order import (
    csr_from_pairs,
    longest_path_levels,
    reachability_bitsets,
    topological_order,
)
from loadmaster.notebook import facts_html
from loadmaster.units import bytes_text

__all__ = ["Graph"]


@dataclass(frozen=True, eq=False, repr=False)
class Graph:
    """An immutable directed acyclic graph of operators, as a structure of arrays.

    Make one with :class:`GraphBuilder`; the constructor checks nothing. Builder and files have the same check,
    :func:`loadmaster.graph._check.check_graph`.

    Attributes
    ----------
    name : what the graph is called in messages and reports.
    names : (ops,) unique names.
    op_types : (ops,) e.g. ``"Conv"``; empty where unknown.
    output_shapes : (ops,) a tuple of shapes per op; empty where unknown.
    flops, bytes_read, bytes_written, param_bytes : (ops,) floating point operations and bytes;
        ``param_bytes`` are weights that stay on the device.
    backward : (ops,) True for ops of the backward pass of a training graph.
    tensor_producer : (tensors,) the op that produces the tensor. Tensors of one op are in port order.
    tensor_bytes : (tensors,) size in bytes.
    consumer_ptr, consumer_op : the consumers of tensor t are ``consumer_op[consumer_ptr[t]:consumer_ptr[t +
        1]]``.
    boundary : (ops,) True for ops that are no work but stand for the user's data, the inputs and outputs of a
        model; contiguity does not look at them. Left out, there are none.
    """

    name: str
    names: tuple[str, ...]
    op_types: tuple[str, ...]
    output_shapes: tuple[tuple[tuple[int, ...], ...], ...]
    flops: FloatArray
    bytes_read: FloatArray
    bytes_written: FloatArray
    param_bytes: FloatArray
    backward: BoolArray
    tensor_producer: IntArray
    tensor_bytes: FloatArray
    consumer_ptr: IntArray
    consumer_op: IntArray
    boundary: BoolArray = field(default_factory=lambda: np.zeros(0, np.bool_))

    def __post_init__(self) -> None:
        if not len(self.boundary):
            object.__setattr__(self, "boundary", np.zeros(len(self.names), np.bool_))
        for part in fields(self):
            value = getattr(self, part.name)
            if isinstance(value, np.ndarray):
                value.flags.writeable = False

    # -- sizes -----------------------------------------------------------------------------------------------

    @property
    def n(self) -> int:
        """Number of ops."""
        return len(self.names)

    @property
    def tensors(self) -> int:
        """Number of tensors."""
        return len(self.tensor_producer)

    @property
    def edges(self) -> int:
        """Number of (tensor, consumer) pairs."""
        return len(self.consumer_op)

    def __len__(self) -> int:
        return self.n

    def __repr__(self) -> str:
        label = f"{self.name!r}, " if self.name else ""
        return f"Graph({label}{self.n} ops, {self.tensors} tensors, {self.edges} edges)"

    def _repr_html_(self) -> str:
        types = ", ".join(
            f"{kind or 'unknown'} {count:,}" for kind, count in Counter(self.op_types).most_common(6)
        )
        return facts_html(
            f"Graph {self.name}".strip(),
            [
                ("ops", f"{self.n:,}"),
                ("tensors", f"{self.tensors:,} ({bytes_text(float(self.tensor_bytes.sum()))})"),
                ("edges", f"{self.edges:,}"),
                ("weights", bytes_text(float(self.param_bytes.sum()))),
                ("flops", f"{float(self.flops.sum()):.4g}"),
                ("most common types", types),
            ],
        )

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Graph):
            return NotImplemented
        return self.n == other.n and self.digest == other.digest and self.name == other.name

    def __hash__(self) -> int:
        return hash(self.digest)

    @cached_property
    def digest(self) -> str:
        """SHA-256 over the content (all but the name): equal graphs have equal digests, in any process."""
        h = hashlib.sha256()
        for part in fields(self):
            if part.name == "name" or (part.name == "boundary" and not self.boundary.any()):
                continue
            value = getattr(self, part.name)
            h.update(part.name.encode())
            h.update(value.tobytes() if isinstance(value, np.ndarray) else repr(value).encode())
        return h.hexdigest()

    # -- look-up ---------------------------------------------------------------------------------------------

    @cached_property
    def index(self) -> dict[str, int]:
        """Op name -> index."""
        return {name: v for v, name in enumerate(self.names)}

    def consumers(self, tensor: int) -> IntArray:
        """The ops that read ``tensor``."""
        return self.consumer_op[self.consumer_ptr[tensor] : self.consumer_ptr[tensor + 1]]

    # -- structure, computed when first asked for ------------------------------------------------------------

    @cached_property
    def edge_tensor(self) -> IntArray:
        """(edges,) the tensor of each (tensor, consumer) pair."""
        return np.repeat(np.arange(self.tensors, dtype=np.int32), np.diff(self.consumer_ptr))

    @cached_property
    def outputs(self) -> tuple[IntArray, IntArray]:
        """CSR op -> tensors it produces, by port: (ptr, tensor)."""
        return csr_from_pairs(self.tensor_producer, np.arange(self.tensors, dtype=np.int32), self.n)

    @cached_property
    def inputs(self) -> tuple[IntArray, IntArray]:
        """CSR op -> tensors it reads, ascending: (ptr, tensor)."""
        return csr_from_pairs(self.consumer_op, self.edge_tensor, self.n)

    @cached_property
    def arcs(self) -> tuple[IntArray, IntArray]:
        """The distinct (producer, consumer) pairs of ops, sorted: (tail, head)."""
        if not self.edges:
            return np.zeros(0, np.int32), np.zeros(0, np.int32)
        key = self.tensor_producer[self.edge_tensor].astype(np.int64) * self.n + self.consumer_op
        key = np.unique(key)
        return (key // self.n).astype(np.int32), (key % self.n).astype(np.int32)

    @cached_property
    def successors(self) -> tuple[IntArray, IntArray]:
        """CSR op -> ops that read one of its tensors: (ptr, op)."""
        tail, head = self.arcs
        return csr_from_pairs(tail, head, self.n)

    @cached_property
    def predecessors(self) -> tuple[IntArray, IntArray]:
        """CSR op -> ops whose tensors it reads: (ptr, op)."""
        tail, head = self.arcs
        return csr_from_pairs(head, tail, self.n)

    @cached_property
    def topological_order(self) -> IntArray:
        """(ops,) the topological order that takes the smallest index first among the ready ops."""
        order = topological_order(self.n, *self.arcs)
        assert len(order) == self.n, "the check lets no cycle through"
        return order

    def remember_order(self, order: IntArray) -> None:
        """Fill :attr:`topological_order` where whoever made the graph, and looked for cycles, knows it already."""
        object.__setattr__(self, "topological_order", order)

    @cached_property
    def position(self) -> IntArray:
        """(ops,) place of each op in :attr:`topological_order`."""
        position = np.empty(self.n, np.int32)
        position[self.topological_order] = np.arange(self.n, dtype=np.int32)
        return position

    @cached_property
    def levels(self) -> IntArray:
        """(ops,) number of arcs on the longest path from a source."""
        return longest_path_levels(self.topological_order, *self.successors)

    @cached_property
    def reachable(self) -> npt.NDArray[np.uint64]:
        """(ops, ceil(ops / 64)) bit u of row v is set if there is a path from v to u (v itself not
        counted)."""
        return reachability_bitsets(self.topological_order, *self.successors)

    def select(self, pattern: str) -> list[int]:
        """Ops whose name is ``pattern``, or else whose whole name matches it as a regular expression.

        Raises
        ------
        InputError : nothing matches, or the pattern is not a regular expression.
        """
        return select_ops(self.names, self.index, pattern)


def select_ops(names: Sequence[str], index: dict[str, int], pattern: str) -> list[int]:
    """See :meth:`Graph.select`."""
    import re

    from loadmaster.errors import InputError

    if pattern in index:
        return [index[pattern]]
    try:
        compiled = re.compile(pattern)
    except re.error as error:
        raise InputError(f"{pattern!r} is neither an op nor a regular expression ({error})") from None
    found = [v for v, name in enumerate(names) if compiled.fullmatch(name)]
    if not found:
        raise InputError(f"no op is called {pattern!r}, and as a regular expression it matches none")
    return found
