"""``If``, ``Loop`` and ``Scan`` that depend on data: what is inside them, for one op that stands for it all."""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Callable, Sequence
from typing import Any

import onnx

from loadmaster.errors import InputError
from loadmaster.graph.onnx._file import tensors_of
from loadmaster.graph.onnx._infer import Guess, attributes, dimensions
from loadmaster.graph.onnx._step import Scope, Step
from loadmaster.graph.onnx._value import Value, make_value

__all__ = ["CONTROL_FLOW", "Body", "is_decided"]

CONTROL_FLOW = frozenset(["If", "Loop", "Scan"])
"""Of the standard operator set."""

Follow = Callable[[Any, Scope], list[Step]]


def is_decided(inputs: Sequence[Value | None]) -> bool:
    """Whether the condition of an ``If`` is the same in every run."""
    condition = inputs[0] if inputs else None
    return condition is not None and condition.array is not None and condition.array.size == 1


class Body:
    """What the graphs inside a node read, make and compute, as far as that is known.

    outputs : what is known of the node's outputs, by name.
    read : values from outside, and constants inside, that any of its steps read.
    flops : of one run of the node: the longer branch of an ``If``, all rounds of a ``Loop`` or ``Scan`` (one where
        their number depends on data); None where any of it is not known.
    """

    def __init__(self, node: Any, version: int, inputs: Sequence[Value | None], where: str) -> None:
        self.node, self.version, self.inputs, self.where = node, version, inputs, where
        self.outputs: dict[str, Guess] = {}
        self.read: list[Value] = []
        self.flops: float | None = None
        self._graphs = {a.name: a.g for a in node.attribute if a.HasField("g")}

    def follow(self, inside: Follow, scope: Scope) -> None:
        """Follow the graphs inside.

        Raises
        ------
        InputError : the node has not the graphs that it needs.
        """
        wanted = ("then_branch", "else_branch") if self.node.op_type == "If" else ("body",)
        for name in wanted:
            if name not in self._graphs:
                raise InputError(f"{self.where} has no graph {name!r} inside")
        self._read_names(scope)
        {"If": self._if, "Loop": self._loop, "Scan": self._scan}[self.node.op_type](inside, scope)

    def _read_names(self, scope: Scope) -> None:
        """What the graphs read from outside, by name: known whether or not they can be followed."""
        names = dict.fromkeys(name for graph in self._graphs.values() for name in _outer_reads(graph))
        self.read += [scope[name] for name in names if name in scope]

    # -- the three kinds -------------------------------------------------------------------------------------

    def _if(self, inside: Follow, scope: Scope) -> None:
        found = [
            self._followed(inside, self._graphs[name], scope, []) for name in ("then_branch", "else_branch")
        ]
        # Of two branches for different shapes of the inputs one cannot be followed: the other one tells.
        self.flops = max((flops for flops, _ in found if flops is not None), default=None)
        for name, one, other in zip(self.node.output, found[0][1], found[1][1], strict=False):
            self.outputs[name] = _common(one, other)

    def _loop(self, inside: Follow, scope: Scope) -> None:
        body, rounds = self._graphs["body"], _trip_count(self.inputs)
        carried = list(self.inputs[2:])
        if any(value is None for value in carried) or len(body.input) != 2 + len(carried):
            return
        number = make_value(body.input[0].name, onnx.TensorProto.INT64, (), self.where)
        going_on = make_value(body.input[1].name, onnx.TensorProto.BOOL, (), self.where)
        entering = [number, going_on, *(_fresh(value) for value in carried if value is not None)]
        flops, made = self._followed(inside, body, scope, entering)
        self.flops = None if flops is None else flops * (1 if rounds is None else rounds)
        kept, stacked = made[1 : 1 + len(carried)], made[1 + len(carried) :]
        for name, before, after in zip(self.node.output, entering[2:], kept, strict=False):
            grows = after.sizes != before.tensor.shape
            self.outputs[name] = Guess(after.elem, None if grows else after.sizes)
        # Where the body may end the loop itself, the number of rounds is the most there can be.
        whole = rounds if self._goes_on(body) else None
        for name, value in zip(self.node.output[len(carried) :], stacked, strict=False):
            self.outputs[name] = Guess(value.elem, None if value.sizes is None else (whole, *value.sizes))

    @staticmethod
    def _goes_on(body: Any) -> bool:
        """Whether a ``Loop``'s body never ends it: its condition is true, or handed on as it came."""
        name, makers = body.output[0].name, {output: node for node in body.node for output in node.output}
        while name in makers and makers[name].op_type == "Identity":
            name = makers[name].input[0]
        if name == body.input[1].name:
            return True
        tensors = [tensor for tensor in body.initializer if tensor.name == name]
        if name in makers and makers[name].op_type == "Constant":
            tensors += [attribute.t for attribute in makers[name].attribute if attribute.HasField("t")]
        return bool(tensors) and bool(onnx.numpy_helper.to_array(tensors[0]).all())

    def _scan(self, inside: Follow, scope: Scope) -> None:
        """Since version 9. Version 8 has a batch before all else, and says first how long its entries are."""
        body, given = self._graphs["body"], attributes(self.node, "", self.version)
        batch: tuple[int, ...] = ()
        inputs = list(self.inputs)
        if self.version < 9:
            lengths, *inputs = inputs
            first = inputs[0] if inputs else None
            if first is None or (lengths is not None and lengths.array is None):
                return
            batch = first.tensor.shape[:1]
        count = int(given.get("num_scan_inputs", 0))
        states, scanned = inputs[: len(inputs) - count], inputs[len(inputs) - count :]
        axes = list(given.get("scan_input_axes") or [0] * count)
        entering, rounds = [], None
        for at, value in enumerate(inputs):
            if value is None:
                return
            shape = list(value.tensor.shape)[len(batch) :]
            if at >= len(states):
                axis = axes[at - len(states)]
                if not -len(shape) <= axis < len(shape):
                    return
                rounds = shape.pop(axis)
            entering.append(make_value(value.name, value.elem, tuple(shape), self.where))
        if rounds is None or len(entering) != len(body.input) or len(scanned) != count:
            return
        flops, made = self._followed(inside, body, scope, entering)
        self.flops = None if flops is None else flops * rounds * (batch[0] if batch else 1)
        out_axes = list(given.get("scan_output_axes") or [0] * max(len(made) - len(states), 0))
        for at, (name, guess) in enumerate(zip(self.node.output, made, strict=False)):
            if guess.sizes is None:
                continue
            sizes = list(guess.sizes)
            if at >= len(states):
                axis = out_axes[at - len(states)]
                sizes.insert(axis if axis >= 0 else axis + len(sizes) + 1, rounds)
            self.outputs[name] = Guess(guess.elem, (*batch, *sizes))

    # -- one graph -------------------------------------------------------------------------------------------

    def _followed(
        self, inside: Follow, graph: Any, scope: Scope, entering: Sequence[Value]
    ) -> tuple[float | None, list[Guess]]:
        """Work and outputs of a graph whose inputs are given; where it cannot be followed, as its shapes depend on
        data, what it declares about its outputs."""
        own: Scope = ChainMap({}, scope)
        own.update((info.name, value) for info, value in zip(graph.input, entering, strict=False))
        try:
            steps = inside(graph, own)
            made = [own[info.name] for info in graph.output]
        except (InputError, KeyError):
            self._store(graph)
            return None, [dimensions(info.type, {}) for info in graph.output]
        inner = {value for step in steps for value in step.outputs if value is not None} | set(entering)
        read = [value for step in steps for value in step.inputs if value is not None and value not in inner]
        self.read += dict.fromkeys(read)
        known = all(step.flops is not None for step in steps)
        work = sum(step.flops or 0.0 for step in steps) if known else None
        return work, [Guess(value.elem, value.tensor.shape) for value in made]

    def _store(self, graph: Any) -> None:
        """Read all constants of a graph that cannot be followed."""
        for tensor in tensors_of(graph):
            value = make_value(tensor.name, tensor.data_type, tuple(tensor.dims), self.where)
            value.stored, value.roots = value.tensor.bytes, (value,)
            self.read.append(value)


def _fresh(value: Value) -> Value:
    """A value of the same type that differs from round to round."""
    return Value(value.name, value.tensor, value.elem)


def _common(one: Guess, other: Guess) -> Guess:
    """What two branches agree on; where one of them knows nothing, what the other one says."""
    if one.sizes is None or other.sizes is None:
        return Guess(
            one.elem or other.elem, one.sizes or other.sizes, one.kind if one.sizes is None else other.kind
        )
    if len(one.sizes) != len(other.sizes):
        return Guess(one.elem, None)
    return Guess(
        one.elem,
        tuple([_size(a, b) for a, b in zip(one.sizes, other.sizes, strict=True)]),
    )


def _size(a: int | None, b: int | None) -> int | None:
    if a is None or b is None:
        return b if a is None else a
    return a if a == b else None


def _trip_count(inputs: Sequence[Value | None]) -> int | None:
    """Rounds of a ``Loop``, where nothing but their number ends it."""
    count = inputs[0] if inputs else None
    goes_on = inputs[1] if len(inputs) > 1 else None
    if count is None or count.array is None or count.array.size != 1:
        return None
    if goes_on is not None and (goes_on.array is None or not goes_on.array.all()):
        return None
    return max(int(count.array.item()), 0)


def _outer_reads(graph: Any) -> list[str]:
    """Names that a graph reads and does not make itself."""
    own = {info.name for info in graph.input} | {tensor.name for tensor in graph.initializer}
    found: list[str] = []
    for node in graph.node:
        inner = [
            name
            for attribute in node.attribute
            if attribute.HasField("g")
            for name in _outer_reads(attribute.g)
        ]
        found += [name for name in (*node.input, *inner) if name and name not in own]
        own.update(node.output)
    return found + [info.name for info in graph.output if info.name not in own]
