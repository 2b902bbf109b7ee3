"""An ONNX model as one flat list of nodes, each with the op of the graph that it is, and submodels cut from it.

The reader of graphs leaves out what is the same in every run. Here such nodes stay, and go with every submodel that
reads them. ``Shape`` of what is computed is replaced by its value, so that no submodel waits for a tensor of which it
needs the sizes alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from loadmaster.errors import InputError, RunError
from loadmaster.graph import Given, Network, draw_input, length_of, load_onnx
from loadmaster.graph.onnx import whole_onnx
from loadmaster.runtime._pieces import DATA, Piece, homes
from loadmaster.runtime.onnxruntime._library import one_line, onnxruntime, session

__all__ = ["FlatModel", "Submodel"]

PASSED_ON = ("Cast", "Reshape", "Squeeze", "Unsqueeze", "Identity", "Flatten")
"""Ops that pass on the whole numbers that they read."""


@dataclass
class Submodel:
    """A piece as a model: names of the tensors that it reads, with the number of the piece that makes each (None: an
    input of the whole model), and of those that it gives."""

    piece: Piece
    content: bytes
    inputs: list[tuple[int | None, str]] = field(default_factory=list)
    outputs: list[str] = field(default_factory=list)


class FlatModel:
    """A model read from its file, with its weights.

    Attributes
    ----------
    network : what the reader makes of it.
    inputs : name, shape and type of every input.
    outputs : the tensors that are the model's outputs.
    values : inputs of the file that are the same in every run, and constants here.
    nodes : in an order in which they can run.
    op_of : tensor -> the op that makes it; tensors that are the same in every run are not in it.
    """

    def __init__(self, path: str | Path, shapes: Mapping[str, Sequence[int]] | Iterable[str] = ()) -> None:
        import onnx

        self.path = str(path)
        given = Given(shapes)
        self.network: Network = load_onnx(path, given)
        graph = self.network.graph
        self.op_of = {
            name: graph.names[v] for v, names in enumerate(self.network.ports) for name in names if name
        }
        self._shape: dict[str, tuple[int, ...]] = {}
        for v, names in enumerate(self.network.ports):
            self._shape.update(zip(names, graph.output_shapes[v], strict=False))
        self._whole, self.values = whole_onnx(self.path, given)
        self._constants: dict[str, Any] = {}
        stored = {tensor.name for tensor in self._whole.graph.initializer}
        stored |= {tensor.values.name for tensor in self._whole.graph.sparse_initializer}
        ports = [info for info in self._whole.graph.input if info.name not in stored]
        self.inputs: list[tuple[str, tuple[int, ...], np.dtype[Any]]] = []
        for info, v in zip(ports, self.network.inputs, strict=True):
            shape = graph.output_shapes[v][0]
            kind = np.dtype(onnx.helper.tensor_dtype_to_np_dtype(info.type.tensor_type.elem_type))
            if kind.kind not in "biuf":
                raise InputError(f"{path}: input {info.name!r} holds {kind}: ONNX Runtime is run on numbers")
            self.inputs.append((info.name, shape, kind))
            self._shape[info.name] = shape
        self._given = {name for name, _, _ in self.inputs}
        self.nodes: list[Any] = []
        self._alias: dict[str, str] = {}
        self._flatten(self._whole.graph)
        self.outputs = [self._alias.get(info.name, info.name) for info in self._whole.graph.output]
        self._maker = {name: n for n, node in enumerate(self.nodes) for name in node.output if name}
        self._types = self._typed()

    # -- one list of nodes -----------------------------------------------------------------------------------

    def _flatten(self, graph: Any) -> None:
        import onnx

        self._constants.update((tensor.name, tensor) for tensor in graph.initializer)
        self._constants.update((tensor.values.name, tensor) for tensor in graph.sparse_initializer)
        for original in graph.node:
            node = _renamed(original, self._alias)
            makes_op = any(name in self.op_of for name in node.output)
            if node.op_type == "If" and node.domain in ("", "ai.onnx") and not makes_op:
                self._branch(node)
                continue
            sizes = self._shape.get(node.input[0]) if node.op_type in ("Shape", "Size") else None
            if sizes is not None and (node.input[0] in self.op_of or node.input[0] in self._given):
                value = np.array(int(np.prod(sizes)) if node.op_type == "Size" else sizes, np.int64)
                if node.op_type == "Shape":
                    ends = {attribute.name: attribute.i for attribute in node.attribute}
                    value = value[ends.get("start") : ends.get("end")]
                self._constants[node.output[0]] = onnx.numpy_helper.from_array(value, node.output[0])
                continue
            self.nodes.append(node)

    def _branch(self, node: Any) -> None:
        """The nodes of the branch that a constant condition takes, in place of the If."""
        import onnx

        name = node.input[0]
        made, stored = self._needed([name], set())
        result = onnx.ValueInfoProto(name=name)
        condition = session(self._model([self.nodes[n] for n in made], [], [result], stored), None).run(
            None, {}
        )
        wanted = "then_branch" if np.asarray(condition[0]).item() else "else_branch"
        branch = next(attribute.g for attribute in node.attribute if attribute.name == wanted)
        self._flatten(branch)
        for outer, inner in zip(node.output, branch.output, strict=True):
            self._alias[outer] = self._alias.get(inner.name, inner.name)

    def _needed(self, names: Iterable[str], ops: set[str]) -> tuple[list[int], list[str]]:
        """Nodes and stored constants that tensors need, as far as they are constant or made by ``ops``."""
        maker = {name: n for n, node in enumerate(self.nodes) for name in node.output if name}
        return self._reach(names, ops, maker)

    def _reach(
        self, names: Iterable[str], ops: set[str], maker: Mapping[str, int]
    ) -> tuple[list[int], list[str]]:
        nodes: set[int] = set()
        stored: dict[str, None] = {}
        left, inside = list(names), {*ops, None}
        while left:
            name = left.pop()
            if name in self._constants:
                stored[name] = None
                continue
            n = maker.get(name)
            if n is None or n in nodes or self.op_of.get(name) not in inside:
                continue
            nodes.add(n)
            left += _reads(self.nodes[n])
        return sorted(nodes), list(stored)

    # -- submodels -------------------------------------------------------------------------------------------

    def _model(
        self, nodes: Sequence[Any], inputs: Sequence[Any], outputs: Sequence[Any], stored: Iterable[str]
    ) -> bytes:
        import onnx

        graph = onnx.GraphProto(name=self._whole.graph.name or "submodel")
        graph.node.extend(nodes)
        graph.input.extend(inputs)
        graph.output.extend(outputs)
        for name in stored:
            tensor = self._constants[name]
            part = graph.initializer if hasattr(tensor, "data_type") else graph.sparse_initializer
            part.append(tensor)
        model = onnx.ModelProto(ir_version=self._whole.ir_version, graph=graph)
        model.opset_import.extend(self._whole.opset_import)
        try:
            return bytes(model.SerializeToString())
        except Exception as error:  # protobuf's limit of 2 GB
            raise RunError(
                f"{self.path}: a submodel of {graph.ByteSize() / 1e9:.1f} GB is more than ONNX can hold in one "
                f"message ({one_line(error)}): place it on more devices"
            ) from None

    def _typed(self) -> dict[str, int]:
        """The element type of every tensor that an op makes, as ONNX Runtime itself infers it."""
        import onnx

        names = [name for node in self.nodes for name in node.output if name in self.op_of]
        made, stored = self._reach([*names, *self.outputs], set(self.op_of.values()), self._maker)
        outputs = [onnx.ValueInfoProto(name=name) for name in names]
        inputs = [
            self._info(name, onnx.helper.np_dtype_to_tensor_dtype(kind)) for name, _, kind in self.inputs
        ]
        content = self._model([self.nodes[n] for n in made], inputs, outputs, stored)
        levels = onnxruntime("running a model by ONNX Runtime").GraphOptimizationLevel
        off = {"graph_optimization_level": levels.ORT_DISABLE_ALL}
        try:
            found = session(content, None, entries=off).get_outputs() if names else []
        except Exception as error:
            raise InputError(
                f"{self.path}: ONNX Runtime cannot load the model ({one_line(error)}): it can be placed and exported, "
                "not run"
            ) from None
        return {port.name: TYPES[port.type] for port in found if port.type in TYPES}

    def _info(self, name: str, kind: int) -> Any:
        import onnx

        return onnx.helper.make_tensor_value_info(name, kind, self._shape[name])

    def cut(self, pieces: Sequence[Piece]) -> list[Submodel]:
        """The submodels, in the order of the pieces.

        Raises
        ------
        RunError : an op is in no piece.
        """
        import onnx

        home = homes(pieces)
        first = {op: min(home[op, piece.device] for piece in pieces) for op, _ in home}
        for op, kind in zip(self.network.graph.names, self.network.graph.op_types, strict=True):
            if kind not in DATA and op not in first:
                raise RunError(f"the placement leaves out op {op!r}")
        kinds = {name: onnx.helper.np_dtype_to_tensor_dtype(kind) for name, _, kind in self.inputs}
        kinds |= self._types
        made: list[tuple[list[int], list[str]]] = []
        inputs: list[list[tuple[int | None, str]]] = []
        wanted: list[dict[str, None]] = [{} for _ in pieces]
        makes: dict[str, list[str]] = {}
        for tensor, op in self.op_of.items():
            if tensor in self._maker:
                makes.setdefault(op, []).append(tensor)
        for name in self.outputs:
            if name not in self._given:
                wanted[first[self.op_of[name]] if name in self.op_of else 0][name] = None
        for number, piece in enumerate(pieces):
            ops = set(piece.ops)
            roots = [tensor for op in piece.ops for tensor in makes.get(op, ())]
            constant = [name for name in wanted[number] if name not in self.op_of]
            nodes, stored = self._reach([*roots, *constant], ops, self._maker)
            own = {name for n in nodes for name in self.nodes[n].output}
            entering: dict[str, int | None] = {}
            for n in nodes:
                for name in _reads(self.nodes[n]):
                    if name in self._given:
                        entering[name] = None
                    elif name in self.op_of and name not in own:
                        entering[name] = home[self.op_of[name], piece.device]
            made.append((nodes, stored))
            inputs.append([(source, name) for name, source in entering.items()])
        for number in range(len(pieces)):
            for source, name in inputs[number]:
                if source is not None:
                    wanted[source][name] = None
        return [
            Submodel(
                piece,
                self._model(
                    [self.nodes[n] for n in made[number][0]],
                    [self._info(name, kinds[name]) for _, name in inputs[number]],
                    [onnx.ValueInfoProto(name=name) for name in wanted[number]],
                    made[number][1],
                ),
                inputs[number],
                list(wanted[number]),
            )
            for number, piece in enumerate(pieces)
        ]

    def whole(self, device: str) -> Submodel:
        """The model in one piece: with the sizes that were given, and without the branches that are not taken."""
        graph = self.network.graph
        ops = [op for op, kind in zip(graph.names, graph.op_types, strict=True) if kind not in DATA]
        return self.cut([Piece(device, tuple(ops))])[0]

    def pieces(self, placement: Mapping[str, str]) -> list[Piece]:
        """The ops of each device between two changes of the device, in an order in which they can run."""
        graph = self.network.graph
        level: dict[int, int] = {}
        found: dict[tuple[int, str], list[str]] = {}
        ptr, sources = graph.predecessors
        for v in graph.topological_order.tolist():
            if graph.op_types[v] in DATA:
                continue
            name = graph.names[v]
            if name not in placement:
                raise RunError(f"the placement leaves out op {name!r}")
            level[v] = max(
                (
                    level[u] + (placement[graph.names[u]] != placement[name])
                    for u in sources[ptr[v] : ptr[v + 1]].tolist()
                    if u in level
                ),
                default=0,
            )
            found.setdefault((level[v], placement[name]), []).append(name)
        return [Piece(device, tuple(found[at, device])) for at, device in sorted(found)]

    # -- inputs ----------------------------------------------------------------------------------------------

    def draw(self, seed: int) -> list[npt.NDArray[Any]]:
        """Random inputs: normal numbers, or rows of the tables that whole numbers look up in."""
        shapes = [shape for _, shape, _ in self.inputs]
        return [
            draw_input(
                shape,
                kind,
                seed=seed,
                at=at,
                length=length_of(at, shapes),
                rows=self._rows(name) if kind.kind in "iu" else None,
            )
            for at, (name, shape, kind) in enumerate(self.inputs)
        ]

    def _rows(self, name: str) -> int | None:
        """Rows of the smallest table that an input indexes; None where it indexes none (a mask, say)."""
        names, found = {name}, []
        for node in self.nodes:
            if node.op_type == "Gather" and node.input[1] in names:
                table = self._constants.get(node.input[0])
                axis = next((a.i for a in node.attribute if a.name == "axis"), 0)
                shape = tuple(table.dims) if table is not None else self._shape.get(node.input[0], ())
                if shape:
                    found.append(int(shape[axis]))
            elif node.op_type in PASSED_ON and node.input[0] in names:
                names.add(node.output[0])
        return min(found, default=None)


TYPES = {
    "tensor(float)": 1,
    "tensor(uint8)": 2,
    "tensor(int8)": 3,
    "tensor(uint16)": 4,
    "tensor(int16)": 5,
    "tensor(int32)": 6,
    "tensor(int64)": 7,
    "tensor(string)": 8,
    "tensor(bool)": 9,
    "tensor(float16)": 10,
    "tensor(double)": 11,
    "tensor(uint32)": 12,
    "tensor(uint64)": 13,
    "tensor(bfloat16)": 16,
}
"""ONNX Runtime's name of a type -> ONNX's number."""


def _reads(node: Any) -> Iterator[str]:
    """What a node reads, and what the graphs inside it read (what they make themselves is nowhere else)."""
    yield from (name for name in node.input if name)
    for attribute in node.attribute:
        for graph in (attribute.g, *attribute.graphs):
            yield from (info.name for info in graph.output)
            for inner in graph.node:
                yield from _reads(inner)


def _renamed(node: Any, alias: Mapping[str, str]) -> Any:
    """The node, reading other names where ``alias`` has some."""
    if alias.keys().isdisjoint(_reads(node)):
        return node
    fresh = type(node)()
    fresh.CopyFrom(node)
    _rename(fresh, alias)
    return fresh


def _rename(node: Any, alias: Mapping[str, str]) -> None:
    for at, name in enumerate(node.input):
        node.input[at] = alias.get(name, name)
    for attribute in node.attribute:
        for graph in (attribute.g, *attribute.graphs):
            for inner in graph.node:
                _rename(inner, alias)
