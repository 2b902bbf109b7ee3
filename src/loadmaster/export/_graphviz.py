"""Plans as pictures, by Graphviz."""

from __future__ import annotations

from typing import Any

from loadmaster.plan import Plan

__all__ = ["graphviz"]

COLOURS = (
    "#8dd3c7",
    "#fdb462",
    "#bebada",
    "#b3de69",
    "#80b1d3",
    "#fccde5",
    "#ffed6f",
    "#bc80bd",
    "#ccebc5",
    "#d9d9d9",
)
"""Fill colours of devices, repeated where there are more devices."""

CUT_COLOUR = "#d7301f"


def graphviz(plan: Plan, model: Any = None) -> str:
    """A DOT graph: ops coloured by device, edges between devices in red, a legend.

    >>> # loadmaster export plan.json --format dot | dot -Tsvg > plan.svg
    """
    problem, device = plan.problem(), plan.placement().device.tolist()
    graph = problem.graph
    lines = [
        f"digraph {_quoted(graph.name or 'model')} {{",
        "  rankdir=TB;",
        '  node [shape=box, style="rounded,filled", fontname="Helvetica", fontsize=10];',
        '  edge [color="#777777"];',
    ]
    for v, name in enumerate(graph.names):
        label = f"{name}\n{graph.op_types[v]}" if graph.op_types[v] else name
        lines.append(f'  op{v} [label={_quoted(label)}, fillcolor="{_colour(device[v])}"];')
    for u, v in zip(*(ends.tolist() for ends in graph.arcs), strict=True):
        cut = f' [color="{CUT_COLOUR}", penwidth=2]' if device[u] != device[v] else ""
        lines.append(f"  op{u} -> op{v}{cut};")
    lines += ["  subgraph cluster_legend {", '    label="devices"; fontname="Helvetica"; color="#777777";']
    for d, place in enumerate(problem.cluster.devices):
        label = f"{place.name} ({place.kind}), {device.count(d)} ops"
        lines.append(
            f'    device{d} [label={_quoted(label)}, shape=box, style=filled, fillcolor="{_colour(d)}"];'
        )
    return "\n".join([*lines, "  }", "}"]) + "\n"


def _colour(device: int) -> str:
    return COLOURS[device % len(COLOURS)]


def _quoted(text: str) -> str:
    r"""A DOT string. A backslash is doubled because labels give ``\N``, ``\G`` and ``\l`` a meaning."""
    escaped = (
        text.replace("\\", "\\\\")
        .replace('"', '\\"')
        .replace("\r", "")
        .replace("\n", "\\n")
        .replace("\0", "")
    )
    return f'"{escaped}"'
