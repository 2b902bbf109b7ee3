"""Moving atoms over the boundaries of a chain of stages."""

from __future__ import annotations

import math

import numpy as np

from loadmaster.arrays import IntArray
from loadmaster.placers.frame.search import Search
from loadmaster.placers.stages.steps._cuts import Chains
from loadmaster.problem import Placement, evaluate

__all__ = ["improve"]

BATCH = 64
"""Neighbours that are tried at once."""


def improve(search: Search, chains: Chains) -> None:
    """Move single atoms to the stage before or after theirs, as long as the step gets shorter.

    Complexity: O(boundary atoms * evaluation) for every move.
    """
    assert search.best is not None
    problem = search.problem
    first = evaluate(problem, search.best)
    if len(first.stages) < 2 or not first.feasible:
        return
    device = np.array([stage.device for stage in first.stages], np.int32)
    stage = np.empty(chains.atoms, np.int32)
    for number, found in enumerate(first.stages):
        its = chains.atom[list(found.ops)]
        stage[its] = number
    cost = first.cost
    while True:
        better: tuple[float, IntArray] = (math.inf, stage)
        for group in _batches(_neighbours(chains, stage, len(device))):
            search.check()
            values = []
            for moved in group:
                placement = _placement(search.best, chains, moved, device)
                found_cost = search.try_placement(placement)
                values.append((found_cost, moved))
                if search.evaluations_left <= 0:
                    break
            best = min(values, key=lambda entry: entry[0])
            if best[0] < better[0]:
                better = best
            if better[0] < cost:
                break
        if not better[0] < cost:
            return
        cost, stage = better


def _batches(items: list[IntArray]) -> list[list[IntArray]]:
    return [items[i : i + BATCH] for i in range(0, len(items), BATCH)]


def _neighbours(chains: Chains, stage: IntArray, stages: int) -> list[IntArray]:
    """Chains that differ by one atom, those at the fullest boundaries in no particular order."""
    inside = stage[chains.tail] == stage[chains.head]
    holds_after, held_before = np.zeros(chains.atoms, np.bool_), np.zeros(chains.atoms, np.bool_)
    holds_after[chains.tail[inside]] = True
    held_before[chains.head[inside]] = True
    sizes = np.bincount(stage, minlength=stages)
    found = []
    for stuck, change in ((holds_after, 1), (held_before, -1)):
        target = stage + change
        for a in np.flatnonzero(~stuck & (target >= 0) & (target < stages) & (sizes[stage] > 1)).tolist():
            moved = stage.copy()
            moved[a] += change
            found.append(moved)
    return found


def _placement(best: Placement, chains: Chains, stage: IntArray, device: IntArray) -> Placement:
    """The chain as a placement, boundary ops as they were."""
    work = chains.atom >= 0
    where = np.where(work, stage[chains.atom], 0).astype(np.int32)
    return Placement(np.where(work, device[where], best.device).astype(np.int32), call=where)
