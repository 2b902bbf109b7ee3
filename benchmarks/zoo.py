"""What the models of the zoo count: ``python -m benchmarks.zoo --parts sizes`` or ``--parts counts``.

``sizes`` lists the models; ``counts`` compares their parameters and multiply-adds with what is published (the tests
assert it). What placing them gives is ``python -m benchmarks.methods zoo``.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from contextlib import suppress
from functools import partial

from loadmaster import zoo
from loadmaster.errors import InputError
from loadmaster.studies import Case, Page, Row, Scope, Study
from loadmaster.zoo._published import PUBLISHED, Published

__all__ = ["STUDY", "count", "size"]


def options(parser: argparse.ArgumentParser) -> None:
    """Which tables."""
    parser.add_argument("--parts", default="sizes,counts")


def cases(scope: Scope) -> list[Case]:
    """A model, or a published number."""
    parts = scope["parts"].split(",")
    names = [name for name in zoo.names() if not name.startswith("layered") and scope.only in name]
    found = [
        Case({"part": "sizes", "model": name}, partial(size, name)) for name in names if "sizes" in parts
    ]
    found += [
        Case({"part": "counts", "model": one.name, "quantity": one.quantity}, partial(count, one))
        for one in PUBLISHED
        if "counts" in parts and scope.only in one.name
    ]
    return found


def count(published: Published) -> Row:
    """Our count beside the published one."""
    model = zoo.model(published.name)
    if published.quantity == "parameters":
        ours = float(model.parameters)
    else:
        tokens = _tokens(model) if published.quantity == "macs per token" else 1
        ours = model.macs / tokens
    off = abs(ours / published.value - 1)
    return {
        "value": published.value,
        "tolerance": published.tolerance,
        "source": published.source,
        "ours": ours,
        "off": off,
        "holds": off <= published.tolerance,
    }


def _tokens(model: zoo.ZooModel) -> int:
    """Number of tokens that come in."""
    rows, columns = model.graph.output_shapes[model.inputs[0]][0]
    return rows * columns


def size(name: str) -> Row:
    """What a model has; its ops in inference and in training (None where it is for inference only)."""
    model = zoo.model(name)
    trained = bool(model.graph.backward.any())
    ops = {trained: model.graph.n}
    with suppress(InputError):
        ops[not trained] = zoo.graph(f"{name}?training={int(not trained)}").n
    return {
        "parameters": model.parameters,
        "macs": model.macs,
        "default": "training" if trained else "inference",
        "inference": ops[False],
        "training": ops.get(True),
    }


def write(page: Page, scope: Scope, rows: Sequence[Row]) -> None:
    """The tables of docs/zoo.md."""
    if sizes := [row for row in rows if row["part"] == "sizes"]:
        page.section("Sizes")
        page.table(
            ("model", "by default", "ops, inference", "ops, training", "parameters", "multiply-adds"),
            [
                (
                    f"`{row['model']}`",
                    row["default"],
                    row["inference"],
                    "" if row["training"] is None else row["training"],
                    row["parameters"],
                    f"{row['macs'] / 1e9:.4g} G",
                )
                for row in sizes
            ],
        )
    if counts := [row for row in rows if row["part"] == "counts"]:
        wrong = [row["model"] for row in counts if not row["holds"]]
        page.section("Counts")
        page.text(f"Off by more than allowed: {', '.join(wrong) or 'none'}.")
        page.table(
            ("model", "quantity", "published", "here", "off by", "allowed", "source"),
            [
                (
                    f"`{row['model']}`",
                    row["quantity"],
                    f"{row['value']:,.0f}" if row["tolerance"] == 0 else f"{row['value'] / 1e6:,.6g} million",
                    f"{row['ours']:,.0f}",
                    *(f"{100 * row[key]:.2g} %" if row[key] else "0" for key in ("off", "tolerance")),
                    row["source"],
                )
                for row in counts
            ],
        )


STUDY = Study("zoo", "The models of the zoo", cases, write, options)

if __name__ == "__main__":
    raise SystemExit(STUDY.main())
