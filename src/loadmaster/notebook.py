"""Small HTML tables for notebooks (``_repr_html_``); styled by the notebook, so that they suit light and dark."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

__all__ = ["facts_html", "rows_html"]


def facts_html(title: str, facts: Iterable[tuple[str, str]]) -> str:
    """A title, and labels with their values.

    >>> facts_html("A graph", [("ops", "3")])
    '<b>A graph</b><table><tbody><tr><th>ops</th><td>3</td></tr></tbody></table>'
    """
    rows = "".join(f"<tr><th>{escape(label)}</th><td>{escape(value)}</td></tr>" for label, value in facts)
    return f"<b>{escape(title)}</b><table><tbody>{rows}</tbody></table>"


def rows_html(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table with a head."""
    top = "".join(f"<th>{escape(cell)}</th>" for cell in head)
    body = "".join("<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in rows)
    return f"<table><thead><tr>{top}</tr></thead><tbody>{body}</tbody></table>"
