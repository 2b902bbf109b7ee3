"""A placement improved by what its pieces are predicted to take.

A placer charges every tensor that is moved; what is run are pieces, and several tensors at one cut cost one submodel.
So the last steps are taken on pieces: move what belongs together while the simulated end becomes earlier.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from loadmaster.problem import Pipeline, Placement, Problem, SimulatedEvaluator
from loadmaster.runtime import OverlapFit, cut, predict

__all__ = ["chains", "refine"]

STREAM = 32
"""Requests of a stream that a pipeline is refined for."""
NEAR = 6
"""How far apart, in topological order, two chains may be that are exchanged."""


def chains(problem: Problem) -> list[list[int]]:
    """Co-location classes in chains, in topological order: each but the last has one reader, each but the first one
    source. Classes of inputs and constants alone are left out."""
    graph, class_of = problem.graph, problem.class_of
    source = class_of[graph.tensor_producer[graph.edge_tensor]]
    reader = class_of[graph.consumer_op]
    apart = source != reader
    edges = {(int(a), int(b)) for a, b in zip(source[apart], reader[apart], strict=True)}
    after: dict[int, set[int]] = {}
    before: dict[int, set[int]] = {}
    for a, b in edges:
        after.setdefault(a, set()).add(b)
        before.setdefault(b, set()).add(a)
    first = np.full(problem.classes, graph.n)
    np.minimum.at(first, class_of, graph.position)
    found: list[list[int]] = []
    at: dict[int, list[int]] = {}
    for c in np.argsort(first, kind="stable").tolist():
        sources = before.get(c, set())
        if len(sources) == 1:
            (one,) = sources
            if len(after[one]) == 1 and one in at and at[one][-1] == one:
                at[one].append(c)
                at[c] = at[one]
                continue
        at[c] = [c]
        found.append(at[c])
    return found


def refine(
    problem: Problem,
    placement: Placement,
    fit: OverlapFit,
    *,
    seconds: float,
    seed: int = 0,
) -> Placement:
    """The best placement that moving chains, exchanging two of them and moving single classes lead to.

    Sweeps in random order, every step that is predicted to be better is taken, until none is or the ``seconds`` are
    over. A step costs O(ops + pieces²).
    """
    end = time.monotonic() + seconds
    generator = np.random.default_rng(seed)
    items = STREAM if isinstance(problem.model, Pipeline) else 1
    constraints = SimulatedEvaluator(problem)

    def cost(device: npt.NDArray[np.int32]) -> float:
        tried = Placement(device)
        if not constraints.evaluate(tried).feasible:
            return np.inf
        return predict(problem, cut(problem, tried, piece=fit.piece, wait=fit.wait), fit, items=items)

    members = [np.flatnonzero(problem.class_of == c) for c in range(problem.classes)]
    linked = chains(problem)
    steps: list[tuple[Sequence[int], Sequence[int]]] = [(chain, ()) for chain in linked]
    steps += [
        (linked[i], linked[j]) for i in range(len(linked)) for j in range(i + 1, min(i + NEAR, len(linked)))
    ]
    steps += [((c,), ()) for chain in linked if len(chain) > 1 for c in chain]
    device = placement.device.copy()
    best = cost(device)
    again = True
    while again:
        again = False
        for number in generator.permutation(len(steps)).tolist():
            if time.monotonic() >= end:
                return Placement(device)
            one, two = (
                np.concatenate([members[c] for c in step]) if step else None for step in steps[number]
            )
            assert one is not None
            here = device[one[0]]
            if two is not None:
                there = device[two[0]]
                if there == here:
                    continue
                tries = [(there, here)]
            else:
                tries = [(d, here) for d in range(problem.devices) if d != here]
            for mine, other in tries:
                changed = device.copy()
                changed[one] = mine
                if two is not None:
                    changed[two] = other
                found = cost(changed)
                if found < best * (1 - 1e-6):
                    device, best, again = changed, found, True
                    break
    return Placement(device)
