"""Following the nodes of an ONNX model one by one, with the shape of every tensor and what is constant.

Every shape is a tuple of numbers here, because open dimensions are given by the user. So ``Shape`` is a
constant, and with it the arithmetic on shapes that exporters write; small constants are computed, large ones
only sized.
"""

from __future__ import annotations

import math
from collections import ChainMap, Counter
from collections.abc import Container, Iterable, Iterator, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

import numpy as np
import numpy.typing as npt
import onnx

from loadmaster.errors import InputError
from loadmaster.graph._onnx_costs import ALIASES, flops
from loadmaster.graph._onnx_file import SMALL, tensor_value
from loadmaster.graph._onnx_infer import BITS, Guess, attributes, dimensions, evaluate, infer, schema_of
from loadmaster.graph._onnx_op import Op, Tensor
from loadmaster.graph._onnx_sizes import OpenSizes

__all__ = ["Step", "Value", "Walk"]

LARGEST = 2**60
"""Elements of a tensor that is still taken for what the user meant."""

RANDOM = frozenset(
    ["Bernoulli", "Multinomial", "RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike"]
)
STORED_AS_INPUT = ALIASES | {"DequantizeLinear", "Transpose"}
"""Of these a runtime keeps no second copy when their input is a weight: they fuse into its reader."""

Scope = MutableMapping[str, "Value"]


@dataclass(eq=False)
class Value:
    """A tensor of the model."""

    name: str
    tensor: Tensor
    elem: int
    step: int = -1
    """The step that makes it; -1 for inputs of the model and constants."""
    port: int = 0
    stored: int = 0
    """Bytes of a constant that is stored as it is."""
    roots: tuple[Value, ...] = ()
    """The stored constants that a constant is made of; none for what differs from run to run."""
    array: npt.NDArray[Any] | None = None
    """The value of a small constant."""
    missing: str = ""
    """The external file that the value of a small constant would be in."""
    proto: Any = field(default=None, repr=False)

    @property
    def type_proto(self) -> Any:
        """For shape inference."""
        if self.proto is None:
            self.proto = onnx.helper.make_tensor_type_proto(self.elem, self.tensor.shape)
        return self.proto


class Step(NamedTuple):
    """A node that computes something in every run."""

    name: str
    """Of the node; empty where it has none."""
    domain: str
    op: Op
    inputs: tuple[Value | None, ...]
    outputs: tuple[Value | None, ...]
    flops: float | None
    """None where they are not known."""


class Walk:
    """The steps of a model, in order; see :meth:`run`."""

    def __init__(self, model: Any, path: str | Path, shapes: Mapping[str, tuple[int, ...]]) -> None:
        self.path = path
        self.steps: list[Step] = []
        self.inputs: list[Value] = []
        self.outputs: list[tuple[str, Value]] = []
        self.guessed: Counter[str] = Counter()
        """Op type -> outputs whose element type is not known, and taken to be that of the first input."""
        self._model = model
        self._sizes = OpenSizes(model.graph, path, shapes)
        self._opsets = {_domain(entry.domain): entry.version for entry in model.opset_import}
        self._declared: dict[str, Any] = {}
        self.unneeded = 0
        """Nodes that no output of the model needs."""

    def run(self) -> None:
        """Follow all nodes.

        Raises
        ------
        InputError : names the node that cannot be followed, and why.
        """
        graph, scope = self._model.graph, dict[str, Value]()
        stored = {tensor.name for tensor in graph.initializer}
        stored |= {sparse.values.name for sparse in graph.sparse_initializer}
        for info in graph.input:
            if info.name not in stored:
                elem, shape = self._sizes.of_input(info)
                scope[info.name] = self._value(info.name, elem, shape, f"{self.path}: input {info.name!r}")
                self.inputs.append(scope[info.name])
        self._graph(graph, scope)
        for info in graph.output:
            if info.name not in scope:
                raise InputError(f"{self.path}: no node makes the output {info.name!r}")
            self.outputs.append((info.name, scope[info.name]))

    # -- graphs ----------------------------------------------------------------------------------------------

    def _graph(self, graph: Any, scope: Scope) -> None:
        self._declared.update((info.name, info.type) for info in (*graph.value_info, *graph.output))
        for tensor in graph.initializer:
            scope[tensor.name] = self._stored(tensor.name, tensor)
        for sparse in graph.sparse_initializer:
            scope[sparse.values.name] = self._stored_sparse(sparse.values.name, sparse)
        needed = {info.name for info in graph.output}
        live = []
        for node in reversed(graph.node):
            if not needed.isdisjoint(node.output):
                needed.update(_read_names(node))
                live.append(node)
        self.unneeded += len(graph.node) - len(live)
        for node in reversed(live):
            self._node(node, scope, needed)

    def _value(self, name: str, elem: int, shape: tuple[int, ...], where: str) -> Value:
        if elem not in BITS:
            kind = "strings" if elem == onnx.TensorProto.STRING else "elements of an unknown type"
            raise InputError(f"{where} holds {kind}, whose size in bytes is not known")
        if any(size < 0 for size in shape) or math.prod(shape) > LARGEST:
            raise InputError(f"{where} has the impossible shape {'x'.join(map(str, shape))}")
        return Value(name, Tensor(shape, BITS[elem]), elem)

    def _stored(self, name: str, tensor: Any) -> Value:
        """A constant that is part of the model."""
        where = f"{self.path}: the constant {name!r}"
        value = self._value(name, tensor.data_type, tuple(tensor.dims), where)
        value.stored, value.roots = value.tensor.bytes, (value,)
        if value.tensor.size <= SMALL:
            value.array = tensor_value(tensor, self.path)
            if value.array is None:
                entries = {entry.key: entry.value for entry in tensor.external_data}
                value.missing = entries.get("location", "")
        return value

    def _stored_sparse(self, name: str, sparse: Any) -> Value:
        where = f"{self.path}: the sparse constant {name!r}"
        value = self._value(name, sparse.values.data_type, tuple(sparse.dims), where)
        value.roots = (value,)
        value.stored = sum(
            self._value(name, part.data_type, tuple(part.dims), where).tensor.bytes
            for part in (sparse.values, sparse.indices)
        )
        return value

    # -- nodes -----------------------------------------------------------------------------------------------

    def _node(self, node: Any, scope: Scope, needed: Container[str]) -> None:
        domain = _domain(node.domain)
        where = f"{self.path}: node {node.name or next(iter(node.output), '')!r} ({node.op_type})"
        for name in node.input:
            if name and name not in scope:
                raise InputError(f"{where} reads {name!r}, which nothing before it makes")
        inputs = tuple([scope[name] if name else None for name in node.input])
        graphs = {a.name: a.g for a in node.attribute if a.HasField("g") or a.graphs}
        if graphs and domain == "" and node.op_type == "If":
            self._branch(node, graphs, inputs, scope, where)
            return
        if graphs:
            raise InputError(
                f"{where} has a graph inside: control flow other than a constant If cannot be placed"
            )
        for name in node.output:
            if name and name in scope:
                raise InputError(f"{where} makes {name!r}, which is there already")
        if domain == "" and node.op_type == "Constant":
            scope[node.output[0]] = self._constant_node(node, where)
            return
        outputs = self._outputs(node, domain, inputs, needed, where)
        scope.update((value.name, value) for value in outputs if value is not None)
        if domain == "" and self._is_constant(node, inputs):
            self._fold(node, inputs, outputs)
        else:
            self._step(node, domain, inputs, outputs, where)

    def _branch(
        self, node: Any, graphs: Mapping[str, Any], inputs: Sequence[Value | None], scope: Scope, where: str
    ) -> None:
        """The nodes of the branch that is taken, in place of the If."""
        condition = inputs[0] if inputs else None
        if condition is None or condition.array is None or condition.array.size != 1:
            raise InputError(
                f"{where} takes a branch that depends on data: such control flow cannot be placed"
            )
        branch = graphs.get("then_branch" if condition.array.item() else "else_branch")
        if branch is None or len(branch.output) != len(node.output):
            raise InputError(f"{where} does not have two branches with its outputs")
        inner: Scope = ChainMap({}, scope)
        self._graph(branch, inner)
        for name, info in zip(node.output, branch.output, strict=True):
            if info.name not in inner:
                raise InputError(f"{where}: no node of the branch makes its output {info.name!r}")
            scope[name] = inner[info.name]

    def _constant_node(self, node: Any, where: str) -> Value:
        name = node.output[0]
        for attribute in node.attribute:
            if attribute.name == "value":
                return self._stored(name, attribute.t)
            if attribute.name == "sparse_value":
                return self._stored_sparse(name, attribute.sparse_tensor)
            if attribute.name in ("value_float", "value_floats", "value_int", "value_ints"):
                kind = np.float32 if "float" in attribute.name else np.int64
                array = np.array(onnx.helper.get_attribute_value(attribute), kind)
                return self._stored(name, onnx.numpy_helper.from_array(array))
        raise InputError(f"{where} has no number for a value")

    def _outputs(
        self, node: Any, domain: str, inputs: Sequence[Value | None], needed: Container[str], where: str
    ) -> tuple[Value | None, ...]:
        """The outputs with their shapes: inferred, given by the user, or declared in the file.

        Outputs after the first that nobody reads (the mask of a Dropout) are left out.
        """
        inferred = self._inferred(node, domain, inputs, where)
        outputs: list[Value | None] = []
        for port, name in enumerate(node.output):
            if not name or (port > 0 and name not in needed):
                outputs.append(None)
                continue
            guess = inferred.get(name, Guess(0, None))
            declared = dimensions(self._declared.get(name, onnx.TypeProto()), self._sizes.symbols)
            for found in (guess, declared):
                if found.kind != "tensor":
                    raise InputError(f"{where} makes a {found.kind}: only tensors can be placed")
            shape = self._sizes.of_output(name, guess, declared)
            if shape is None:
                self._refuse_open(name, guess, inputs, where)
            elem = guess.elem or declared.elem
            if not elem:
                first = next((value for value in inputs if value is not None), None)
                elem = onnx.TensorProto.FLOAT if first is None else first.elem
                self.guessed[node.op_type] += 1
            value = self._value(name, elem, shape, f"{where}: its output {name!r}")
            value.step, value.port = len(self.steps), port
            outputs.append(value)
        return tuple(outputs)

    def _inferred(
        self, node: Any, domain: str, inputs: Sequence[Value | None], where: str
    ) -> Mapping[str, Guess]:
        schema = schema_of(node.op_type, domain, self._opsets.get(domain, 0))
        if schema is None:
            return {}
        known = [value for value in inputs if value is not None]
        types = {name: value.type_proto for name, value in zip(node.input, inputs, strict=True) if value}
        arrays = {name: value.array for name, value in zip(node.input, inputs, strict=True) if value}
        values = {
            name: onnx.numpy_helper.from_array(array, name)
            for name, array in arrays.items()
            if array is not None
        }
        try:
            return infer(node, schema, types, values, self._model.opset_import, self._model.ir_version)
        except (onnx.shape_inference.InferenceError, RuntimeError, ValueError) as error:
            shapes = ", ".join("x".join(map(str, value.tensor.shape)) or "scalar" for value in known)
            reason = str(error).strip().split("\n")[0].rpartition("] ")[2]
            raise InputError(f"{where} does not fit its inputs ({shapes}): {reason}") from None

    def _refuse_open(self, name: str, guess: Guess, inputs: Iterable[Value | None], where: str) -> NoReturn:
        missing = next((value for value in inputs if value is not None and value.missing), None)
        why = ""
        if missing is not None:
            why = f" without the value of {missing.name!r} in the file {missing.missing!r}, which cannot be read"
        shape = "…" if guess.sizes is None else "x".join("?" if n is None else str(n) for n in guess.sizes)
        raise InputError(
            f"{where}: the shape of its output {name!r} is not known{why}: give it as --shape '{name}={shape}'"
        )

    # -- constants and steps ---------------------------------------------------------------------------------

    def _is_constant(self, node: Any, inputs: Iterable[Value | None]) -> bool:
        if node.op_type in ("Shape", "Size"):
            return True
        return node.op_type not in RANDOM and all(value.roots for value in inputs if value is not None)

    def _fold(self, node: Any, inputs: Sequence[Value | None], outputs: Sequence[Value | None]) -> None:
        """Make the outputs constants, with their values where everything is small."""
        made = [value for value in outputs if value is not None]
        for value in made:
            value.step, value.roots, value.stored = -1, (value,), value.tensor.bytes
        if node.op_type in STORED_AS_INPUT:
            given = [value for value in inputs if value is not None]
            if node.op_type != "DequantizeLinear":
                given = given[:1]
            made[0].roots = tuple(dict.fromkeys(root for value in given for root in value.roots))
        if any(value.tensor.size > SMALL for value in made):
            return
        arrays: Sequence[npt.NDArray[Any]] | None
        if node.op_type == "Shape" and inputs[0] is not None:
            given_attributes = attributes(node, "", self._opsets[""])
            cut = slice(given_attributes.get("start"), given_attributes.get("end"))
            arrays = [np.array(inputs[0].tensor.shape, np.int64)[cut]]
        elif node.op_type == "Size" and inputs[0] is not None:
            arrays = [np.array(inputs[0].tensor.size, np.int64)]
        elif any(value is not None and value.array is None for value in inputs):
            return
        else:
            arrays = evaluate(node, self._opsets[""], [None if v is None else v.array for v in inputs])
        for value, array in zip(made, arrays or (), strict=False):
            if array.shape == value.tensor.shape:
                value.array = array

    def _step(
        self,
        node: Any,
        domain: str,
        inputs: tuple[Value | None, ...],
        outputs: tuple[Value | None, ...],
        where: str,
    ) -> None:
        op = Op(
            node.op_type,
            tuple([None if value is None else value.tensor for value in inputs]),
            tuple([None if value is None else value.tensor for value in outputs]),
            attributes(node, domain, self._opsets.get(domain, 0)),
            {i: v.array for i, v in enumerate(inputs) if v is not None and v.array is not None},
        )
        try:
            work = flops(op) if domain == "" else None
        except (ArithmeticError, LookupError, TypeError, ValueError):
            shapes = ", ".join("x".join(map(str, t.shape)) or "scalar" for t in op.inputs if t is not None)
            raise InputError(f"{where} does not fit its inputs ({shapes})") from None
        if (
            domain == ""
            and node.op_type == "Dropout"
            and not work
            and sum(v is not None for v in outputs) == 1
        ):
            op = op._replace(type="Identity")
        self.steps.append(Step(node.name, domain, op, inputs, outputs, work))


def _read_names(node: Any) -> Iterator[str]:
    """What a node reads, its subgraphs too (and what they make themselves, which does no harm)."""
    yield from node.input
    for attribute in node.attribute:
        for graph in (attribute.g, *attribute.graphs):
            yield from (info.name for info in graph.output)
            for inner in graph.node:
                yield from _read_names(inner)


def _domain(name: str) -> str:
    return "" if name == "ai.onnx" else name
