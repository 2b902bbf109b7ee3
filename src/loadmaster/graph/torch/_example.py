"""Example inputs of a module: what one microbatch looks like."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.utils import _pytree as pytree

from loadmaster.errors import InputError

__all__ = ["Example", "as_example"]


@dataclass(frozen=True)
class Example:
    """Positional and keyword arguments of a module, as one microbatch has them."""

    args: tuple[Any, ...] = ()
    kwargs: Mapping[str, Any] = field(default_factory=dict)

    def leaves(self) -> list[Any]:
        """All values in the order of the exported program's inputs, tensors and others."""
        return pytree.tree_leaves((self.args, dict(self.kwargs)))

    def tensors(self) -> list[Any]:
        """The tensors among :meth:`leaves`."""
        return [leaf for leaf in self.leaves() if isinstance(leaf, torch.Tensor)]


def as_example(given: Any) -> Example:
    """An example as users write it: a tensor, a tuple of arguments, a dict of keyword arguments, or both as a pair.

    >>> sorted(as_example({"input_ids": torch.zeros(2, 8)}).kwargs)
    ['input_ids']
    >>> len(as_example(((torch.zeros(2), torch.zeros(3)), {"mask": None})).args)
    2

    Raises
    ------
    InputError : there is no tensor in it.
    """
    if isinstance(given, Example):
        found = given
    elif isinstance(given, Mapping):
        found = Example((), dict(given))
    elif (
        isinstance(given, tuple)
        and len(given) == 2
        and isinstance(given[0], tuple | list)
        and isinstance(given[1], Mapping)
    ):
        found = Example(tuple(given[0]), dict(given[1]))
    elif isinstance(given, tuple | list):
        found = Example(tuple(given))
    else:
        found = Example((given,))
    if not found.tensors():
        raise InputError(
            f"the example {type(given).__name__} has no tensor in it: give a tensor, a tuple of arguments, a dict of "
            "keyword arguments, or a pair of both"
        )
    return found
