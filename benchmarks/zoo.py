"""The models of the zoo: what they count, and what placing them on their clusters gives.

``python -m benchmarks.zoo --sizes`` lists the models; ``python -m benchmarks.zoo --counts`` compares their
parameters and multiply-adds with what is published.
``python -m benchmarks.zoo`` places every model on its cluster, with the same number of evaluations for every
method, so that the table repeats exactly (``--quick``: a few small models). They print Markdown, or JSON
with ``--json``.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from contextlib import suppress
from typing import Any

from loadmaster import api, zoo
from loadmaster.errors import InfeasibleError, InputError
from loadmaster.problem import Solution
from loadmaster.problem.bounds import lower_bound
from loadmaster.zoo._published import PUBLISHED, Published

__all__ = ["CASES", "METHODS", "compare", "count", "size"]

METHODS = ("single", "expert", "heft", "local-search")

CASES = (
    ("inception-v3", "hsdag"),
    ("resnet-50", "hsdag"),
    ("bert-base?seq=8", "hsdag"),
    ("rnnlm-2", "p100-2"),
    ("rnnlm-4", "p100-4"),
    ("rnnlm-8", "p100-8"),
    ("gnmt-2", "p100-2"),
    ("gnmt-4", "p100-4"),
    ("gnmt-8", "p100-8"),
    ("transformer-xl-2", "p100-2"),
    ("transformer-xl-4", "p100-4"),
    ("transformer-xl-8", "p100-8"),
    ("inception-v3?batch=32&training=1", "p100-2"),
    ("inception-v3?batch=64&training=1", "p100-2"),
    ("amoebanet", "p100-4"),
    ("wavenet-18", "p100-2"),
    ("wavenet-36", "p100-4"),
    ("resnet-101?batch=32&training=1", "p100-2"),
    ("bert-large?batch=8&seq=384&training=1", "p100-4"),
    ("gpt2?batch=4&training=1", "p100-4"),
    ("gpt2", "p100-2"),
    ("gpt2-decode", "p100-2"),
    ("unet?batch=4&training=1", "p100-2"),
    ("switch-base-8?training=1", "p100-4"),
)
"""Model and cluster: first those of HSDAG, then those of GDP and GO, then all else."""

EVALUATIONS = 20_000
OPS_SIMULATED = 50_000_000
"""A method gets :data:`EVALUATIONS`, or fewer for large graphs, so that at most so many ops are simulated."""

QUICK = (
    "resnet-50",
    "bert-base?seq=8",
    "rnnlm-2",
    "transformer-xl-2",
    "wavenet-18",
    "switch-base-8?training=1",
)


def count(published: Published) -> dict[str, Any]:
    """Our count beside the published one."""
    model = zoo.model(published.name)
    if published.quantity == "parameters":
        ours = float(model.parameters)
    else:
        tokens = _tokens(model) if published.quantity == "macs per token" else 1
        ours = model.macs / tokens
    off = abs(ours / published.value - 1)
    return {
        **published._asdict(),
        "ours": ours,
        "off": off,
        "holds": off <= published.tolerance,
    }


def _tokens(model: zoo.ZooModel) -> int:
    """Number of tokens that come in."""
    rows, columns = model.graph.output_shapes[model.inputs[0]][0]
    return rows * columns


def size(name: str) -> dict[str, Any]:
    """What a model has; its ops in inference and in training (None where it is for inference only)."""
    model = zoo.model(name)
    trained = bool(model.graph.backward.any())
    ops = {trained: model.graph.n}
    with suppress(InputError):
        ops[not trained] = zoo.graph(f"{name}?training={int(not trained)}").n
    return {
        "model": name,
        "parameters": model.parameters,
        "macs": model.macs,
        "default": "training" if trained else "inference",
        "inference": ops[False],
        "training": ops.get(True),
    }


def compare(name: str, cluster: str, *, most: int = EVALUATIONS, seed: int = 0) -> dict[str, Any]:
    """What each method finds for a model of the zoo, each within the same number of evaluations."""
    began = time.perf_counter()
    problem = api.problem(f"zoo:{name}", cluster, "concurrent")
    built = time.perf_counter() - began
    evaluations = min(most, OPS_SIMULATED // problem.n)
    row: dict[str, Any] = {
        "model": name,
        "cluster": cluster,
        "ops": problem.n,
        "evaluations": evaluations,
        "build_seconds": built,
        "memory": float(problem.memory.sum()),
        "bound": lower_bound(problem).value,
    }
    for method in METHODS:
        try:
            row[method] = _outcome(api.place(problem, method, evaluations=evaluations, seed=seed))
        except InfeasibleError as error:
            row[method] = {"cost": None, "why": str(error)}
    found = [row[method]["cost"] for method in METHODS if row[method]["cost"] is not None]
    row["gap"] = 1 - row["bound"] / min(found)
    return row


def _outcome(solution: Solution) -> dict[str, Any]:
    return {"cost": solution.cost, "seconds": solution.seconds, "evaluations": solution.evaluations}


# -- printing ------------------------------------------------------------------------------------------------


def _print_sizes(rows: list[dict[str, Any]]) -> None:
    print("| model | by default | ops, inference | ops, training | parameters | multiply-adds |")
    print("|---|---|--:|--:|--:|--:|")
    for row in rows:
        training = "" if row["training"] is None else f"{row['training']:,}"
        print(
            f"| `{row['model']}` | {row['default']} | {row['inference']:,} | {training} | {row['parameters']:,} "
            f"| {row['macs'] / 1e9:.4g} G |"
        )


def _print_counts(rows: list[dict[str, Any]]) -> None:
    print("| model | quantity | published | here | off by | allowed | source |")
    print("|---|---|--:|--:|--:|--:|---|")
    for row in rows:
        exact = row["tolerance"] == 0
        value = f"{row['value']:,.0f}" if exact else f"{row['value'] / 1e6:,.6g} million"
        ours = f"{row['ours']:,.0f}"
        off, allowed = (f"{100 * row[key]:.2g} %" if row[key] else "0" for key in ("off", "tolerance"))
        print(
            f"| `{row['name']}` | {row['quantity']} | {value} | {ours} | {off} | {allowed} | {row['source']} |"
        )


def _print_row(row: dict[str, Any]) -> None:
    best = min(row[m]["cost"] for m in METHODS if row[m]["cost"] is not None)
    cells = []
    for method in METHODS:
        cost = row[method]["cost"]
        text = "none" if cost is None else f"{1e3 * cost:.4g}"
        cells.append(f"**{text}**" if cost == best else text)
    print(
        f"| `{row['model']}` | {row['cluster']} | {row['ops']:,} | {row['evaluations']:,} | {' | '.join(cells)} "
        f"| {1e3 * row['bound']:.4g} | {100 * row['gap']:.1f} % |",
        flush=True,
    )


def main(arguments: list[str] | None = None) -> int:
    """The command; exit code 1 if a count does not hold."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.zoo", description=__doc__)
    parser.add_argument("--sizes", action="store_true", help="list the models")
    parser.add_argument("--counts", action="store_true", help="compare with published counts")
    parser.add_argument("--quick", action="store_true", help="a few small models, 2,000 evaluations each")
    parser.add_argument(
        "--evaluations", type=int, default=EVALUATIONS, help="at most, for each method (20,000)"
    )
    parser.add_argument("--only", default="", help="models whose name contains this")
    parser.add_argument("--json", action="store_true", help="print JSON")
    options = parser.parse_args(arguments)
    if options.sizes:
        rows = [size(name) for name in zoo.names() if not name.startswith("layered")]
        if options.json:
            print(json.dumps(rows, indent=2))
        else:
            _print_sizes(rows)
        return 0
    if options.counts:
        rows = [count(published) for published in PUBLISHED]
        if options.json:
            print(json.dumps(rows, indent=2))
        else:
            _print_counts(rows)
        return 0 if all(row["holds"] for row in rows) else 1
    cases = [case for case in CASES if options.only in case[0] and (not options.quick or case[0] in QUICK)]
    most = min(options.evaluations, 2000) if options.quick else options.evaluations
    if not options.json:
        print("| model | cluster | ops | budget | single | expert | HEFT | local search | bound | gap |")
        print("|---|---|--:|--:|--:|--:|--:|--:|--:|--:|")
    rows = []
    for name, cluster in cases:
        rows.append(compare(name, cluster, most=most))
        if not options.json:
            _print_row(rows[-1])
    if options.json:
        print(json.dumps(rows, indent=2))
    return 0


if __name__ == "__main__":
    sys.exit(main())
