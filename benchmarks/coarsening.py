"""What the coarsening rules give, how long they take, and what placing groups costs and saves.

python -m benchmarks.coarsening                   sizes and CPU seconds of every rule
python -m benchmarks.coarsening --placing         local search on all ops and on groups, equal evaluations
"""

from __future__ import annotations

import argparse
import time

from loadmaster import api
from loadmaster.problem.coarsening import coarsen

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


def sizes() -> None:
    """Groups and CPU seconds by rule; every rule is run once before, so that compiling does not count."""
    print(f"{'graph':20} {'rule':20} {'ops':>7} {'groups':>7} {'classes':>8} {'CPU s':>6}")
    for name, cluster in GRAPHS:
        problem = api.problem(name, cluster)
        for rule in RULES:
            coarsen(problem, rule)
            began = time.process_time()
            coarse = coarsen(problem, rule).coarse
            seconds = time.process_time() - began
            print(f"{name:20} {rule:20} {problem.n:7} {coarse.n:7} {coarse.classes:8} {seconds:6.2f}")


def placing(evaluations: int) -> None:
    """Cost of the full placement, relative to placing every op by itself."""
    print(f"{'graph':18} {'model':11} {'rule':18} {'groups':>6} {'cost ms':>9} {'gap %':>6} {'CPU s':>6}")
    for name, cluster, model, rules in PLACING:
        problem = api.problem(name, cluster, model)
        for rule in (None, *rules):
            api.place(problem, "local-search", evaluations=2, coarsen=rule)
            began = time.process_time()
            groups = problem.n if rule is None else coarsen(problem, rule).coarse.n
            found = api.place(problem, "local-search", evaluations=evaluations, coarsen=rule)
            seconds = time.process_time() - began
            label = f"{name:18} {model:11} {rule or 'none':18} {groups:6}"
            print(f"{label} {1e3 * found.cost:9.3f} {100 * found.gap:6.1f} {seconds:6.1f}")


def main() -> None:
    """Entry point."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--placing", action="store_true")
    parser.add_argument("--evaluations", type=int, default=20_000)
    options = parser.parse_args()
    if options.placing:
        placing(options.evaluations)
    else:
        sizes()


if __name__ == "__main__":
    main()
