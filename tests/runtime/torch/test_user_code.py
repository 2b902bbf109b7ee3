"""Code as users write it: what crosses stages, what is written in place, and what is wrapped around a model."""

from __future__ import annotations

import random
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils import _pytree as pytree
from torch.utils.checkpoint import checkpoint

from benchmarks.torch_equality import random_split
from loadmaster.graph.torch import capture
from loadmaster.runtime.torch import Clock, cut_stages, example_batch, run_unsplit, stage_module
from loadmaster.runtime.torch._equality import relative
from loadmaster.runtime.torch._pipeline import unflattened


class Two(nn.Module):
    """Two layers, for the modules below."""

    def __init__(self, width: int = 6) -> None:
        super().__init__()
        self.a, self.b = nn.Linear(width, width), nn.Linear(width, width)


class AnyArguments(Two):
    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self.b(torch.relu(self.a(args[0] + args[1]))) * kwargs["scale"] + kwargs.get("bias", 0)


class Nested(Two):
    def forward(self, given: Any) -> Any:
        h = self.a(given["x"]["deep"][0])
        return {"out": {"h": h, "list": [self.b(torch.relu(h)), h.argmax(-1)]}, "none": None, "three": 3}


class Buffers(Two):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("count", torch.zeros(1))
        self.register_buffer("mean", torch.zeros(6), persistent=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = self.a(x)
        self.count += 1
        self.mean.mul_(0.9).add_(0.1 * h.detach().mean(0))
        return self.b(h - self.mean) + self.count


class Again(Two):
    """The same module four times."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for _ in range(4):
            x = torch.relu(self.a(x))
        return self.b(x)


class InPlace(Two):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = self.a(x)
        h[:, :3].mul_(2.0)
        h = h.clone()
        h[:, 0] = 0.0
        y = self.b(h)
        y.add_(h).relu_()
        z = torch.zeros_like(y)
        z.copy_(y)
        return z


class Views(Two):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        p, q = self.a(x).chunk(2, -1)
        wide = q.unsqueeze(0).expand(3, -1, -1).sum(0)
        return self.b(torch.cat([p.t().t(), wide], -1))[:, ::2]


class Numbers(Two):
    """Integers and booleans that are read later."""

    def forward(self, x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        h = self.a(x)
        chosen, most = mask & (h.sum(-1) > -1e9), h.topk(2, -1)
        kept = torch.where(chosen[:, None], h, torch.zeros_like(h))
        return self.b(kept + self.b.weight[h.argmax(-1)]) + most.values.sum() + most.indices.float().mean()


class Checkpointed(Two):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in (self.a, self.b):
            x = torch.relu(checkpoint(layer, x, use_reentrant=False))
        return x


class Autocast(Two):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            h = self.b(torch.relu(self.a(x)))
        return h.float() + x


class Detached(Two):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            known = self.a(x)
        h = self.b(x)
        return h + known * h.detach()


def squares(result: Any) -> Any:
    """A loss of all floats among the results."""
    leaves = [leaf for leaf in pytree.tree_leaves(result) if isinstance(leaf, torch.Tensor)]
    return sum(leaf.float().pow(2).mean() for leaf in leaves if leaf.is_floating_point())


X = torch.linspace(-1, 1, 12).reshape(2, 6)
CASES: dict[str, tuple[type[nn.Module], Any]] = {
    "arguments of any kind": (AnyArguments, ((X, X + 1), {"scale": X[:, :1], "bias": X})),
    "nested results": (Nested, ({"x": {"deep": [X]}},)),
    "buffers": (Buffers, X),
    "a shared module": (Again, X),
    "in place": (InPlace, X),
    "views": (Views, X),
    "integers and booleans": (Numbers, (X, torch.tensor([True, False]))),
    "checkpointing": (Checkpointed, X),
    "autocast": (Autocast, X),
    "detached": (Detached, X),
}


@pytest.mark.parametrize("name", CASES)
def test_it_computes_the_same_however_it_is_split(name: str) -> None:
    kind, example = CASES[name]
    torch.manual_seed(0)
    model = kind()
    captured = capture(model, example, training=True)
    assert captured.example is not None
    reference = run_unsplit(captured, example_batch(captured.example, 1), 1, model=model, loss=squares)
    assert reference.eager
    before = {name: tensor.clone() for name, tensor in model.named_buffers()}
    for seed in range(3):
        cut = cut_stages(captured, random_split(captured, 2, "op", random.Random(seed)), 2)
        model.zero_grad()
        with torch.no_grad():
            for buffer, tensor in model.named_buffers():
                tensor.copy_(before[buffer])
        given = [tensor.clone() for tensor in captured.example.tensors()]
        for stage in range(2):
            given = list(stage_module(captured, cut, stage, Clock(0, 1))(*given))
        value = squares(unflattened(captured, given, joined=False))
        value.backward()
        assert relative(value.detach(), reference.losses[0]) < 1e-6
        for parameter, tensor in model.named_parameters():
            if tensor.grad is not None or parameter in reference.gradients:
                assert relative(tensor.grad, reference.gradients[parameter]) < 1e-5, parameter
        for buffer, tensor in model.named_buffers():
            assert relative(tensor, reference.buffers[buffer]) < 1e-6, buffer
