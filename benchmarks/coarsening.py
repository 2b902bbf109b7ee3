"""What the coarsening rules give, how long they take, and what placing groups costs and saves.

python -m benchmarks.coarsening                   sizes and CPU seconds of every rule
python -m benchmarks.coarsening --placing         local search on all ops and on groups, equal evaluations
"""

from __future__ import annotations

import argparse
import time
from functools import partial

from loadmaster import api
from loadmaster.problem.coarsening import coarsen
from loadmaster.studies import Case, Row, Scope, Study, placed

__all__ = ["STUDY"]

GRAPHS = (
    ("zoo:resnet-50", "p100-2"),
    ("zoo:inception-v3", "p100-2"),
    ("zoo:bert-base", "p100-4"),
    ("zoo:gnmt-8", "p100-8"),
    ("zoo:layered-50000", "p100-8"),
)
RULES = ("colour", "chain", "constants", "zero", "scope:1", "scope:2", "matching:1000", "chain,matching:100")
PLACING = (
    ("zoo:inception-v3", "p100-2", "serial", ("chain", "chain,matching:60")),
    ("zoo:inception-v3", "p100-2", "pipeline", ("chain", "chain,matching:60")),
    ("zoo:inception-v3", "p100-2", "concurrent", ("chain", "chain,matching:60")),
    ("zoo:amoebanet", "p100-4", "concurrent", ("chain", "matching:800", "matching:200")),
    ("zoo:layered-3000", "4acc+1cpu", "pipeline", ("chain", "matching:1000", "matching:300")),
    ("zoo:layered-3000", "4acc+1cpu", "concurrent", ("chain", "matching:1000", "matching:300")),
)


def options(parser: argparse.ArgumentParser) -> None:
    """Sizes, or placing."""
    parser.add_argument("--placing", action="store_true", help="place groups instead of measuring rules")
    parser.add_argument("--evaluations", type=int, default=20_000)


def cases(scope: Scope) -> list[Case]:
    """A case per graph and rule."""
    limit = scope["evaluations"]
    found = [
        Case({"graph": graph, "rule": rule}, partial(size, graph, cluster, rule))
        for graph, cluster in GRAPHS
        for rule in RULES
    ]
    if scope["placing"]:
        found = [
            Case(
                {"graph": graph, "model": model, "rule": rule or "none", "limit": limit},
                partial(place, graph, cluster, model, rule, limit),
            )
            for graph, cluster, model, rules in PLACING
            for rule in ("", *rules)
        ]
    found = [case for case in found if scope.only in case.key["graph"]]
    return found[:2] if scope.quick else found


def size(graph: str, cluster: str, rule: str) -> Row:
    """Groups and CPU seconds; the rule is run once before, so that compiling does not count."""
    problem = api.problem(graph, cluster)
    coarsen(problem, rule)
    began = time.process_time()
    coarse = coarsen(problem, rule).coarse
    seconds = time.process_time() - began
    return {"ops": problem.n, "groups": coarse.n, "classes": coarse.classes, "CPU s": seconds}


def place(graph: str, cluster: str, model: str, rule: str, evaluations: int) -> Row:
    """Cost of the full placement."""
    problem = api.problem(graph, cluster, model)
    placed(problem, "local-search", evaluations=2, coarsen=rule or None)  # compiles
    began = time.process_time()
    groups = coarsen(problem, rule).coarse.n if rule else problem.n
    row = placed(problem, "local-search", evaluations=evaluations, coarsen=rule or None)
    seconds = time.process_time() - began
    return {"groups": groups, "cost ms": 1e3 * row["cost"], "gap %": 100 * row["gap"], "CPU s": seconds}


STUDY = Study("coarsening", "Coarsening rules", cases, options=options)

if __name__ == "__main__":
    raise SystemExit(STUDY.main())
