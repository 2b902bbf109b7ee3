"""Why a plan costs what it costs, and why an op is where it is, as JSON documents and as tables."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from rich.console import Group, RenderableType
from rich.text import Text

from loadmaster.plan import finite
from loadmaster.problem import Evaluation, Problem, Solution, evaluate
from loadmaster.report._critical import critical_path, waits
from loadmaster.report._cuts import cuts
from loadmaster.report._gap import gap_document, gap_sentences
from loadmaster.report._moves import move_costs
from loadmaster.report._tables import _bound, _facts, _model, _table
from loadmaster.report._whatif import noise_document, what_if_documents
from loadmaster.units import bytes_text, percent, seconds_text

__all__ = ["explain_document", "explain_tables", "op_document", "op_tables"]

MOST_CUTS = 10
MOST_STEPS = 12


def explain_document(
    problem: Problem, solution: Solution, *, again: Callable[[Problem], float] | None = None
) -> dict[str, Any]:
    """What ``explain PLAN`` prints; ``again`` finds the cost of a fresh placement, for the what-ifs."""
    names, placement = problem.cluster.names, solution.placement
    evaluation = evaluate(problem, placement)
    idle = [
        {
            "device": names[wait.device],
            "waits_for": None if wait.source is None else names[wait.source],
            "seconds": wait.seconds,
        }
        for wait in waits(problem, placement, evaluation)
    ]
    return {
        "graph": problem.graph.name,
        "model": problem.model.name,
        "settings": problem.model.settings,
        "cost": finite(evaluation.cost),
        "bound": finite(solution.bound),
        "bound_by": solution.bound_by,
        "gap": solution.gap,
        "optimal": solution.optimal,
        "open": gap_document(problem, solution, evaluation),
        "bottleneck": _bottleneck(problem, evaluation),
        "critical_path": _critical_document(problem, solution, evaluation),
        "cuts": [
            {
                "op": problem.graph.names[problem.graph.tensor_producer[cut.tensor]],
                "tensor": cut.tensor,
                "from": names[cut.source],
                "to": [names[d] for d in cut.targets],
                "bytes": float(problem.graph.tensor_bytes[cut.tensor]),
                "seconds": cut.seconds,
            }
            for cut in cuts(problem, placement)[:MOST_CUTS]
        ],
        "waits": idle,
        "what_if": what_if_documents(problem, placement, again=again),
        "noise": noise_document(problem, placement),
    }


def _bottleneck(problem: Problem, evaluation: Evaluation) -> dict[str, Any]:
    """The device with the most to do."""
    d = int(np.argmax(evaluation.load))
    return {
        "device": problem.cluster.names[d],
        "compute": finite(evaluation.busy[d]),
        "comm": finite(evaluation.comm[d]),
        "load": finite(evaluation.load[d]),
    }


def _critical_document(problem: Problem, solution: Solution, evaluation: Evaluation) -> dict[str, Any] | None:
    """The chain that determines the makespan: seconds by where they go, and its longest steps."""
    steps = critical_path(problem, solution.placement, evaluation)
    if not steps:
        return None
    names, device = problem.cluster.names, solution.placement.device
    spent: dict[str, float] = {}
    entries = []
    for step in steps:
        if step.kind == "op":
            what, where = problem.graph.names[step.index], names[device[step.index]]
        elif step.kind == "call":
            call = evaluation.calls[step.index]
            what, where = f"call of {len(call.ops)} ops", names[call.device]
        else:
            moved = evaluation.transfers[step.index]
            what = problem.graph.names[problem.graph.tensor_producer[moved.tensor]]
            where = f"{names[moved.source]} → {names[moved.target]}"
        spent[where] = spent.get(where, 0.0) + step.end - step.start
        entries.append(
            {
                "kind": step.kind,
                "what": what,
                "where": where,
                "start": step.start,
                "end": step.end,
                "because": step.because,
            }
        )
    return {"seconds": dict(sorted(spent.items(), key=lambda entry: -entry[1])), "steps": entries}


def op_document(problem: Problem, solution: Solution, op: int) -> dict[str, Any]:
    """What ``explain PLAN OP`` prints: the op's time, and the plan's cost, for every device."""
    graph, names, device = problem.graph, problem.cluster.names, solution.placement.device
    evaluation = evaluate(problem, solution.placement)
    own = problem.class_of[op]
    after = move_costs(problem, solution.placement, classes=np.array([own]))[op]
    steps = critical_path(problem, solution.placement, evaluation)
    pred_ptr, pred = graph.predecessors
    succ_ptr, succ = graph.successors
    return {
        "op": graph.names[op],
        "op_type": graph.op_types[op],
        "device": names[device[op]],
        "pinned": bool(problem.pin[op] >= 0),
        "critical": any(step.kind == "op" and step.index == op for step in steps),
        "start": None if evaluation.start is None else finite(evaluation.start[op]),
        "end": None if evaluation.end is None else finite(evaluation.end[op]),
        "cost": finite(evaluation.cost),
        "devices": [
            {
                "device": name,
                "seconds": finite(problem.time[op, d]),
                "allowed": bool(problem.class_allowed[own, d]),
                "plan_cost": finite(after[d]),
            }
            for d, name in enumerate(names)
        ],
        "reads_from": {
            graph.names[u]: names[device[u]] for u in pred[pred_ptr[op] : pred_ptr[op + 1]].tolist()
        },
        "read_by": {graph.names[u]: names[device[u]] for u in succ[succ_ptr[op] : succ_ptr[op + 1]].tolist()},
        "kept_with": [graph.names[u] for u in np.flatnonzero(problem.class_of == own).tolist() if u != op],
    }


# -- tables --------------------------------------------------------------------------------------------------


def explain_tables(document: Mapping[str, Any]) -> RenderableType:
    """What ``explain PLAN`` prints for people."""
    worst = document["bottleneck"]
    facts = {
        "cost": seconds_text(document["cost"]),
        "bound": _bound(document),
        **({"why a gap": " ".join(said)} if (said := gap_sentences(document["open"])) else {}),
        "model": _model(document),
        "busiest": f"{worst['device']}: compute {seconds_text(worst['compute'])}, "
        f"transfers {seconds_text(worst['comm'])}",
    }
    noise = document["noise"]
    if noise["low"] is not None:
        facts["if times vary"] = (
            f"{seconds_text(noise['low'])} to {seconds_text(noise['high'])} in 90 % of {noise['samples']} samples with "
            f"op times off by up to {100 * noise['noise']:g} %"
        )
    parts: list[RenderableType] = [_facts(facts)]
    path = document["critical_path"]
    if path is not None:
        table = _table("critical path through", "time", "% of cost", right=("time", "% of cost"))
        for where, seconds in list(path["seconds"].items())[:MOST_STEPS]:
            table.add_row(Text(where), seconds_text(seconds), _share(seconds, document["cost"]))
        parts.append(table)
        longest = sorted(path["steps"], key=lambda step: step["start"] - step["end"])[:MOST_STEPS]
        table = _table("longest steps on it", "where", "time", "had to wait until", right=("time",))
        before = {
            "start": "– (starts at once)",
            "data": "its inputs arrived",
            "device": "the device was free",
            "link": "the link was free",
        }
        for step in longest:
            seconds = seconds_text(step["end"] - step["start"])
            table.add_row(Text(step["what"]), Text(step["where"]), seconds, before[step["because"]])
        parts.append(table)
    if document["waits"]:
        table = _table("idle device", "waits for", "time", "% of cost", right=("time", "% of cost"))
        for wait in document["waits"]:
            source = "nothing (it has finished)" if wait["waits_for"] is None else wait["waits_for"]
            source = "its own earlier ops" if source == wait["device"] else source
            share = _share(wait["seconds"], document["cost"])
            table.add_row(Text(wait["device"]), Text(source), seconds_text(wait["seconds"]), share)
        parts.append(table)
    if document["cuts"]:
        table = _table("most expensive transfers", "from", "to", "size", "time", right=("size", "time"))
        for cut in document["cuts"]:
            size = bytes_text(cut["bytes"]) if cut["bytes"] else "–"
            seconds = seconds_text(cut["seconds"])
            table.add_row(Text(cut["op"]), Text(cut["from"]), Text(", ".join(cut["to"])), size, seconds)
        parts.append(table)
    parts.append(_what_if_table(document))
    return Group(*parts)


def _what_if_table(document: Mapping[str, Any]) -> RenderableType:
    again = any("placed_again" in entry for entry in document["what_if"])
    columns = ["same placement", "lower bound", *(["new placement"] if again else [])]
    table = _table("what if there were", *columns, right=columns)
    for entry in document["what_if"]:
        cells = [seconds_text(entry["cost"]), seconds_text(entry["bound"])]
        if again:
            cells.append(seconds_text(entry["placed_again"]))
        table.add_row(entry["what_if"], *cells)
    return table


def _share(seconds: float, cost: float | None) -> str:
    return percent(seconds / cost) if cost else "–"


def op_tables(document: Mapping[str, Any]) -> RenderableType:
    """What ``explain PLAN OP`` prints for people."""
    facts = {"op": document["op"]}
    if document["op_type"]:
        facts["type"] = document["op_type"]
    facts["device"] = document["device"] + (" (pinned)" if document["pinned"] else "")
    if document["start"] is not None:
        runs = f"{seconds_text(document['start'])} to {seconds_text(document['end'])}"
        facts["runs"] = runs + (", on the critical path" if document["critical"] else "")
    for key, label in (("reads_from", "reads from"), ("read_by", "read by")):
        if document[key]:
            facts[label] = _listed([f"{op} ({device})" for op, device in document[key].items()])
    if document["kept_with"]:
        facts["kept with"] = _listed(document["kept_with"])
    table = _table("if on device", "op time", "plan cost", "change", right=("op time", "plan cost", "change"))
    for entry in document["devices"]:
        if entry["device"] == document["device"]:
            cost, change = seconds_text(document["cost"]), "current"
        elif entry["seconds"] is None:
            cost, change = "–", "not supported"
        elif not entry["allowed"]:
            cost, change = "–", "not allowed"
        elif entry["plan_cost"] is None:
            cost, change = "–", "infeasible"
        else:
            more = entry["plan_cost"] - document["cost"]
            cost = seconds_text(entry["plan_cost"])
            change = f"{'+' if more >= 0 else '−'}{seconds_text(abs(more))}" if more else "none"
        table.add_row(Text(entry["device"]), seconds_text(entry["seconds"]), cost, change)
    return Group(_facts(facts), table)


def _listed(names: list[str], most: int = 6) -> str:
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more
