"""What every op takes on this machine, forward and backward, and what it keeps in between.

Each op runs alone, on the values that it reads in a real pass, with a small autograd graph of its own. Gradients of
weights add up from run to run, as they do over the microbatches of a step: made anew each time, in memory fresh from
the system, they would let layers with large weights look slow. Time is this process's CPU time (one thread), which a
busy machine disturbs little, or CUDA's events on a GPU. The sum over a stage is
near what the stage takes; its share of all stages, which is what a split needs, is nearer still.
:func:`measure_stages` measures whole stages, and :func:`corrected` brings op times into agreement with them.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch.utils import _pytree as pytree

from loadmaster.arrays import FloatArray
from loadmaster.errors import InputError
from loadmaster.graph import Graph
from loadmaster.graph.torch import Alone, Capture, alone, differentiable, gradients_of, run_alone
from loadmaster.runtime.torch._cut import Cut
from loadmaster.runtime.torch._drawing import Clock
from loadmaster.runtime.torch._modules import stage_module
from loadmaster.runtime.torch._pipeline import unflattened

__all__ = ["OpCosts", "StageTime", "corrected", "measure_ops", "measure_stages"]

LEAST = 5
"""Runs of an op, at least,"""
MOST = 200
"""at most,"""
ENOUGH = 4e-3
"""and seconds after which there are enough of them."""
QUANTILE = 0.25
"""Of the runs: what an op takes when little disturbs it."""


@dataclass(frozen=True)
class OpCosts:
    """(ops of the capture,) seconds forward and backward, and bytes kept in between; seconds of the loss."""

    forward: FloatArray
    backward: FloatArray
    kept: FloatArray
    loss: tuple[float, float] = (0.0, 0.0)
    loss_kept: float = 0.0
    """Bytes that the loss keeps: with a large vocabulary more than the rest of its stage."""

    def time(self, capture: Capture, graph: Graph) -> FloatArray:
        """(ops of the graph,) seconds."""
        found = np.zeros(graph.n)
        for v, name in enumerate(capture.names):
            found[graph.index[name]] = self.forward[v]
            twin = graph.index.get(f"{name}/backward")
            if twin is not None:
                found[twin] = self.backward[v]
        if capture.training:
            found[graph.index["loss"]], found[graph.index["loss/backward"]] = self.loss
        return found

    def kept_by(self, capture: Capture, graph: Graph) -> FloatArray:
        """(ops of the graph,) bytes kept from the forward to the backward pass."""
        found = np.zeros(graph.n)
        for v, name in enumerate(capture.names):
            found[graph.index[name]] = self.kept[v]
        if capture.training:
            found[graph.index["loss"]] = self.loss_kept
        return found


@dataclass(frozen=True)
class StageTime:
    """What a whole stage takes, per microbatch; the last one with the loss."""

    forward: float
    backward: float


def measure_ops(
    capture: Capture,
    *,
    loss: Callable[..., Any] | None = None,
    target: Any = None,
    device: Any = None,
    on_progress: Callable[[int, int], None] = lambda done, every: None,
) -> OpCosts:
    """Measure every op of a captured model, on ``device`` (by default where its weights are).

    Raises
    ------
    InputError : there is no example to run, no such device, or the loss is none.
    """
    if capture.example is None:
        raise InputError(f"{capture.name}: there is no example of its inputs, so its ops cannot be measured")
    where = _home(capture) if device is None else _usable(device)
    clock = _Timer(where)
    inputs = iter(capture.example.tensors())
    value: dict[str, Any] = {}
    gradient: dict[str, Any] = {}
    moved: dict[int, Any] = {}
    weights = _Storages()
    seen = _Storages()
    count = len(capture.nodes)
    forward, backward, kept = np.zeros(count), np.zeros(count), np.zeros(count)
    with _one_thread(), torch.set_grad_enabled(capture.training):
        for node in capture.module.graph.nodes:
            if node.op == "placeholder":
                known = isinstance(node.meta.get("val"), torch.Tensor)
                value[node.name] = next(inputs).to(where) if known else node.meta.get("val")
            elif node.op == "get_attr":
                tensor = _attribute(capture.module, str(node.target))
                if isinstance(tensor, torch.Tensor):
                    tensor = moved.setdefault(
                        id(tensor), tensor.detach().to(where).requires_grad_(tensor.requires_grad)
                    )
                    gradient[node.name] = capture.training and tensor.requires_grad
                    weights.add(tensor)
                value[node.name] = tensor
            elif node.name in capture.index:
                v = capture.index[node.name]
                one = alone(capture, node, value, gradient)
                with _refused(f"{capture.name}: the op {capture.names[v]!r} fails on the example"):
                    result, kept[v] = _keeping(one, weights, seen)
                gradient[node.name] = gradients_of(result)
                forward[v], backward[v] = clock.measure(one)
                value[node.name] = pytree.tree_map_only(torch.Tensor, lambda part: part.detach(), result)
                on_progress(v + 1, count)
        taken, loss_kept = (0.0, 0.0), 0.0
        if loss is not None:
            one = _loss_alone(capture, value, gradient, loss, target)
            _check_loss(capture, one)
            _, loss_kept = _keeping(one, weights, seen)
            taken = clock.measure(one)
    return OpCosts(forward, backward, kept, taken, loss_kept)


def _loss_alone(
    capture: Capture, value: dict[str, Any], gradient: dict[str, Any], loss: Callable[..., Any], target: Any
) -> Alone:
    nodes = [leaf for leaf in capture.output.args[0] if isinstance(leaf, torch.fx.Node)]
    leaves = [value[node.name].detach().requires_grad_(bool(gradient.get(node.name))) for node in nodes]

    def prepare() -> Any:
        return unflattened(capture, [leaf.clone() for leaf in leaves], joined=False)

    def run(result: Any) -> Any:
        return loss(result) if target is None else loss(result, target)

    return Alone(prepare, run, tuple(leaf for leaf in leaves if leaf.requires_grad))


def _check_loss(capture: Capture, one: Alone) -> None:
    """A loss is the user's own, and may be anything."""
    with _refused(f"{capture.name}: the loss fails on the model's result"):
        found = one.run(one.prepare())
    if not isinstance(found, torch.Tensor) or found.numel() != 1:
        what = f"{tuple(found.shape)}" if isinstance(found, torch.Tensor) else f"a {type(found).__name__}"
        raise InputError(f"{capture.name}: the loss must be a tensor with one element, not {what}")


def _usable(device: Any) -> Any:
    """A device of PyTorch that is here."""
    with _refused(f"PyTorch has no device {str(device)[:80]!r} here that ops can run on"):
        return torch.ones(1, device=device).cpu().to(device).device


@contextmanager
def _refused(what: str) -> Iterator[None]:
    """Whatever the user's own code or values make PyTorch raise, as one sentence."""
    try:
        yield
    except (Exception, SystemExit) as error:
        said = " ".join(f"{type(error).__name__}: {error}"[:300].split())
        raise InputError(f"{what} ({said})") from None


def _home(capture: Capture) -> Any:
    return next((parameter.tensor.device for parameter in capture.parameters), torch.device("cpu"))


def _attribute(module: Any, path: str) -> Any:
    for part in path.split("."):
        module = getattr(module, part)
    return module


class _Storages:
    """Memory that was counted; what it belongs to is kept alive, so that an address means one thing."""

    def __init__(self) -> None:
        self.known: dict[int, Any] = {}

    def add(self, tensor: Any) -> bool:
        """Whether a tensor's memory is new here."""
        if tensor in self:
            return False
        self.known[_address(tensor)] = tensor.untyped_storage()
        return True

    def __contains__(self, tensor: Any) -> bool:
        return _address(tensor) in self.known


def _address(tensor: Any) -> int:
    """Of a tensor's memory; of the tensor itself where torch shows none, as inside ``torch.cond``."""
    try:
        return int(tensor.untyped_storage().data_ptr())
    except RuntimeError:
        return id(tensor)


def _keeping(one: Alone, weights: _Storages, seen: _Storages) -> tuple[Any, float]:
    """Run an op; its result, and the bytes of memory that autograd keeps of it and that nobody kept before."""
    kept = 0.0

    def pack(tensor: Any) -> Any:
        nonlocal kept
        if tensor not in weights and seen.add(tensor):
            kept += tensor.untyped_storage().nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        result, _ = run_alone(one)
    return result, kept


class _Timer:
    """CPU time of this process, or CUDA's own clock."""

    def __init__(self, device: Any) -> None:
        self.cuda = device.type == "cuda"

    def measure(self, one: Alone) -> tuple[float, float]:
        """Seconds of an op forward and backward: a low quantile of several runs."""
        ahead: list[float] = []
        back: list[float] = []
        self.once(one)
        while len(ahead) < LEAST or (sum(ahead) + sum(back) < ENOUGH and len(ahead) < MOST):
            seconds = self.once(one)
            ahead.append(seconds[0])
            back.append(seconds[1])
        for leaf in one.weights:
            leaf.grad = None
        return _low(ahead), _low(back)

    def once(self, one: Alone) -> tuple[float, float]:
        """Seconds of one run, forward and backward; gradients of weights are added to those of earlier runs."""
        arguments = one.prepare()
        result, ahead = self._timed(lambda: one.run(arguments))
        made, back = differentiable(result), 0.0
        if made:
            grown = [torch.ones_like(part) for part in made]
            _, back = self._timed(lambda: torch.autograd.backward(made, grown))
        kept = {id(leaf) for leaf in one.weights}
        for leaf in one.leaves:
            if id(leaf) not in kept:
                leaf.grad = None
        return ahead, back

    def _timed(self, call: Callable[[], Any]) -> tuple[Any, float]:
        if self.cuda:
            begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            begin.record()
            found = call()
            end.record()
            torch.cuda.synchronize()
            return found, begin.elapsed_time(end) / 1e3
        began = time.process_time()
        found = call()
        return found, time.process_time() - began


def _low(seconds: list[float]) -> float:
    return float(np.quantile(seconds, QUANTILE)) if seconds else 0.0


@contextmanager
def _one_thread() -> Iterator[None]:
    """As torchrun starts ranks: each has one thread, unless its user says otherwise."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def measure_stages(
    capture: Capture,
    cut: Cut,
    *,
    loss: Callable[..., Any] | None = None,
    target: Any = None,
    device: Any = None,
    repeats: int = 5,
) -> list[StageTime]:
    """What each stage takes as a whole, in this process, one after another. Weights, buffers and gradients stay."""
    if capture.example is None:
        raise InputError(
            f"{capture.name}: there is no example of its inputs, so its stages cannot be measured"
        )
    where = _home(capture) if device is None else _usable(device)
    timer = _Timer(where)
    given = [tensor.to(where) for tensor in capture.example.tensors()]
    found: list[StageTime] = []
    with _one_thread(), torch.set_grad_enabled(capture.training):
        for stage in range(cut.count):
            module = stage_module(capture, cut, stage, Clock(0, 1), copied=True).to(where)
            one = _stage_alone(module, capture, cut, stage, given, loss, target)
            runs = [timer.once(one) for _ in range(repeats + 1)][1:]
            found.append(StageTime(_low([run[0] for run in runs]), _low([run[1] for run in runs])))
            made = module(*given)
            given = [part.detach() for part in made]
    return found


def _stage_alone(
    module: Any, capture: Capture, cut: Cut, stage: int, given: list[Any], loss: Any, target: Any
) -> Alone:
    leaves = [
        part.detach().requires_grad_(value.has_gradient)
        for part, value in zip(given, cut.boundaries[stage], strict=True)
    ]

    def run(arguments: list[Any]) -> Any:
        made = module(*arguments)
        if stage < cut.count - 1 or loss is None:
            return made
        result = unflattened(capture, made, joined=False)
        return loss(result) if target is None else loss(result, target)

    weights = tuple(module.parameters())
    every = (*(leaf for leaf in leaves if leaf.requires_grad), *weights)
    return Alone(lambda: leaves, run, every, weights)


def corrected(costs: OpCosts, cut: Cut, measured: Sequence[StageTime]) -> OpCosts:
    """Op times scaled, stage by stage and direction by direction, so that they add up to what the stages took."""
    stage_of = np.array(cut.stage_of)
    forward, backward, loss = costs.forward.copy(), costs.backward.copy(), costs.loss
    for stage, taken in enumerate(measured):
        mine = stage_of == stage
        last = stage == cut.count - 1
        for array, number, seconds in ((forward, 0, taken.forward), (backward, 1, taken.backward)):
            total = float(array[mine].sum()) + (loss[number] if last else 0.0)
            if total > 0 and seconds > 0:
                array[mine] *= seconds / total
                if last:
                    scaled = list(loss)
                    scaled[number] *= seconds / total
                    loss = (scaled[0], scaled[1])
    return replace(costs, forward=forward, backward=backward, loss=loss)
