"""Floating point operations by torch's own counter, op by op, on tensors that hold no data."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import fx
from torch.utils import _pytree as pytree
from torch.utils.flop_counter import FlopCounterMode

from loadmaster.graph.torch._nodes import mutated

if TYPE_CHECKING:
    from loadmaster.graph.torch._capture import Capture

__all__ = ["Alone", "Work", "alone", "differentiable", "gradients_of", "run_alone", "work_of"]


@dataclass(frozen=True)
class Work:
    """(ops,) each: flops of the forward and the backward pass, and whether the op's output has a gradient."""

    forward: tuple[float, ...]
    backward: tuple[float, ...]
    has_gradient: tuple[bool, ...]


@dataclass(frozen=True)
class Alone:
    """One op with inputs of its own: nothing leads from them to other ops."""

    prepare: Callable[[], Any]
    """Makes the arguments; what the op writes into is copied, anew for every run."""
    run: Callable[[Any], Any]
    """The op on arguments."""
    leaves: tuple[Any, ...]
    """Inputs that are to have a gradient."""
    weights: tuple[Any, ...] = ()
    """Those of them whose gradients add up over microbatches."""


def alone(capture: Capture, node: fx.Node, value: dict[str, Any], gradient: dict[str, Any]) -> Alone:
    """An op on the values of the nodes that it reads, detached; what it writes into is copied first.

    ``gradient`` says which of those values have a gradient.
    """
    written = {target.name for target in mutated(node)}
    leaves: dict[int, Any] = {}
    weights: list[Any] = []

    def one(found: Any, has: Any, copied: bool) -> Any:
        if not isinstance(found, torch.Tensor):
            return found
        if has:
            if id(found) not in leaves:
                leaves[id(found)] = found.detach().requires_grad_(True)
            found = leaves[id(found)]
        else:
            found = found.detach()
        return found.clone() if copied else found

    def given(source: fx.Node) -> Any:
        found, has = value[source.name], gradient.get(source.name, False)
        if isinstance(found, list | tuple):
            return type(found)(
                one(part, flag, False) for part, flag in zip(found, _spread(has, len(found)), strict=True)
            )
        made = one(found, has, source.name in written)
        if source.op == "get_attr" and has:
            weights.append(leaves[id(found)])
        return made

    target: Any = node.target
    if node.op == "call_module":
        target = getattr(capture.module, str(node.target))

    def prepare() -> Any:
        return fx.node.map_arg((node.args, dict(node.kwargs)), given)

    prepare()  # finds the leaves
    return Alone(
        prepare,
        lambda arguments: target(*arguments[0], **arguments[1]),
        tuple(leaves.values()),
        tuple(weights),
    )


def _spread(has: Any, count: int) -> list[Any]:
    return list(has) if isinstance(has, list | tuple) else [has] * count


def gradients_of(result: Any) -> Any:
    """Which tensors of a result have a gradient: a bool, or a list of them for a list of tensors."""
    if isinstance(result, list | tuple):
        return [isinstance(part, torch.Tensor) and part.requires_grad for part in result]
    return isinstance(result, torch.Tensor) and result.requires_grad


def run_alone(one: Alone) -> tuple[Any, list[Any]]:
    """Run an op; its result, and the tensors in it that have a gradient."""
    result = one.run(one.prepare())
    return result, differentiable(result)


def differentiable(result: Any) -> list[Any]:
    """The tensors of a result that have a gradient."""
    return [
        part for part in pytree.tree_leaves(result) if isinstance(part, torch.Tensor) and part.requires_grad
    ]


def work_of(capture: Capture) -> Work:
    """Count what every op does. Needs no memory for data: the tensors are fake. Linear in the number of ops."""
    from torch._subclasses.fake_tensor import FakeTensorMode

    fake = FakeTensorMode(
        allow_non_fake_inputs=True
    )  # its own: that of the export knows symbols, and is slow
    value: dict[str, Any] = {}
    gradient: dict[str, Any] = {}
    by_tensor: dict[int, Any] = {}
    forward, backward, has = [], [], []
    counter = FlopCounterMode(display=False)
    with warnings.catch_warnings(), fake, torch.set_grad_enabled(capture.training), counter:
        warnings.simplefilter("ignore")
        for node in capture.module.graph.nodes:
            if node.op == "placeholder":
                found = node.meta.get("val")
                known = isinstance(found, torch.Tensor)
                value[node.name] = (
                    torch.empty(tuple(found.shape), dtype=found.dtype, device=found.device)
                    if known
                    else found
                )
            elif node.op == "get_attr":
                value[node.name] = _faked(capture, node, fake, by_tensor)
                found = value[node.name]
                gradient[node.name] = (
                    isinstance(found, torch.Tensor) and found.requires_grad and capture.training
                )
            elif node.name in capture.index:
                before = counter.get_total_flops()
                result, made = run_alone(alone(capture, node, value, gradient))
                between = counter.get_total_flops()
                if made:
                    torch.autograd.backward(made, [torch.ones_like(part) for part in made])
                forward.append(float(between - before))
                backward.append(float(counter.get_total_flops() - between))
                has.append(bool(made))
                gradient[node.name] = gradients_of(result)
                value[node.name] = pytree.tree_map_only(torch.Tensor, lambda part: part.detach(), result)
    return Work(tuple(forward), tuple(backward), tuple(has))


def _faked(capture: Capture, node: fx.Node, fake: Any, known: dict[int, Any]) -> Any:
    from loadmaster.graph.torch._capture import attribute

    tensor = attribute(capture.module, str(node.target))
    if not isinstance(tensor, torch.Tensor):
        return tensor
    if id(tensor) not in known:
        known[id(tensor)] = fake.from_tensor(tensor)
    return known[id(tensor)]
