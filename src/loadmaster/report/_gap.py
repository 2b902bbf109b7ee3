"""Where a gap comes from, as far as that is known: what the proof leaves out, and how the search ended."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from loadmaster.problem import Concurrent, Evaluation, Pipeline, Problem, Serial, Solution
from loadmaster.problem.bounds import ignored_by
from loadmaster.report._critical import critical_path
from loadmaster.units import percent, seconds_text

__all__ = ["gap_document", "gap_sentences"]

STILL = 0.1
"""The search was still improving if the last improvement came in this last part of its time,"""
LONG = 0.5
"""and had come to rest if there was none in this last part."""


def gap_document(problem: Problem, solution: Solution, evaluation: Evaluation) -> dict[str, Any] | None:
    """What is known about a gap; None if there is none, or nothing is proved.

    ``transfers``: seconds of the cost that are transfers, on the device or the path that decides (all of them under
    ``serial``); ``ignored``: what the bound does not count, None if that is not known; ``last_improvement`` and
    ``idle``: seconds until the last improvement, and from there to the end of the search.
    """
    if solution.optimal or solution.bound <= 0:
        return None
    history = solution.history
    last = history[-1].seconds if history else None
    ignored = ignored_by(problem, solution.bound_by)
    return {
        "seconds": solution.cost - solution.bound,
        "bound_by": solution.bound_by,
        "ignored": None if ignored is None else list(ignored),
        "transfers": _transfers(problem, solution, evaluation),
        "found_by": solution.found_by or solution.method,
        "improvements": len(history),
        "last_improvement": last,
        "idle": None if last is None else max(0.0, solution.seconds - last),
        "search_seconds": solution.seconds,
        "stopped": solution.stopped,
    }


def _transfers(problem: Problem, solution: Solution, evaluation: Evaluation) -> float | None:
    match problem.model:
        case Serial():
            return float(evaluation.comm.sum())
        case Pipeline():
            return float(evaluation.comm[int(np.argmax(evaluation.load))])
        case Concurrent():
            steps = critical_path(problem, solution.placement, evaluation)
            return float(sum(step.end - step.start for step in steps if step.kind not in ("op", "call")))
    return None


def gap_sentences(document: dict[str, Any] | None) -> list[str]:
    """The same in one or two plain sentences."""
    return [] if document is None else [_proof(document), *_search(document)]


def _proof(document: dict[str, Any]) -> str:
    ignored, transfers = document["ignored"], document["transfers"]
    name, gap = document["bound_by"], seconds_text(document["seconds"])
    if ignored is None:
        return f"Of the {gap} between cost and bound nothing is known about the half that is the bound's ({name})."
    if not ignored:
        return f"The proof ({name}) leaves nothing out, but it was not finished: {gap} are open."
    text = f"The bound ({name}) ignores {_listed(ignored)}"
    if transfers and any("transfers" in phrase for phrase in ignored):
        spent = f"the placement spends {seconds_text(transfers)} on transfers that count"
        text += f"; {gap} are open, and {spent}"
    else:
        text += f"; {gap} are open"
    return text + "."


def _search(document: dict[str, Any]) -> list[str]:
    last, whole = document["last_improvement"], document["search_seconds"]
    if last is None or not whole > 0:
        return []
    by, idle = document["found_by"], document["idle"]
    count = document["improvements"]
    text = f"The last of {count} improvements ({by}) came after {seconds_text(last)} of {seconds_text(whole)}"
    if idle <= STILL * whole:
        return [f"{text}: the search was still improving, so more time may help."]
    if idle >= LONG * whole:
        part = percent(idle / whole)
        return [f"{text}, and none in the last {part} of the time: more of the same is unlikely to help."]
    return [f"{text}; nothing improved in the last {seconds_text(idle)}."]


def _listed(phrases: Sequence[str]) -> str:
    return phrases[0] if len(phrases) == 1 else f"{', '.join(phrases[:-1])} and {phrases[-1]}"
