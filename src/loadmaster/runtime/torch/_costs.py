"""What every op takes on this machine, forward and backward, and what it keeps in between.

On a CPU ops are timed where they are: in passes through the whole model, forward and backward, with a look at the
clock between two of them (backward by hooks of autograd, which goes back through ops in the order in which they came).
Alone, an op would have warm caches, memory that it has just freed, and a call of autograd to itself. The clock is this
process's CPU time (one thread), which a busy machine disturbs little. On a GPU each op runs alone, on the values that
it reads in a real pass, with a small autograd graph of its own, by CUDA's events. Gradients of weights add up from run
to run, as they do over the microbatches of a step. Whole stages: :mod:`loadmaster.runtime.torch._stage_costs`.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import fx
from torch.utils import _pytree as pytree

from loadmaster.arrays import FloatArray
from loadmaster.errors import InputError
from loadmaster.graph import Graph
from loadmaster.graph.torch import Alone, Capture, alone, differentiable, gradients_of, run_alone
from loadmaster.runtime.torch._allocation import keep_freed_memory
from loadmaster.runtime.torch._cut import cut_stages
from loadmaster.runtime.torch._drawing import Clock
from loadmaster.runtime.torch._modules import stage_module
from loadmaster.runtime.torch._pipeline import unflattened

__all__ = ["OpCosts", "measure_ops"]

LEAST = 5
"""Runs of an op, and passes through the model, at least,"""
MOST = 200
"""at most,"""
ENOUGH = 4e-3
"""and seconds after which there are enough runs,"""
PASSES = 3.0
"""or passes,"""
ROUNDS = 40
"""of which this many are enough in any case."""
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
                if clock.cuda:
                    forward[v], backward[v] = clock.measure(one)
                value[node.name] = pytree.tree_map_only(torch.Tensor, lambda part: part.detach(), result)
                on_progress(v + 1, 2 * count)
        taken, loss_kept = (0.0, 0.0), 0.0
        if loss is not None:
            one = _loss_alone(capture, value, gradient, loss, target)
            _check_loss(capture, one)
            _, loss_kept = _keeping(one, weights, seen)
            if clock.cuda:
                taken = clock.measure(one)
        if not clock.cuda:
            del value, gradient, seen
            forward, backward, taken = _measure_passes(capture, where, loss, target, on_progress)
    return OpCosts(forward, backward, kept, taken, loss_kept)


def _measure_passes(
    capture: Capture,
    where: Any,
    loss: Callable[..., Any] | None,
    target: Any,
    on_progress: Callable[[int, int], None],
) -> tuple[FloatArray, FloatArray, tuple[float, float]]:
    """Seconds of every op forward and backward, and of the loss: its median share of a pass, of an undisturbed pass."""
    whole = cut_stages(capture, [0] * len(capture.nodes), 1)
    clock = Clock(0, 1)
    module = _untied(stage_module(capture, whole, 0, clock, shared=True).to(where))
    assert capture.example is not None
    inputs = [tensor.to(where) for tensor in capture.example.tensors()]
    count = len(capture.nodes)
    taken: list[FloatArray] = []
    plain: list[FloatArray] = []
    began = time.perf_counter()
    while len(taken) <= LEAST or (time.perf_counter() - began < PASSES and len(taken) <= ROUNDS):
        taken.append(_pass(capture, module, clock, inputs, loss, target))  # the first ones are to warm up
        plain.append(_plain_pass(capture, module, inputs, loss, target))
        on_progress(count + min(count, count * len(taken) // (LEAST + 1)), 2 * count)
    found = _undisturbed(_without_looking(np.stack(taken[1:]), np.stack(plain[1:])))
    return found[:count, 0], found[:count, 1], (float(found[count, 0]), float(found[count, 1]))


def _untied(module: Any) -> Any:
    """The module with a copy of a weight for each op that reads it, as on stages of their own.

    The gradients of a tied weight are added up where the last of them is made: its op would be charged for the others,
    too.
    """
    users: dict[int, list[tuple[Any, Any]]] = {}
    weights: dict[int, Any] = {}
    for node in module.graph.find_nodes(op="get_attr"):
        tensor = _attribute(module, str(node.target))
        if isinstance(tensor, torch.Tensor) and tensor.requires_grad:
            weights[id(tensor)] = tensor
            users.setdefault(id(tensor), []).extend((user, node) for user in node.users)
    for number, (key, readers) in enumerate(users.items()):
        for copy, (user, node) in enumerate(readers[1:]):
            name = f"_untied_{number}_{copy}"
            module.register_parameter(name, torch.nn.Parameter(weights[key].detach().clone()))
            with module.graph.inserting_before(user):
                user.replace_input_with(node, module.graph.get_attr(name))
    module.recompile()
    return module


def _without_looking(passes: FloatArray, plain: FloatArray) -> FloatArray:
    """(passes, ops + 1, 2) seconds without those of looking at the clock, which every op has the same of.

    ``plain`` has (passes, 2) seconds of whole passes that nobody looked into.
    """
    more = np.median(passes.sum(axis=1), axis=0) - np.median(plain, axis=0)
    seen = np.maximum((np.median(passes, axis=0) > 0).sum(axis=0), 1)
    found: FloatArray = np.maximum(
        passes - np.maximum(more, 0.0) / seen, passes / 4
    )  # something is left of each
    return found


def _plain_pass(
    capture: Capture, module: Any, inputs: Sequence[Any], loss: Callable[..., Any] | None, target: Any
) -> FloatArray:
    """(2,) CPU seconds of a pass forward, with the loss, and backward."""
    began = time.process_time()
    made = module(*inputs)
    if loss is None:
        return np.array([time.process_time() - began, 0.0])
    result = unflattened(capture, made, joined=False)
    lost = loss(result) if target is None else loss(result, target)
    middle = time.process_time()
    if lost.requires_grad:
        del made, result
        torch.autograd.backward(lost)
    return np.array([middle - began, time.process_time() - middle])


def _undisturbed(rounds: FloatArray) -> FloatArray:
    """(parts, 2) of (rounds, parts, 2) seconds: the median share of each part, of a round that little disturbed.

    A machine that slows down for a while slows all parts of a round, and leaves their shares alone.
    """
    total = rounds.sum(axis=(1, 2), keepdims=True)
    share = np.median(rounds / np.where(total > 0, total, 1.0), axis=0)
    found: FloatArray = share / max(float(share.sum()), 1e-30) * _low(total.ravel().tolist())
    return found


def _pass(
    capture: Capture,
    module: Any,
    clock: Clock,
    inputs: Sequence[Any],
    loss: Callable[..., Any] | None,
    target: Any,
) -> FloatArray:
    """(ops + 1, 2) CPU seconds of one pass through the model, op by op, and of the loss.

    What an op in place writes into may lose its own step back: its time is then with the op in place, in its stage.
    """
    count = len(capture.nodes)
    found = np.zeros((count + 1, 2))
    value: dict[Any, Any] = {}
    given, number = iter(inputs), itertools.count()
    clock.tick(module, ())
    left = {node: len(node.users) for node in module.graph.nodes}
    marks: list[tuple[float, int]] = []
    owner: dict[int, Any] = {}

    def own(result: Any, v: int) -> None:
        for part in differentiable(result):
            step = part.grad_fn
            if step is not None and id(step) not in owner:
                owner[id(step)] = step
                step.register_prehook(lambda _: marks.append((time.process_time(), v)))

    for node in module.graph.nodes:
        if node.op == "placeholder":
            value[node] = next(given)
        elif node.op == "get_attr":
            value[node] = _attribute(module, str(node.target))
        elif node.op != "output":
            args, kwargs = fx.node.map_arg((node.args, dict(node.kwargs)), value.__getitem__)
            call = _attribute(module, str(node.target)) if node.op == "call_module" else node.target
            v = min(next(number), count)  # ops of the capture in their order, then what prepares results
            began = time.process_time()
            value[node] = call(*args, **kwargs)
            found[v, 0] += time.process_time() - began
            own(value[node], v)
            del args, kwargs
        for source in node.all_input_nodes if node.op != "output" else ():
            left[source] -= 1
            if not left[source]:
                del value[source]  # as the stages of a rank forget what nobody will read
    if loss is None:
        return found
    leaves = pytree.tree_map_only(fx.Node, value.__getitem__, module.graph.output_node().args[0])
    result = unflattened(capture, leaves, joined=False)
    value.clear()
    began = time.process_time()
    made = loss(result) if target is None else loss(result, target)
    found[count, 0] += time.process_time() - began
    own(made, count)
    if made.requires_grad:
        marks.append((time.process_time(), count))
        torch.autograd.backward(made)
        marks.append((time.process_time(), count))
    for (start, v), (end, _) in itertools.pairwise(marks):
        found[v, 1] += end - start
    return found


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
        result, ahead = self.forward(one)
        return ahead, self.backward(one, result)

    def forward(self, one: Alone) -> tuple[Any, float]:
        """Result and seconds."""
        arguments = one.prepare()
        return self._timed(lambda: one.run(arguments))

    def backward(self, one: Alone, result: Any) -> float:
        """Seconds; gradients of what is no weight are forgotten."""
        made, back = differentiable(result), 0.0
        if made:
            grown = [torch.ones_like(part) for part in made]
            _, back = self._timed(lambda: torch.autograd.backward(made, grown))
        kept = {id(leaf) for leaf in one.weights}
        for leaf in one.leaves:
            if id(leaf) not in kept:
                leaf.grad = None
        return back

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
    """As ranks are: each has one thread, unless its user says otherwise, and keeps the memory that it frees."""
    keep_freed_memory()
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
