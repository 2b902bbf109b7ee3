"""From the steps of an ONNX model to its operator graph."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from loadmaster.graph._builder import GraphBuilder
from loadmaster.graph._network import Network
from loadmaster.graph.onnx._costs import reads, writes
from loadmaster.graph.onnx._fusion import fused
from loadmaster.graph.onnx._step import Step
from loadmaster.graph.onnx._value import Value
from loadmaster.graph.onnx._walk import Walk

__all__ = ["assemble"]

COPIES = 2**20
"""Bytes of extra copies of a shared constant that are cheaper than keeping its readers together."""
COPIES_SHARE = 0.01
"""The same, as a share of all constants of the model."""

TABLE = 2**16
"""Bytes from which on a constant that is only looked up in is an op of its own."""
TABLE_SHARE = 0.25
"""Share of it that a look-up reads at most."""

MOST_TYPES = 4
"""Unknown op types that a note lists."""


@dataclass
class Holding:
    """What constants mean for a step: bytes stored with it, bytes that it reads besides, tables beside it."""

    stored: float = 0.0
    read: float = 0.0
    tables: list[Table] = field(default_factory=list)


@dataclass(eq=False)
class Table:
    """A constant of which few rows are read, as an op of its own."""

    root: Value
    readers: list[int]
    op: int = -1


def assemble(walk: Walk, name: str, *, io: bool) -> Network:
    """The network of all steps that an output needs."""
    live = _needed(walk)
    holdings, shared = _hold_constants(walk.steps, live)
    at_hand = fused(walk.steps, live, {value for _, value in walk.outputs})
    builder = GraphBuilder(name)
    names = _Names(walk.steps[s].name for s in live)
    op_of: dict[int, int] = {}
    source: dict[Value, int] = {}
    if io:
        for value in walk.inputs:
            source[value] = builder.op(
                names.other(value.name),
                "Parameter",
                shapes=[value.tensor.shape],
                bytes_written=value.tensor.bytes,
                boundary=True,
            )
    tables: list[Table] = []
    for s in live:
        for table in holdings[s].tables:
            shape = table.root.tensor.shape
            table.op = builder.op(
                names.other(table.root.name), "Constant", shapes=[shape], param_bytes=table.root.stored
            )
            tables.append(table)
        op_of[s] = _add_step(builder, names, walk.steps[s], holdings[s], at_hand.get(s))
    results = [_add_result(builder, names, text, value) for text, value in walk.outputs] if io else []
    _connect(builder, walk, live, op_of, source, results)
    for table in tables:
        builder.tensor(table.op, bytes=table.root.tensor.bytes, consumers=[op_of[s] for s in table.readers])
    groups = [[op_of[s] for s in group] for group in shared]
    groups += [[table.op, *(op_of[s] for s in table.readers)] for table in tables]
    graph = builder.build()
    made = {op_of[s]: tuple(v.name for v in walk.steps[s].outputs if v is not None) for s in live}
    return Network(
        graph,
        colocation=tuple(tuple(group) for group in groups),
        inputs=tuple(source.values()),
        outputs=tuple(results),
        notes=tuple(_notes(walk, live)),
        ports=tuple(made.get(op, ()) for op in range(graph.n)),
        tensors={
            value.name: op
            for value, op in (
                *source.items(),
                *((value, op_of[s]) for s in live for value in walk.steps[s].outputs if value is not None),
            )
        },
    )


def _needed(walk: Walk) -> list[int]:
    """The steps that some output of the model needs, in order."""
    found = {value.step for _, value in walk.outputs}
    for s in range(len(walk.steps) - 1, -1, -1):
        if s in found:
            found.update(value.step for value in walk.steps[s].inputs if value is not None)
    return sorted(found - {-1})


# -- constants -----------------------------------------------------------------------------------------------


def _hold_constants(steps: Sequence[Step], live: Iterable[int]) -> tuple[dict[int, Holding], list[list[int]]]:
    """What every step holds, and the groups of steps that share a constant."""
    holdings = {s: Holding() for s in live}
    readers: dict[Value, dict[int, float]] = {}
    for s in holdings:
        for value, read in zip(steps[s].inputs, reads(steps[s].op), strict=True):
            if value is not None and value.roots:
                share = read / value.tensor.bytes if value.tensor.bytes else 1.0
                for root in value.roots:
                    shares = readers.setdefault(root, {})
                    shares[s] = max(share, shares.get(s, 0.0))
    spare = max(COPIES, COPIES_SHARE * sum(root.stored for root in readers))
    groups = []
    for root, shares in readers.items():
        copied = (len(shares) - 1) * root.stored <= spare
        for together in [[s] for s in shares] if copied else [list(shares)]:
            _hold(root, {s: shares[s] for s in together}, holdings)
            if len(together) > 1:
                groups.append(together)
    return holdings, groups


def _hold(root: Value, shares: dict[int, float], holdings: dict[int, Holding]) -> None:
    """One copy of a constant for all of these readers."""
    looks_up = [s for s, share in shares.items() if share <= TABLE_SHARE] if root.stored >= TABLE else []
    if looks_up:
        holdings[looks_up[0]].tables.append(Table(root, looks_up))
    for i, (s, share) in enumerate(shares.items()):
        if i == 0 and not looks_up:
            holdings[s].stored += root.stored
        else:
            holdings[s].read += share * root.stored


# -- ops -----------------------------------------------------------------------------------------------------


class _Names:
    """Unique names: a node keeps its own, unless an earlier node has it."""

    def __init__(self, nodes: Iterable[str]) -> None:
        self._nodes = Counter(name for name in nodes if name)
        self._taken: set[str] = set()

    def node(self, name: str) -> str:
        if name in self._taken:
            return self.other(name)
        self._taken.add(name)
        return name

    def other(self, name: str) -> str:
        """A name for what is not a node, or for a node without one."""
        unique, count = name or "op", 0
        while unique in self._taken or unique in self._nodes:
            count += 1
            unique = f"{name or 'op'}_{count}"
        self._taken.add(unique)
        return unique


def _add_step(
    builder: GraphBuilder, names: _Names, step: Step, holding: Holding, at_hand: Value | None
) -> int:
    """Add the op of a step; where it is fused, ``at_hand`` is changed where it is, neither read nor written again."""
    made = [value for value in step.outputs if value is not None]
    read: dict[Value, int] = {}
    for value, size in zip(step.inputs, reads(step.op), strict=True):
        if value is not None and not value.roots and value is not at_hand:
            read[value] = max(size, read.get(value, 0))
    return builder.op(
        names.node(step.name) if step.name else names.other(made[0].name),
        step.op.type,
        shapes=[value.tensor.shape for value in made],
        flops=step.flops or 0.0,
        bytes_read=sum(read.values()) + holding.read,
        bytes_written=0 if at_hand is not None else writes(step.op),
        param_bytes=holding.stored,
    )


def _add_result(builder: GraphBuilder, names: _Names, name: str, value: Value) -> int:
    kept = sum(root.stored for root in value.roots)
    return builder.op(
        names.other(name), "Result", shapes=[value.tensor.shape], param_bytes=kept, boundary=True
    )


def _connect(
    builder: GraphBuilder,
    walk: Walk,
    live: Sequence[int],
    op_of: dict[int, int],
    source: dict[Value, int],
    results: Sequence[int],
) -> None:
    """A tensor for every input and output port that somebody reads."""
    consumers: dict[Value, dict[int, None]] = {}
    for s in live:
        for value in walk.steps[s].inputs:
            if value is not None and not value.roots:
                consumers.setdefault(value, {})[op_of[s]] = None
    for op, (_, value) in zip(results, walk.outputs, strict=False):
        consumers.setdefault(value, {})[op] = None
    for value, op in source.items():
        if value in consumers:
            builder.tensor(op, bytes=value.tensor.bytes, consumers=consumers[value])
    for s in live:
        for made in walk.steps[s].outputs:
            if made is not None and made in consumers:
                builder.tensor(op_of[s], bytes=made.tensor.bytes, consumers=consumers[made])


def _notes(walk: Walk, live: Sequence[int]) -> Iterable[str]:
    unknown = Counter(
        f"{step.domain}.{step.op.type}".lstrip(".")
        for step in (walk.steps[s] for s in live)
        if step.flops is None
    )
    dropped = walk.unneeded + len(walk.steps) - len(live)
    if unknown:
        yield f"{_counted(unknown, 'op')} counted by bytes alone, because their work is unknown"
    if walk.guessed:
        yield f"{_counted(walk.guessed, 'output')} assumed to have the type of the first input"
    if walk.observed:
        yield f"{_counted(walk.observed, 'shape')} taken from one run on drawn inputs: they depend on data"
    if dropped:
        yield f"{dropped} unused node{'s' * (dropped != 1)} left out"


def _counted(types: Counter[str], what: str) -> str:
    total, listed = sum(types.values()), [name for name, _ in types.most_common(MOST_TYPES)]
    more = "" if len(types) <= MOST_TYPES else f" and {len(types) - MOST_TYPES} more types"
    return f"{total} {what}{'s' * (total != 1)} ({', '.join(listed)}{more})"
