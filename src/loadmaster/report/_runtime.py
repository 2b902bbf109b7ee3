"""What the commands that run models print."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import RenderableType
from rich.text import Text

from loadmaster.report._tables import _table

__all__ = ["zoo_documents", "zoo_table"]


def zoo_documents() -> list[dict[str, Any]]:
    """The models of the zoo by name, and whether ``zoo export`` writes them."""
    from loadmaster import zoo
    from loadmaster.zoo._export import EXPORTABLE

    documents = []
    for name in zoo.names():
        model = zoo.model(name)
        documents.append(
            {
                "name": name,
                "ops": model.graph.n,
                "parameters": model.parameters,
                "macs": model.macs,
                "runs": name in EXPORTABLE,
            }
        )
    return documents


def zoo_table(documents: Sequence[Mapping[str, Any]]) -> RenderableType:
    """What ``zoo`` prints."""
    table = _table(
        "model",
        "ops",
        "parameters",
        "multiply-adds",
        "zoo export",
        right=("ops", "parameters", "multiply-adds"),
    )
    for document in documents:
        table.add_row(
            Text(document["name"]),
            f"{document['ops']:,}",
            f"{document['parameters']:,}" if document["parameters"] else "–",
            f"{document['macs']:,}" if document["macs"] else "–",
            "yes" if document["runs"] else "",
        )
    return table
