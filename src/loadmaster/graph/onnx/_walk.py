"""Following the nodes of an ONNX model one by one, with the shape of every tensor and what is constant.

Every shape is a tuple of numbers here, because open dimensions are given by the user. So ``Shape`` is a
constant, and with it the arithmetic on shapes that exporters write; small constants are computed, large ones
only sized.
"""

from __future__ import annotations

from collections import ChainMap, Counter
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from copy import copy
from pathlib import Path
from typing import Any, NoReturn

import onnx

from loadmaster.errors import InputError
from loadmaster.graph.onnx._constants import compute, constant_node, fold, is_constant, stored, stored_sparse
from loadmaster.graph.onnx._contrib import contrib_flops, contrib_outputs
from loadmaster.graph.onnx._control_flow import CONTROL_FLOW, Body, is_decided
from loadmaster.graph.onnx._costs import flops
from loadmaster.graph.onnx._infer import Guess, attributes, dimensions, guess_of, infer, schema_of
from loadmaster.graph.onnx._observe import Observer
from loadmaster.graph.onnx._op import Op
from loadmaster.graph.onnx._sizes import OpenSizes
from loadmaster.graph.onnx._step import Scope, Step
from loadmaster.graph.onnx._value import Value, make_value

__all__ = ["Step", "Walk"]


class Walk:
    """The steps of a model, in order; see :meth:`run`."""

    def __init__(
        self, model: Any, path: str | Path, shapes: Mapping[str, tuple[int, ...]], observer: Observer
    ) -> None:
        self.path = path
        self._observer = observer
        self.model = model
        self.steps: list[Step] = []
        self.inputs: list[Value] = []
        self.outputs: list[tuple[str, Value]] = []
        self.guessed: Counter[str] = Counter()
        """Op type -> outputs whose element type is not known, and taken to be that of the first input."""
        self.observed: Counter[str] = Counter()
        """Op type -> outputs whose shape is that of one run."""
        self._sizes = OpenSizes(model.graph, path, shapes)
        self._opsets = {_domain(entry.domain): entry.version for entry in model.opset_import}
        self._declared: dict[str, Any] = {}
        self._taken: dict[int, tuple[Any, Any]] = {}
        # By id of the node, which is held beside its branch: protobuf makes another object once this one is gone.
        self.unneeded = 0
        """Nodes that no output of the model needs."""

    def run(self) -> None:
        """Follow all nodes.

        Raises
        ------
        InputError : names the node that cannot be followed, and why.
        """
        graph, scope = self.model.graph, dict[str, Value]()
        weights = {tensor.name for tensor in graph.initializer}
        weights |= {sparse.values.name for sparse in graph.sparse_initializer}
        for info in graph.input:
            if info.name not in weights:
                elem, shape = self._sizes.of_input(info)
                scope[info.name] = make_value(info.name, elem, shape, f"{self.path}: input {info.name!r}")
                self.inputs.append(scope[info.name])
        self._graph(graph, scope)
        for info in graph.output:
            if info.name not in scope:
                raise InputError(f"{self.path}: no node produces the output {info.name!r}")
            self.outputs.append((info.name, scope[info.name]))

    def taken(self, node: Any) -> Any:
        """The branch that stands in place of an ``If``; None where both are left, and for all other nodes."""
        return self._taken.get(id(node), (node, None))[1]

    # -- graphs ----------------------------------------------------------------------------------------------

    def _graph(self, graph: Any, scope: Scope) -> None:
        self._declared.update((info.name, info.type) for info in (*graph.value_info, *graph.output))
        for tensor in graph.initializer:
            scope[tensor.name] = stored(tensor.name, tensor, self.path)
        for sparse in graph.sparse_initializer:
            scope[sparse.values.name] = stored_sparse(sparse.values.name, sparse, self.path)
        needed = {info.name for info in graph.output}
        live = []
        for node in reversed(graph.node):
            if not needed.isdisjoint(node.output):
                needed.update(_read_names(node))
                live.append(node)
        self.unneeded += len(graph.node) - len(live)
        for node in reversed(live):
            self._node(node, scope, needed)

    # -- nodes -----------------------------------------------------------------------------------------------

    def _node(self, node: Any, scope: Scope, needed: Container[str]) -> None:
        domain = _domain(node.domain)
        where = f"{self.path}: node {node.name or next(iter(node.output), '')!r} ({node.op_type})"
        for name in node.input:
            if name and name not in scope:
                raise InputError(f"{where} reads {name!r}, which no earlier node produces")
        inputs = tuple([scope[name] if name else None for name in node.input])
        graphs = {a.name: a.g for a in node.attribute if a.HasField("g")}
        if domain == "" and node.op_type == "If" and is_decided(inputs):
            self._branch(node, graphs, inputs, scope, where)
            return
        for name in node.output:
            if name and name in scope:
                raise InputError(f"{where} produces {name!r}, which already exists")
        if domain == "" and node.op_type == "Constant":
            scope[node.output[0]] = constant_node(node, self.path, where)
            return
        if domain == "" and node.op_type in CONTROL_FLOW:
            self._opaque(node, inputs, scope, needed, where)
            return
        if graphs:
            raise InputError(
                f"{where} has a graph inside, of which only those of If, Loop and Scan are understood"
            )
        outputs = self._outputs(node, domain, inputs, needed, where)
        scope.update((value.name, value) for value in outputs if value is not None)
        if domain == "" and is_constant(node, inputs):
            fold(node, self._opsets.get("", 0), inputs, outputs)
        else:
            self._step(node, domain, inputs, outputs, where)

    def _branch(
        self, node: Any, graphs: Mapping[str, Any], inputs: Sequence[Value | None], scope: Scope, where: str
    ) -> None:
        """The nodes of the branch that is taken, in place of the If."""
        taken = inputs[0] is not None and inputs[0].array is not None and bool(inputs[0].array.item())
        branch = graphs.get("then_branch" if taken else "else_branch")
        if branch is None or len(branch.output) != len(node.output):
            raise InputError(f"{where} does not have two branches with its outputs")
        self._taken[id(node)] = node, branch
        inner: Scope = ChainMap({}, scope)
        self._graph(branch, inner)
        for name, info in zip(node.output, branch.output, strict=True):
            if info.name not in inner:
                raise InputError(f"{where}: no node of the branch produces its output {info.name!r}")
            scope[name] = inner[info.name]

    def _opaque(
        self,
        node: Any,
        inputs: tuple[Value | None, ...],
        scope: Scope,
        needed: Container[str],
        where: str,
    ) -> None:
        """Control flow that depends on data, as one step with all that is inside."""
        body = Body(node, self._opsets.get("", 0), inputs, where)
        body.follow(self._inside, scope)
        outputs = self._outputs(node, "", inputs, needed, where, body.outputs)
        scope.update((value.name, value) for value in outputs if value is not None)
        read = tuple(dict.fromkeys((*(value for value in inputs if value is not None), *body.read)))
        op = Op(
            node.op_type,
            tuple([v.tensor for v in read]),
            tuple([None if v is None else v.tensor for v in outputs]),
        )
        self.steps.append(Step(node.name, "", op, read, outputs, body.flops))

    def _inside(self, graph: Any, scope: Scope) -> list[Step]:
        """The steps of a graph inside a node; ``scope`` gets its values."""
        inside = copy(self)
        inside.steps, inside._declared = [], dict(self._declared)
        inside._graph(graph, scope)
        self.unneeded = inside.unneeded
        return inside.steps

    def _outputs(
        self,
        node: Any,
        domain: str,
        inputs: Sequence[Value | None],
        needed: Container[str],
        where: str,
        inferred: dict[str, Guess] | None = None,
    ) -> tuple[Value | None, ...]:
        """The outputs with their shapes: inferred, given by the user, or declared in the file.

        Outputs after the first that nobody reads (the mask of a Dropout) are left out.
        """
        if inferred is None:
            inferred = self._inferred(node, domain, inputs, where)
        if domain == "" and any(guess.sizes is None or None in guess.sizes for guess in inferred.values()):
            computed = compute(node, self._opsets.get("", 0), inputs)
            inferred |= {name: guess_of(array) for name, array in computed.items()}
        outputs: list[Value | None] = []
        for port, name in enumerate(node.output):
            if not name or (port > 0 and name not in needed):
                outputs.append(None)
                continue
            guess = inferred.get(name, Guess(0, None))
            declared = dimensions(self._declared.get(name, onnx.TypeProto()), self._sizes.symbols)
            for found in (guess, declared):
                if found.kind != "tensor":
                    raise InputError(f"{where} produces a {found.kind}: {_tensors_alone(node)}")
            shape = self._sizes.of_output(name, guess, declared)
            if shape is None:
                seen = self._observer.see(name, self.inputs)
                if seen is None or not seen.fits(guess):
                    self._refuse_open(name, guess, inputs, where)
                guess, shape = seen, seen.shape
                self.observed[node.op_type] += 1
            elem = guess.elem or declared.elem
            if not elem:
                first = next((value for value in inputs if value is not None), None)
                elem = onnx.TensorProto.FLOAT if first is None else first.elem
                self.guessed[node.op_type] += 1
            value = make_value(name, elem, shape, f"{where}: its output {name!r}")
            value.step, value.port = len(self.steps), port
            outputs.append(value)
        return tuple(outputs)

    def _inferred(
        self, node: Any, domain: str, inputs: Sequence[Value | None], where: str
    ) -> dict[str, Guess]:
        schema = schema_of(node.op_type, domain, self._opsets.get(domain, 0))
        if schema is None:
            return contrib_outputs(node, domain, inputs)
        known = [value for value in inputs if value is not None]
        types = {name: value.type_proto for name, value in zip(node.input, inputs, strict=True) if value}
        arrays = {name: value.array for name, value in zip(node.input, inputs, strict=True) if value}
        values = {
            name: onnx.numpy_helper.from_array(array, name)
            for name, array in arrays.items()
            if array is not None
        }
        try:
            return infer(node, schema, types, values, self.model.opset_import, self.model.ir_version)
        except (onnx.shape_inference.InferenceError, onnx.checker.ValidationError, RuntimeError) as error:
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
            f"{where}: the shape of its output {name!r} is unknown{why}: give it as the shape '{name}={shape}'",
            option="--shape",
        )

    # -- steps -----------------------------------------------------------------------------------------------

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
            work = flops(op) if domain == "" else contrib_flops(op, domain)
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


def _tensors_alone(node: Any) -> str:
    """What to do about an output that is no tensor."""
    if node.op_type == "ZipMap":  # what skl2onnx and others put behind the probabilities of a classifier
        return (
            "only tensors can be placed: convert the model without it (skl2onnx: options={'zipmap': False})"
        )
    wanted = [name for name in node.input if name]
    return f"only tensors can be placed: cut the model before it (onnx.utils.extract_model, output_names={wanted})"


def _domain(name: str) -> str:
    return "" if name == "ai.onnx" else name
