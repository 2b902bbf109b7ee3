"""The report: one HTML file with everything that is known about a placement, readable without a network."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from importlib.resources import files
from typing import Any

from loadmaster.problem import Problem, Solution, evaluate
from loadmaster.report import _sections as sections
from loadmaster.report._page_data import pack, page_data

__all__ = ["html_report"]

SCRIPTS = ("data.js", "graph.js", "timeline.js", "panel.js", "main.js")

TIMELINE_NOTE = {
    "serial": "The pieces of one request run one after another, whatever their device, so all of them are on the "
    "critical path.",
    "concurrent": "All devices work in parallel. The black outline is the critical path: the chain of ops and "
    "transfers without slack that determines the makespan.",
    "pipeline": "A stream of samples: every device does its share once per sample. The longest bar sets the "
    "throughput; the space after the other bars is idle time.",
    "step": "One step of microbatches: every rank runs the forward (full) and backward (pale) passes of its stages in "
    "the order of the schedule; what is empty is the bubble. Below, the messages between ranks.",
    "offload": "Accelerators run sets of ops as calls: a call fetches its inputs, computes and writes back. "
    "The black outline is the critical path.",
}


def html_report(
    problem: Problem,
    solutions: Sequence[Solution],
    *,
    failures: Mapping[str, str] | None = None,
    measured: Mapping[str, Any] | None = None,
    versions: Mapping[str, str] | None = None,
    effort: int | None = None,
) -> str:
    """An HTML page about the cheapest of several solutions of one problem; the others are in its table of placers.

    Parameters
    ----------
    failures : methods that found nothing, with the reason.
    measured : what a runtime found for the cheapest solution: ``cost`` (or ``median``), ``low`` and ``high`` in
        seconds, and ``schedule`` (op, start, end), each if known.
    versions : versions of the programs used, by name.
    effort : limit on the ops simulated to find the cost of moves (:func:`~loadmaster.report._moves.move_costs`).
    """
    best = min(solutions, key=lambda solution: solution.cost)
    bound = max(solution.bound for solution in solutions)
    evaluation = evaluate(problem, best.placement)
    data = page_data(problem, best.placement, evaluation, bound=bound, measured=measured, effort=effort)
    page = files("loadmaster.report").joinpath("page")
    title = f"{problem.graph.name or 'model'} on {problem.cluster.name}"
    content = {
        "TITLE": escape(title),
        "SUBTITLE": escape(_subtitle(problem)),
        "STYLE": page.joinpath("page.css").read_text("utf-8"),
        "FIGURES": sections.figures(problem, best, evaluation, measured),
        "MEASURED": sections.measured_section(measured),
        "TIMELINE_NOTE": escape(TIMELINE_NOTE["step" if evaluation.actions else problem.model.name]),
        "CUTS": sections.cuts_table(problem, best.placement),
        "PLACERS": sections.placers_table(solutions, failures or {}),
        "CONVERGENCE": sections.convergence_svg(solutions),
        "DEVICES": sections.devices_table(problem, best.placement, evaluation),
        "CONSTRAINTS": sections.constraints_section(problem, evaluation),
        "PROVENANCE": sections.provenance_table(problem, best, versions or {}),
        "SCRIPT": "\n".join(page.joinpath(name).read_text("utf-8") for name in SCRIPTS),
        "DATA": pack(*data),
    }
    # One pass over the template: what is put in is never looked at again, whatever op names contain.
    parts = page.joinpath("page.html").read_text("utf-8").split("%%")
    return "".join(content[part] if i % 2 else part for i, part in enumerate(parts))


def _subtitle(problem: Problem) -> str:
    settings = ", ".join(f"{key} {value}" for key, value in problem.model.settings.items())
    model = f"{problem.model.name} ({settings})" if settings else problem.model.name
    return f"{problem.graph.n:,} ops · {problem.devices} devices · execution model {model}"
