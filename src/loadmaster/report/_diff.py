"""What differs between two plans, as a JSON document and as tables."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from loadmaster.plan import Plan, finite
from loadmaster.problem import evaluate
from loadmaster.report._cuts import cuts
from loadmaster.report._tables import _facts, _table
from loadmaster.units import bytes_text, percent, seconds_text

__all__ = ["diff_document", "diff_tables"]

MOST_MOVED = 20


def diff_document(first: Plan, second: Plan) -> dict[str, Any]:
    """What ``diff A B`` prints: costs side by side, ops that moved (longest first), devices side by side."""
    one, two = first.document["placement"], second.document["placement"]
    times = first.problem().mean_time
    index = first.problem().graph.index
    moved = sorted(
        (op for op in one if op in two and one[op] != two[op]), key=lambda op: (-times[index[op]], op)
    )
    return {
        "same_graph": first.graph_hash == second.graph_hash,
        "same_problem": first.problem() == second.problem(),
        "plans": [_plan(first), _plan(second)],
        "moved": [
            {"op": op, "from": one[op], "to": two[op], "seconds": float(times[index[op]])} for op in moved
        ],
        "moves": [
            {"from": a, "to": b, "ops": count}
            for (a, b), count in Counter((one[op], two[op]) for op in moved).most_common()
        ],
        "only_in_first": [op for op in one if op not in two],
        "only_in_second": [op for op in two if op not in one],
    }


def _plan(plan: Plan) -> dict[str, Any]:
    problem, solution = plan.problem(), plan.solution()
    evaluation = evaluate(problem, solution.placement)
    found = cuts(problem, solution.placement)
    names = problem.cluster.names
    return {
        "source": plan.source,
        "graph": plan.graph_name,
        "model": problem.model.name,
        "settings": problem.model.settings,
        "method": solution.method,
        "cost": finite(evaluation.cost),
        "bound": finite(solution.bound),
        "gap": solution.gap,
        "cuts": len(found),
        "cut_seconds": sum(cut.seconds for cut in found),
        "devices": {
            name: {
                "ops": int((solution.placement.device == d).sum()),
                "compute": finite(evaluation.busy[d]),
                "comm": finite(evaluation.comm[d]),
                "memory": float(evaluation.memory[d]),
            }
            for d, name in enumerate(names)
        },
    }


def diff_tables(document: Mapping[str, Any]) -> RenderableType:
    """What ``diff A B`` prints for people."""
    one, two = document["plans"]
    facts = {}
    if not document["same_graph"]:
        facts["note"] = (
            f"the plans are for different graphs: {len(document['only_in_first']):,} ops only in the first, "
            f"{len(document['only_in_second']):,} only in the second"
        )
    elif not document["same_problem"]:
        facts["note"] = "same graph, but costs, devices, constraints or the execution model differ"
    facts["moved"] = f"{len(document['moved']):,} ops"
    if document["moves"]:
        most = [f"{entry['ops']:,} {entry['from']} → {entry['to']}" for entry in document["moves"][:4]]
        facts["moved"] += f": {', '.join(most)}{', …' * (len(document['moves']) > 4)}"
    table = _table("", one["source"], two["source"], "change", right=(one["source"], two["source"], "change"))
    rows: list[tuple[str, Any, Any, Any]] = [
        ("cost", one["cost"], two["cost"], seconds_text),
        ("bound", one["bound"], two["bound"], seconds_text),
        ("transfer time", one["cut_seconds"], two["cut_seconds"], seconds_text),
        ("transferred tensors", one["cuts"], two["cuts"], lambda count: f"{count:,}"),
    ]
    for name in dict.fromkeys((*one["devices"], *two["devices"])):
        for key, form in (("compute", seconds_text), ("memory", bytes_text)):
            a, b = (plan["devices"].get(name, {}).get(key) for plan in (one, two))
            rows.append((f"{name} {key}", a, b, form))
    table.add_row("method", Text(one["method"]), Text(two["method"]), "")
    for label, a, b, form in rows:
        change = ""
        if a is not None and b is not None and a != b:
            change = f"{'+' if b > a else '−'}{percent(abs(b / a - 1))}" if a else "new"
        shown = ["–" if value is None else form(value) for value in (a, b)]
        table.add_row(Text(label), *shown, change)
    parts: list[RenderableType] = [_facts(facts), table]
    if document["moved"]:
        moves = _table("moved op", "from", "to", "mean time", right=("mean time",))
        for entry in document["moved"][:MOST_MOVED]:
            moves.add_row(
                Text(entry["op"]), Text(entry["from"]), Text(entry["to"]), seconds_text(entry["seconds"])
            )
        parts.append(moves)
        if len(document["moved"]) > MOST_MOVED:
            parts.append(Text(f"and {len(document['moved']) - MOST_MOVED:,} more", style="dim"))
    return Group(*parts)
