"""What single nodes of an exported graph do: which write into their inputs, which are views, which draw numbers."""

from __future__ import annotations

import operator
from collections.abc import Iterator
from typing import Any

import torch
from torch import fx

__all__ = [
    "is_op",
    "is_random",
    "mutated",
    "output_tensors",
    "read_nodes",
    "skipped",
    "tensor_bytes",
    "viewed",
]

SKIPPED = frozenset(["aten._assert_tensor_metadata", "aten._assert_scalar", "aten.sym_constrain_range"])
"""Checks of the example that an exported graph carries along; they compute nothing."""


def skipped(node: fx.Node) -> bool:
    """Whether a node only checks something and is left out."""
    return node.op == "call_function" and _base(node) in SKIPPED


def is_op(node: fx.Node) -> bool:
    """Whether a node is something to place."""
    return bool(node.op in ("call_function", "call_module", "call_method"))


def _base(node: fx.Node) -> str:
    name = str(node.target)
    return ".".join(name.split(".")[:2])


def _written(node: fx.Node) -> Iterator[tuple[Any, Any]]:
    """The schema's arguments of a node beside what is given for them."""
    schema = getattr(node.target, "_schema", None)
    if schema is None:
        return
    for position, argument in enumerate(schema.arguments):
        if position < len(node.args) and not argument.kwarg_only:
            yield argument, node.args[position]
        elif argument.name in node.kwargs:
            yield argument, node.kwargs[argument.name]


def _inside(value: Any) -> Iterator[fx.Node]:
    if isinstance(value, fx.Node):
        yield value
    elif isinstance(value, list | tuple):
        for part in value:
            yield from _inside(part)


def mutated(node: fx.Node) -> list[fx.Node]:
    """The inputs that a node writes into (``relu_``, ``add_``; the running statistics of a batch norm)."""
    found = [
        part
        for argument, value in _written(node)
        if argument.alias_info is not None and argument.alias_info.is_write
        for part in _inside(value)
    ]
    if _base(node) in (
        "aten.batch_norm",
        "aten.instance_norm",
    ):  # they write, though their schemas do not say so
        found += [part for value in node.args[3:5] for part in _inside(value)]
    return found


def viewed(node: fx.Node) -> list[fx.Node]:
    """The inputs whose memory an output of a node may share."""
    if node.target is operator.getitem:
        return [node.args[0]]
    schema = getattr(node.target, "_schema", None)
    if schema is None:
        return []
    may = torch.Tag.maybe_aliasing_or_mutating in getattr(node.target, "tags", ())
    return [
        part
        for argument, value in _written(node)
        if argument.alias_info is not None or may
        for part in _inside(value)
    ]


def is_random(node: fx.Node) -> bool:
    """Whether a node draws random numbers, as it is called: dropout with a rate of 0, or not in training, does not."""
    if torch.Tag.nondeterministic_seeded not in getattr(node.target, "tags", ()):
        return False
    given = {argument.name: value for argument, value in _written(node)}
    if given.get("train") is False or given.get("training") is False:
        return False
    base = _base(node)
    if base.endswith("dropout") or base.endswith("dropout_"):
        return given.get("p") != 0
    if base.startswith("aten.scaled_dot_product"):
        return bool(given.get("dropout_p", 0.0))
    if base in ("aten.lstm", "aten.gru", "aten.rnn_tanh", "aten.rnn_relu"):
        return bool(given.get("dropout", 0.0))
    return True


def read_nodes(node: fx.Node) -> list[fx.Node]:
    """The nodes that a node reads, each once."""
    return list(dict.fromkeys(node.all_input_nodes))


def output_tensors(node: fx.Node) -> list[Any]:
    """The (fake) tensors that a node makes; none for numbers."""
    value = node.meta.get("val")
    parts = value if isinstance(value, list | tuple) else [value]
    return [part for part in parts if isinstance(part, torch.Tensor)]


def tensor_bytes(tensor: Any) -> int:
    """Bytes of a tensor's elements; what crosses to another rank is contiguous."""
    return int(tensor.numel()) * int(tensor.element_size())
