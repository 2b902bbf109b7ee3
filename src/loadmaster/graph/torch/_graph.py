"""The operator graph of an exported model: forward ops, and for training a loss and the backward twin of every op.

A backward op is called like its forward twin with ``/backward`` behind it, and shares its device. The gradient of a
value comes from the last op that reads the value: what several readers in one stage send back is added up there, so it
crosses each boundary once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch import fx

from loadmaster.errors import InputError
from loadmaster.graph._builder import GraphBuilder
from loadmaster.graph._network import Network
from loadmaster.graph.torch._nodes import output_tensors, read_nodes, tensor_bytes, viewed

if TYPE_CHECKING:
    from loadmaster.graph.torch._capture import Capture

__all__ = ["GRANULARITIES", "LOSS", "RESULT", "TIES", "network_of"]

GRANULARITIES = ("layer", "op")
TIES = ("replicate", "together")
LOSS = "loss"
"""The op that stands for the loss, behind the outputs of a model in training."""
RESULT = "result"
"""The boundary op that stands for the user who wants the results, at the end of the pipeline."""
BACKWARD = "/backward"


def network_of(capture: Capture, granularity: str, ties: str) -> Network:
    """See :meth:`Capture.network`. Complexity: O(ops + edges)."""
    if granularity not in GRANULARITIES:
        raise InputError(
            f"the granularity {granularity!r} is unknown: choose one of {', '.join(GRANULARITIES)}"
        )
    if ties not in TIES:
        raise InputError(f"ties={ties!r} is unknown: choose one of {', '.join(TIES)}")
    made = _Assembly(capture)
    made.forward()
    if capture.training:
        made.backward()
    return made.network(granularity, ties)


class _Assembly:
    def __init__(self, capture: Capture) -> None:
        self.capture = capture
        self.builder = GraphBuilder(capture.name)
        self.op_of: dict[str, int] = {}
        """fx node -> op of the graph, inputs included."""
        self.backward_of: dict[str, int] = {}
        self.pairs: list[list[int]] = []
        self.loss = -1
        weights = [0.0] * len(capture.nodes)
        for parameter in capture.parameters:
            seen: set[str] = set()
            for v in parameter.readers:
                if capture.layers[v] not in seen:  # once per layer; another layer may have to keep a replica
                    weights[v] += parameter.bytes
                    seen.add(capture.layers[v])
        self.weights = weights

    def forward(self) -> None:
        capture, builder = self.capture, self.builder
        for node in capture.inputs:
            shapes = [tuple(tensor.shape) for tensor in output_tensors(node)]
            self.op_of[node.name] = builder.op(f"{node.name}", "Parameter", shapes=shapes, boundary=True)
        for v, node in enumerate(capture.nodes):
            made = output_tensors(node)
            read = sum(self._bytes(u) for u in read_nodes(node) if u.name in self.op_of)
            written = sum(map(tensor_bytes, made))
            self.op_of[node.name] = builder.op(
                capture.names[v],
                _op_type(node),
                shapes=[tuple(tensor.shape) for tensor in made],
                flops=capture.work.forward[v],
                bytes_read=read,
                bytes_written=0.0 if viewed(node) else written,
                param_bytes=self.weights[v],
            )
        ends = [u for u in read_nodes(capture.output) if u.name in self.op_of]
        if capture.training:
            self.loss = builder.op(LOSS, "Loss", bytes_read=sum(self._bytes(u) for u in ends))
        result = builder.op(RESULT, "Result", boundary=True)
        for node in (*capture.inputs, *capture.nodes):
            readers = [self.op_of[user.name] for user in node.users if user.name in self.op_of]
            if node in ends:
                readers += [self.loss, result] if capture.training else [result]
            if readers:
                builder.tensor(self.op_of[node.name], bytes=self._bytes(node), consumers=readers)

    def backward(self) -> None:
        """Backward ops in the opposite order; see the module's docstring for what they read."""
        capture, builder, has = self.capture, self.builder, self.capture.work.has_gradient
        end = builder.op(f"{LOSS}{BACKWARD}", "LossBackward", backward=True)
        builder.tensor(self.loss, consumers=[end])
        self.pairs.append([self.loss, end])
        for v in reversed(range(len(capture.nodes))):
            if not has[v]:
                continue
            node = capture.nodes[v]
            op = builder.op(
                f"{capture.names[v]}{BACKWARD}",
                f"{_op_type(node)}_backward",
                flops=capture.work.backward[v],
                bytes_read=2.0 * self._bytes(node),
                bytes_written=sum(self._bytes(u) for u in read_nodes(node) if u.name in self.op_of),
                backward=True,
            )
            self.backward_of[node.name] = op
            self.pairs.append([self.op_of[node.name], op])
        outputs = set(read_nodes(capture.output))
        for v in reversed(range(len(capture.nodes))):
            node = capture.nodes[v]
            if node.name not in self.backward_of:
                continue
            readers = [user.name for user in node.users if user.name in self.backward_of]
            if readers:
                last = max(readers, key=lambda name: capture.index[name])
                source = self.backward_of[last]
            elif node in outputs:
                source = end
            else:
                continue
            builder.tensor(source, bytes=self._bytes(node), consumers=[self.backward_of[node.name]])

    def network(self, granularity: str, ties: str) -> Network:
        capture = self.capture
        place = [self.op_of[node.name] for node in capture.nodes]
        groups = [[place[v] for v in group] for group in capture.together] + self.pairs
        if granularity == "layer":
            layers: dict[str, list[int]] = {}
            for v, layer in enumerate(capture.layers):
                layers.setdefault(layer, []).append(place[v])
            groups += layers.values()
        if capture.training:  # no stage is a loss alone: the engine computes it where the last result is
            ends = [capture.index[u.name] for u in read_nodes(capture.output) if u.name in capture.index]
            groups += [[self.loss, place[max(ends)]]] if ends else []
        if ties == "together":
            groups += [
                [place[v] for v in parameter.readers] for parameter in capture.parameters if parameter.trained
            ]
        return Network(
            self.builder.build(),
            colocation=tuple(tuple(group) for group in groups if len(group) > 1),
            notes=_notes(capture),
        )

    def _bytes(self, node: fx.Node) -> float:
        return float(sum(map(tensor_bytes, output_tensors(node))))


def _op_type(node: fx.Node) -> str:
    name = getattr(node.target, "__name__", str(node.target))
    text = str(node.target) if hasattr(node.target, "_schema") else name
    return text.removeprefix("aten.").partition(".")[0]


def _notes(capture: Capture) -> tuple[str, ...]:
    tied = [
        parameter.name for parameter in capture.parameters if parameter.trained and len(parameter.readers) > 1
    ]
    if not capture.training or not tied:
        return ()
    return (f"{len(tied)} parameters are read by several ops",)
