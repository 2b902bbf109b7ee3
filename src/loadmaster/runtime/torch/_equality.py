"""Whether a split model equals the unsplit one: losses, results, gradients, and the buffers that a step writes.

The unsplit model is fed the same microbatches, one after another, with gradients accumulated: batch norms depend on
that. Where the model draws no random numbers, the reference is the user's own module, run eagerly; otherwise it is the
whole exported program, with every op seeded as in the stages.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.distributed as dist
from torch.utils import _pytree as pytree

from loadmaster.errors import InputError, WrongOutputError
from loadmaster.graph.torch import Capture, Example
from loadmaster.runtime.torch._cut import cut_stages
from loadmaster.runtime.torch._drawing import Clock
from loadmaster.runtime.torch._modules import random_ops, stage_module
from loadmaster.runtime.torch._pipeline import Pipeline, unflattened

__all__ = [
    "TOLERANCE",
    "Batch",
    "Comparison",
    "Reference",
    "compare",
    "example_batch",
    "perturbed",
    "require_equal",
    "run_unsplit",
]

TOLERANCE = 1e-5
"""Largest difference of an element, relative to the largest element of the same tensor in the unsplit model."""
NOISE = 1e-4
"""Tensors whose largest element is smaller than this share of the largest gradient of all are compared with that share:
gradients that are zero but for rounding (the bias of an attention's keys) have no relative error. What is allowed then
is a hundredth of the rounding of the largest gradient itself."""
CONTROL = 1.01
"""What a weight is multiplied by to see that the comparison can fail."""


@dataclass(frozen=True)
class Batch:
    """A whole batch: arguments and target of all microbatches, joined along the first axis."""

    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    target: Any = None

    def copied(self) -> Batch:
        """With tensors of its own, for a model that writes into its inputs."""
        args, kwargs = pytree.tree_map_only(torch.Tensor, torch.clone, (list(self.args), dict(self.kwargs)))
        return Batch(tuple(args), kwargs, self.target)

    def microbatches(self, count: int) -> list[Batch]:
        """As the engine cuts it."""

        def part(value: Any, at: int) -> Any:
            return pytree.tree_map_only(
                torch.Tensor, lambda tensor: torch.tensor_split(tensor, count)[at], value
            )

        return [
            Batch(part(self.args, at), part(dict(self.kwargs), at), part(self.target, at))
            for at in range(count)
        ]


@dataclass(frozen=True)
class Reference:
    """What the unsplit model gives."""

    losses: list[Any]
    results: list[Any]
    """Per microbatch, the tensors among the results."""
    gradients: dict[str, Any]
    buffers: dict[str, Any]
    eager: bool
    """Whether it was the user's module itself; otherwise the exported program with seeded ops."""


@dataclass(frozen=True)
class Comparison:
    """Largest relative differences, over all ranks, and where they are."""

    errors: dict[str, float] = field(default_factory=dict)
    """``loss``, ``results``, ``gradients``, ``buffers`` -> largest relative difference."""
    where: dict[str, str] = field(default_factory=dict)
    compared: int = 0
    """Tensors."""

    @property
    def worst(self) -> float:
        """The largest of all."""
        return max(self.errors.values(), default=0.0)

    @property
    def equal(self) -> bool:
        """Whether all is within :data:`TOLERANCE`; nan is not."""
        return all(error <= TOLERANCE for error in self.errors.values()) and self.compared > 0

    def document(self) -> dict[str, Any]:
        """As plain values."""
        return {
            "equal": self.equal,
            "tolerance": TOLERANCE,
            "errors": self.errors,
            "where": self.where,
            "tensors": self.compared,
        }


def example_batch(example: Example, microbatches: int, target: Any = None) -> Batch:
    """A batch of different microbatches made from one: values are moved along the last axis, and floats scaled."""

    def more(tensor: Any) -> Any:
        if not isinstance(tensor, torch.Tensor):
            return tensor
        parts = []
        for at in range(microbatches):
            part = torch.roll(tensor, at, -1) if tensor.dim() > 1 else tensor
            parts.append(part * (1 + 0.125 * at) if tensor.is_floating_point() else part)
        return torch.cat(parts)

    return Batch(
        tuple(pytree.tree_map(more, list(example.args))),
        pytree.tree_map(more, dict(example.kwargs)),
        None if target is None else torch.cat([target] * microbatches),
    )


def run_unsplit(
    capture: Capture,
    batch: Batch,
    microbatches: int,
    *,
    model: Any = None,
    loss: Callable[..., Any] | None = None,
    scale_gradients: bool = True,
    seed: int = 0,
) -> Reference:
    """One step of the unsplit model, microbatch by microbatch; its weights, buffers and gradients stay as they were."""
    eager = model is not None and not random_ops(capture)
    if eager:
        module: Any = copy.deepcopy(model)
        if module.training != capture.training:
            module.train(capture.training)
        call = _eager(module)
    else:
        whole = cut_stages(capture, [0] * len(capture.nodes), 1)
        module = stage_module(capture, whole, 0, Clock(seed, microbatches), copied=True)
        call = _exported(module, capture)
    losses, results = [], []
    scale = microbatches if scale_gradients else 1
    with torch.set_grad_enabled(loss is not None):
        for one in batch.microbatches(microbatches):
            result = call(one.copied())
            results.append(
                [leaf.detach() for leaf in pytree.tree_leaves(result) if isinstance(leaf, torch.Tensor)]
            )
            if loss is not None:
                value = loss(result) if one.target is None else loss(result, one.target)
                if not value.requires_grad:
                    raise InputError(
                        f"{capture.name}: the loss has no gradient, so nothing can be trained: no weight that needs "
                        "one leads to it (detach, no_grad, or checkpoints with use_reentrant=True cut it off)"
                    )
                value.backward()
                losses.append(value.detach())
    gradients = {
        name: parameter.grad / scale
        for name, parameter in module.named_parameters(remove_duplicate=False)
        if parameter.grad is not None
    }
    buffers = {name: tensor.clone() for name, tensor in module.named_buffers(remove_duplicate=False)}
    return Reference(losses, results, gradients, buffers, eager)


def _eager(module: Any) -> Callable[[Batch], Any]:
    from loadmaster.graph.torch import without_cache

    def call(one: Batch) -> Any:
        with without_cache(module):
            return module(*one.args, **one.kwargs)

    return call


def _exported(module: Any, capture: Capture) -> Callable[[Batch], Any]:
    def call(one: Batch) -> Any:
        leaves = pytree.tree_leaves((one.args, dict(one.kwargs)))
        given = [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]
        return unflattened(capture, module(*given), joined=False)

    return call


def compare(pipe: Pipeline, batch: Batch, reference: Reference) -> Comparison:
    """Run one step of the pipeline on a batch and compare it with the unsplit model; all ranks get the same answer.

    Gradients are forgotten, and buffers put back.
    """
    buffers = {name: t.clone() for module in pipe.modules for name, t in module.named_buffers()}
    pipe.zero_grad()
    pipe.rewind()
    losses: list[Any] = []
    if pipe.trains:
        found = pipe.step(*batch.args, target=batch.target, losses=losses, **batch.kwargs)
    else:
        found = pipe.evaluate(*batch.args, **batch.kwargs)
    mine = _differences(pipe, found, losses, reference)
    with torch.no_grad():
        for module in pipe.modules:
            for name, tensor in module.named_buffers():
                tensor.copy_(buffers[name])
    pipe.zero_grad()
    pipe.rewind()
    every: list[Any] = [None] * pipe.world
    dist.all_gather_object(every, mine)
    errors: dict[str, float] = {}
    where: dict[str, str] = {}
    for entries in every:
        for kind, name, error in entries:
            if kind not in errors or not error <= errors[kind]:
                errors[kind], where[kind] = error, name
    return Comparison(errors, where, sum(map(len, every)))


def _differences(
    pipe: Pipeline, found: Any, losses: list[Any], reference: Reference
) -> list[tuple[str, str, float]]:
    """(kind, name, relative difference) of everything that this rank has."""
    made: list[tuple[str, str, float]] = []
    if pipe.is_last:
        leaves = [leaf for leaf in pytree.tree_leaves(found) if isinstance(leaf, torch.Tensor)]
        for at, leaf in enumerate(leaves):
            parts = [one[at] for one in reference.results]
            whole = torch.cat([part.reshape(1) if part.dim() == 0 else part for part in parts])
            made.append(("results", f"result {at}", relative(leaf.detach(), whole)))
        made += [
            ("loss", f"microbatch {at}", relative(ours.detach(), theirs))
            for at, (ours, theirs) in enumerate(zip(losses, reference.losses, strict=True))
        ]
    largest = max((float(tensor.abs().max()) for tensor in reference.gradients.values()), default=0.0)
    aliases = pipe.capture.aliases
    if pipe.trains:
        for name, parameter in pipe.named_parameters():
            theirs = next(
                (
                    reference.gradients[alias]
                    for alias in (name, *aliases.get(name, ()))
                    if alias in reference.gradients
                ),
                None,
            )
            if theirs is None and parameter.grad is None:
                continue
            zero = torch.zeros_like(parameter)
            error = relative(
                zero if parameter.grad is None else parameter.grad,
                zero if theirs is None else theirs,
                NOISE * largest,
            )
            made.append(("gradients", name, error))
        for module in pipe.modules:
            made += [
                ("buffers", name, relative(tensor, reference.buffers[name]))
                for name, tensor in module.named_buffers()
                if name in reference.buffers
            ]
    return made


def relative(ours: Any, theirs: Any, floor: float = 0.0) -> float:
    """Largest difference of an element over the largest element of the reference; infinite for another shape."""
    if ours.shape != theirs.shape:
        return float("inf")
    if not ours.numel():
        return 0.0
    if not theirs.is_floating_point():
        return 0.0 if torch.equal(ours, theirs) else float("inf")
    same = (ours == theirs) | (ours.isnan() & theirs.isnan())
    if bool(same.all()):
        return 0.0
    difference = torch.where(same, torch.zeros_like(theirs), (ours - theirs).abs())
    finite = theirs[theirs.isfinite()]
    scale = max(float(finite.abs().max()) if finite.numel() else 0.0, floor)
    return float(difference.max()) / scale if scale > 0 else float("inf")


@contextmanager
def perturbed(pipe: Pipeline) -> Iterator[str]:
    """One weight of the first stage that has any, a little changed: a comparison must notice. Gives its name."""
    largest: list[Any] = [None] * pipe.world
    own = [
        (name, float(p.detach().abs().max()))
        for name, p in pipe.named_parameters()
        if p.is_floating_point() and p.dim() > 1
    ]
    dist.all_gather_object(largest, own)
    owner = next((rank for rank, names in enumerate(largest) if names), None)
    if owner is None:
        raise WrongOutputError(
            f"{pipe.capture.name}: it has no weights, so no comparison can be seen to fail"
        )
    name = max(largest[owner], key=lambda entry: entry[1])[0]
    if pipe.rank != owner:
        yield name
        return
    parameter = dict(pipe.named_parameters())[name]
    kept = parameter.detach().clone()
    with torch.no_grad():
        parameter.mul_(CONTROL)
    try:
        yield name
    finally:
        with torch.no_grad():
            parameter.copy_(kept)


def require_equal(pipe: Pipeline, batch: Batch, reference: Reference) -> dict[str, Any]:
    """Compare, then see that the comparison fails when a weight is changed; both as a document.

    Raises
    ------
    WrongOutputError : the split model differs, or the control did not.
    """
    found = compare(pipe, batch, reference)
    if not found.equal:
        kind = max(
            found.errors,
            key=lambda key: found.errors[key] if found.errors[key] == found.errors[key] else 1e99,
        )
        raise WrongOutputError(
            f"{pipe.capture.name}: the split model differs from the unsplit one: {kind} of {found.where[kind]!r} by "
            f"{found.errors[kind]:.3g} (relative), and {TOLERANCE:g} is allowed"
        )
    with perturbed(pipe) as name:
        control = compare(pipe, batch, reference)
    if control.equal:
        raise WrongOutputError(
            f"{pipe.capture.name}: the comparison cannot fail: {name!r} was changed by {CONTROL - 1:.0%}, and nothing "
            "differs"
        )
    return {
        **found.document(),
        "reference": "the module itself" if reference.eager else "the exported program, random ops seeded",
        "control": {"changed": name, "error": control.worst},
    }
