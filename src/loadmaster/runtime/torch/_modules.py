"""One ``GraphModule`` per stage, with the parameters of the model under their own names."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import torch
from torch import fx, nn

from loadmaster.graph.torch import Capture, is_random
from loadmaster.runtime.torch._cut import Cut, Value
from loadmaster.runtime.torch._drawing import Clock, draw

__all__ = ["random_ops", "stage_module"]


class _ContiguousGradient(torch.autograd.Function):  # type: ignore[misc]
    """The identity; its gradient is contiguous, which is what gloo and nccl can send."""

    @staticmethod
    def forward(context: Any, value: Any) -> Any:
        return value.view_as(value)

    @staticmethod
    def backward(context: Any, gradient: Any) -> Any:
        return gradient.contiguous()


def received(value: Any) -> Any:
    """A value from the stage before, whose gradient will be sent back."""
    return _ContiguousGradient.apply(value)


def random_ops(capture: Capture) -> list[str]:
    """Names of the ops that draw random numbers."""
    return [capture.names[v] for v, node in enumerate(capture.nodes) if is_random(node)]


def stage_module(
    capture: Capture, cut: Cut, stage: int, clock: Clock, *, copied: bool = False, shared: bool = False
) -> Any:
    """The ops of one stage as a module: it takes the values of its boundary and returns those of the next.

    The module's parameters are those of the captured model itself; or copies; or, ``shared``, parameters of its own on
    the same memory, with gradients of their own. In both cases buffers are copies.
    """
    graph, made = fx.Graph(), dict[fx.Node, fx.Node]()
    for value in cut.boundaries[stage]:
        made[value.node] = graph.placeholder(value.node.name)
    for value in cut.boundaries[stage]:
        if value.has_gradient:
            made[value.node] = graph.call_function(received, (made[value.node],))
    root = nn.Module()

    def source(node: fx.Node) -> fx.Node:
        if node not in made:
            assert node.op in ("get_attr", "placeholder"), f"{node.name} is not in stage {stage}"
            if node.op == "placeholder":  # a number or None, which was fixed when the model was exported
                return node.meta.get("val")
            _register(root, capture, str(node.target))
            made[node] = graph.get_attr(str(node.target))
        return made[node]

    for v, node in enumerate(capture.nodes):
        if cut.stage_of[v] != stage:
            continue
        if is_random(node):
            args, kwargs = fx.node.map_arg((node.args, dict(node.kwargs)), source)
            made[node] = graph.call_function(draw, (v, node.target, args, kwargs))
            continue
        if node.op == "call_module":
            _register(root, capture, str(node.target))
        made[node] = graph.node_copy(node, source)
    last = stage == cut.count - 1
    graph.output(tuple(_sent(graph, source(value.node), value, last) for value in cut.boundaries[stage + 1]))
    module = fx.GraphModule(root, graph, class_name=f"Stage{stage}")
    module.graph.lint()
    if copied or shared:
        own = {id(p): nn.Parameter(p.detach(), p.requires_grad) for p in module.parameters() if shared}
        module = copy.deepcopy(module, own)  # before the hook, which a GraphModule would not copy
    module.register_forward_pre_hook(clock.tick)
    return module


def _sent(graph: fx.Graph, node: fx.Node, value: Value, last: bool) -> fx.Node:
    if not last:
        return graph.call_function(torch.ops.aten.contiguous.default, (node,))
    if value.shape == ():  # microbatches are joined along the first axis, which a number does not have
        return graph.call_function(torch.ops.aten.view.default, (node, [1]))
    # The engine detaches results in place, which must not happen to a parameter.
    return graph.call_function(torch.ops.aten.alias.default, (node,)) if node.op == "get_attr" else node


def _register(root: Any, capture: Capture, name: str) -> None:
    """Put a tensor of the model into a stage, under its own name."""
    parts: Sequence[str] = name.split(".")
    owner, theirs = root, capture.module
    for part in parts[:-1]:
        if not hasattr(owner, part):
            owner.add_module(part, nn.Module())
        owner, theirs = getattr(owner, part), getattr(theirs, part)
    last = parts[-1]
    if hasattr(owner, last):
        return
    found = getattr(theirs, last)
    if isinstance(found, nn.Parameter):
        owner.register_parameter(last, found)
    elif isinstance(found, torch.Tensor):
        owner.register_buffer(last, found, persistent=name in capture.persistent)
    else:
        setattr(owner, last, found)
