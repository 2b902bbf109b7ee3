"""Results as tables for people, on 80 columns. They show the same documents that ``--json`` prints."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich import box
from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from loadmaster.units import bar, bytes_text, percent, seconds_text

__all__ = [
    "comparison_table",
    "evaluation_tables",
    "methods_table",
    "problem_tables",
    "show",
    "solution_tables",
    "warm_table",
]

STOPPED = {"finished": "finished", "budget": "budget used up", "interrupted": "interrupted"}
"""Why a search ended, in words."""
MOST_ROWS = 16
"""Op types and violations beyond this are counted, not listed."""


def show(renderable: RenderableType) -> None:
    """Print to standard output."""
    Console().print(renderable)


def _table(*columns: str, right: Sequence[str] = (), title: str | None = None) -> Table:
    table = Table(box=box.SIMPLE_HEAD, title=title, title_justify="left", title_style="bold", pad_edge=False)
    for column in columns:
        table.add_column(column, justify="right" if column in right else "left")
    return table


def _facts(facts: Mapping[str, str]) -> Table:
    """Label and value, line by line."""
    table = Table(box=None, show_header=False, pad_edge=False)
    table.add_column(style="dim", no_wrap=True)
    table.add_column(overflow="fold")
    for label, value in facts.items():
        table.add_row(Text(label), Text(value))
    return table


def _model(document: Mapping[str, Any]) -> str:
    settings = ", ".join(f"{key} {value}" for key, value in document["settings"].items())
    return f"{document['model']} ({settings})" if settings else str(document["model"])


def _bound(document: Mapping[str, Any]) -> str:
    if document["bound"] is None:
        return "–"
    proof = "proven optimal" if document["optimal"] else f"gap {percent(document['gap'])}"
    return f"{seconds_text(document['bound'])} by {document['bound_by']}; {proof}"


def _device_table(evaluation: Mapping[str, Any]) -> Table:
    """Per device: ops, compute and transfer time, memory, and the load as a bar."""
    ops: dict[str, int] = {}
    for device in evaluation["placement"].values():
        ops[device] = ops.get(device, 0) + 1
    held = "peak" if evaluation["settings"].get("memory") == "peak" and evaluation["peak"] else "memory"
    columns = ("device", "ops", "compute", "transfers", held, "load")
    table = _table(*columns, right=columns[1:-1])
    most = max((load or 0.0 for load in evaluation["load"].values()), default=0.0)
    for name, load in evaluation["load"].items():
        table.add_row(
            Text(name),
            str(ops.get(name, 0)),
            seconds_text(evaluation["busy"][name]),
            seconds_text(evaluation["comm"][name]),
            bytes_text(evaluation[held][name]),
            bar((load or 0.0) / most if most else 0.0),
        )
    return table


def _stage_table(evaluation: Mapping[str, Any]) -> list[RenderableType]:
    """The stages of one step of microbatches, and the bubble; nothing elsewhere."""
    if not evaluation.get("stages"):
        return []
    columns = ("stage", "device", "ops", "forward", "backward", "in flight", "kept each", "checkpoint")
    table = _table(*columns, right=("stage", "ops", *columns[3:7]))
    for stage in evaluation["stages"]:
        table.add_row(
            str(stage["stage"]),
            Text(stage["device"]),
            str(len(stage["ops"])),
            seconds_text(stage["forward"]) if stage["forward"] is not None else "–",
            seconds_text(stage["backward"]) if stage["backward"] is not None else "–",
            str(stage["in_flight"]),
            bytes_text(stage["kept"]),
            "yes" if stage["checkpoint"] else "",
        )
    if evaluation["bubble"] is None:
        return [table]
    return [table, Text(f"bubble: the ranks compute {percent(1.0 - evaluation['bubble'])} of the step")]


def solution_tables(document: Mapping[str, Any], evaluation: Mapping[str, Any]) -> RenderableType:
    """What ``place`` prints."""
    effort = f"{document['evaluations']:,} evaluations in {seconds_text(document['seconds'])}"
    found = "" if document["found_by"] == document["method"] else f", found by {document['found_by']}"
    facts = {
        "cost": seconds_text(document["cost"]),
        "bound": _bound(document),
        "model": _model(document),
        "method": f"{document['method']}{found}, seed {document['seed']}",
        "search": f"{effort} ({STOPPED[document['stopped']]})",
    }
    return Group(_facts(facts), _device_table(evaluation), *_stage_table(evaluation))


def evaluation_tables(document: Mapping[str, Any]) -> RenderableType:
    """What ``evaluate`` prints."""
    facts = {
        "cost": seconds_text(document["cost"]) if document["cost"] is not None else "undefined",
        "feasible": "yes" if document["feasible"] else "no",
    }
    if document["bound"] is not None and document["feasible"]:
        facts["bound"] = _bound(document)
    facts["model"] = _model(document)
    facts["transfers"] = f"{len(document['transfers']):,}"
    parts: list[RenderableType] = [_facts(facts)]
    why = document["why"]
    parts += [Text(f"  × {text}") for text in why[:MOST_ROWS]]
    if len(why) > MOST_ROWS:
        parts.append(Text(f"  × and {len(why) - MOST_ROWS} more"))
    return Group(*parts, _device_table(document), *_stage_table(document))


def comparison_table(documents: Sequence[Mapping[str, Any]]) -> RenderableType:
    """What ``compare`` prints."""
    table = _table(
        "method",
        "cost",
        "vs best",
        "gap",
        "time",
        "evaluations",
        right=("cost", "vs best", "gap", "time", "evaluations"),
    )
    costs = [document["cost"] for document in documents if document["cost"] is not None]
    best = min(costs, default=0.0)
    for document in documents:
        if document["cost"] is None:
            table.add_row(Text(document["method"]), "infeasible")
            continue
        winner = document["cost"] == best
        more = document["cost"] / best - 1 if best else 0.0
        table.add_row(
            Text(document["method"], style="bold" if winner else ""),
            seconds_text(document["cost"]),
            "best" if winner else f"+{percent(more)}",
            "optimal" if document["optimal"] else percent(document["gap"]),
            seconds_text(document["seconds"]),
            f"{document['evaluations']:,}",
        )
    bounds = [document for document in documents if document["bound"] is not None]
    facts = {"model": _model(documents[0])}
    if bounds:
        strongest = max(bounds, key=lambda document: float(document["bound"]))
        facts["bound"] = f"{seconds_text(strongest['bound'])} by {strongest['bound_by']}"
    return Group(_facts(facts), table)


def problem_tables(document: Mapping[str, Any]) -> RenderableType:
    """What ``inspect`` prints."""
    types = list(document["op_types"].items())
    shown = ", ".join(f"{kind} {count:,}" for kind, count in types[:MOST_ROWS])
    more = f", and {len(types) - MOST_ROWS} more" if len(types) > MOST_ROWS else ""
    facts = {
        "graph": document["name"] or "unnamed",
        "ops": f"{document['ops']:,} ({document['levels']:,} levels, up to {document['width']:,} wide)",
        "tensors": f"{document['tensors']:,} ({bytes_text(document['tensor_bytes'])})",
        "edges": f"{document['edges']:,}",
        "memory": bytes_text(document["memory"]),
        "model": _model(document),
        "op times": document["costs_from"],
    }
    if set(document["op_types"]) - {"unknown"}:
        facts["op types"] = shown + more
    if document["flops"]:
        facts["flops"] = f"{document['flops']:.4g}"
    for key, label in (
        ("backward_ops", "backward"),
        ("colocated_ops", "colocated"),
        ("pinned_ops", "pinned"),
    ):
        if document[key]:
            facts[label] = f"{document[key]:,} op{'s' * (document[key] != 1)}"
    if "coarse" in document:
        coarse = document["coarse"]
        between = f"{coarse['tensors']:,} tensors between them"
        facts["coarsened"] = f"{coarse['groups']:,} groups of up to {coarse['largest']:,} ops, {between}"
    origins = document["origins"] or {}
    columns = ("device", "kind", "memory", "supports", "single-device cost")
    devices = _table(*columns, *(["op times"] if origins else []), right=columns[2:])
    for device in document["devices"]:
        alone = seconds_text(device["cost_alone"])
        devices.add_row(
            Text(device["name"]),
            Text(device["kind"]),
            bytes_text(device["capacity"]) if device["capacity"] is not None else "unlimited",
            f"{device['supported_ops']:,} ops",
            alone if device["feasible_alone"] else f"{alone} (infeasible)",
            *([_counts(origins[device["name"]])] if origins else []),
        )
    bounds = _table("lower bound", "value", right=("value",))
    for name, value in sorted(document["bounds"].items(), key=lambda entry: -(entry[1] or 0.0)):
        bounds.add_row(Text(name), seconds_text(value))
    return Group(_facts(facts), devices, bounds) if document["bounds"] else Group(_facts(facts), devices)


def _counts(origins: Mapping[str, int]) -> str:
    """``estimated``, or how many of each where they differ."""
    if len(origins) == 1:
        return next(iter(origins))
    return ", ".join(f"{count:,} {origin}" for origin, count in origins.items())


def methods_table(documents: Sequence[Mapping[str, Any]]) -> RenderableType:
    """What ``methods`` prints."""
    table = _table("method", "execution models", "what it does")
    for document in documents:
        table.add_row(
            Text(document["name"], no_wrap=True),
            ", ".join(document["models"]) if document["unsupported"] else "all",
            Text(document["summary"] + (f" (from {document['package']})" if "package" in document else "")),
        )
    return table


def warm_table(documents: Sequence[Mapping[str, Any]]) -> RenderableType:
    """What ``warm`` prints."""
    table = _table("model", "kernels compiled", "time", right=("kernels compiled", "time"))
    for document in documents:
        table.add_row(document["model"], f"{document['kernels']:,}", seconds_text(document["seconds"]))
    return table
