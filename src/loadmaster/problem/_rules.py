"""Constraints as people write them (``"ops=device"``, lists of ops that go together), as arrays."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import numpy as np

from loadmaster.arrays import BoolArray, IntArray
from loadmaster.errors import InfeasibleError, InputError

if TYPE_CHECKING:
    from loadmaster.problem._problem import Problem

__all__ = ["classes_of", "pins_and_forbids"]


def pins_and_forbids(
    problem: Problem, pins: Iterable[str], forbids: Iterable[str]
) -> tuple[IntArray, BoolArray]:
    """``pin`` and ``forbidden`` of the problem with these rules added, each written ``"ops=device"``."""
    pin, forbidden = problem.pin.copy(), problem.forbidden.copy()
    for text in pins:
        ops, d = _parse_rule(problem, text, "pin")
        for v in ops:
            if pin[v] not in (-1, d):
                first, second = problem.cluster.names[pin[v]], problem.cluster.names[d]
                raise InfeasibleError(
                    f"op {problem.graph.names[v]!r} is pinned both to {first!r} and to {second!r}"
                )
            pin[v] = d
    for text in forbids:
        ops, d = _parse_rule(problem, text, "forbid")
        forbidden[ops, d] = True
    return pin, forbidden


def _parse_rule(problem: Problem, text: str, what: str) -> tuple[list[int], int]:
    pattern, separator, device = text.rpartition("=")
    if not separator or not pattern:
        raise InputError(
            f"--{what} {text!r} must be written OPS=DEVICE, e.g. 'encoder.*={problem.cluster.names[0]}'"
        )
    if device not in problem.cluster.index:
        raise InputError(
            f"--{what} {text!r}: there is no device {device!r}: choose one of {', '.join(problem.cluster.names)}"
        )
    return problem.graph.select(pattern), problem.cluster.index[device]


def classes_of(n: int, colocation: Iterable[Iterable[int]]) -> IntArray:
    """Class of each op, numbered by first member, from lists of ops that go together (overlapping lists
    unite)."""
    parent = list(range(n))

    def root(v: int) -> int:
        while parent[v] != v:
            parent[v] = parent[parent[v]]
            v = parent[v]
        return v

    for group in colocation:
        ops = list(group)
        for v in ops:
            if not 0 <= v < n:
                raise InputError(f"a colocation list names op {v}, which does not exist (there are {n})")
        for v in ops[1:]:
            a, b = root(ops[0]), root(v)
            parent[max(a, b)] = min(a, b)
    number: dict[int, int] = {}
    return np.array([number.setdefault(root(v), len(number)) for v in range(n)], np.int32)
