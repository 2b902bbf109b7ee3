"""A split of a model over ranks, as tables for people."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from loadmaster.report._tables import _facts, _table
from loadmaster.units import bytes_text, percent, seconds_text

__all__ = ["split_tables"]


def split_tables(document: Mapping[str, Any]) -> RenderableType:
    """Stages, the step, and what the usual rules would give."""
    what = "training" if document["training"] else "inference"
    proof = "proven optimal" if document["optimal"] else f"gap {percent(document['gap'])}"
    facts = {
        "model": f"{document['model']}, {what}, {document['layers']} layers",
        "schedule": f"{document['schedule']}, {document['microbatches']} microbatches, {document['ranks']} ranks",
        "costs": str(document["costs"]),
        "step": f"{seconds_text(document['step'])}, of which {percent(document['bubble'])} is bubble",
        "bound": f"{seconds_text(document['bound'])} by {document['bound_by']}; {proof}",
    }
    stages = _table(
        "rank",
        "from",
        "to",
        "forward",
        "backward",
        "memory",
        right=("forward", "backward", "memory"),
        title="Stages",
    )
    for row in document["stages"]:
        limit = "" if row["limit"] is None else f" of {bytes_text(row['limit'])}"
        stages.add_row(
            Text(row["rank"]),
            Text(row["first"], overflow="fold"),
            Text(row["last"], overflow="fold"),
            seconds_text(row["forward"]),
            seconds_text(row["backward"]),
            bytes_text(row["memory"]) + limit,
        )
    rules = _table(
        "split",
        "step",
        "takes longer",
        "bubble",
        "",
        right=("step", "takes longer", "bubble"),
        title="In the same simulation",
    )
    rules.add_row("this plan", seconds_text(document["step"]), "", percent(document["bubble"]), "")
    for rule, row in document["rules"].items():
        if row["step"] is None:
            rules.add_row(rule, "–", "–", "–", Text(row["why"]))
            continue
        rules.add_row(
            rule,
            seconds_text(row["step"]),
            f"{row['ratio']:.3f} x",
            percent(row["bubble"]),
            Text(row["why"]),
        )
    return Group(_facts(facts), Text(), stages, rules)
