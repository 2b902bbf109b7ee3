"""What each part of HSDAG is worth: every variant with the same number of evaluations, three seeds.

python -m benchmarks.hsdag_ablations                   the modelled paper hardware, serial, CPU + dGPU
python -m benchmarks.hsdag_ablations --paper           the same for hsdag-paper (levels, state update, learning)
python -m benchmarks.hsdag_ablations --concurrent      three devices at once, where learning has room

Serial: gap to the proven optimum. Concurrent: gap to the best that any variant found.
"""

from __future__ import annotations

import argparse
import time

from benchmarks.hsdag_study import MODELS, study_problem
from loadmaster import api
from loadmaster.placers import PLACERS, Budget
from loadmaster.reproduce._hsdag_variants import PAPER_VARIANTS, VARIANTS

SEEDS = (0, 1, 2)


def main() -> None:
    """Entry point."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--paper", action="store_true")
    parser.add_argument("--concurrent", action="store_true")
    parser.add_argument("--evaluations", type=int, help="by default 4,000, and 500 for hsdag-paper")
    parser.add_argument("--level", default="kernels", choices=["kchain", "kernels", "ops"])
    parser.add_argument("--models", default=",".join(MODELS))
    options = parser.parse_args()
    evaluations = options.evaluations or (500 if options.paper else 4000)
    names = options.models.split(",")
    kind = "concurrent" if options.concurrent else "serial"
    problems = {
        name: study_problem(name, level=options.level, model=kind, igpu=options.concurrent) for name in names
    }
    began = time.process_time()
    costs: dict[str, dict[str, list[float]]] = {}
    variants, method = (PAPER_VARIANTS, "hsdag-paper") if options.paper else (VARIANTS, "hsdag")
    for variant, change in variants.items():
        placer = api.configured(method, change)
        costs[variant] = {
            name: [placer.place(p, budget=Budget(evaluations=evaluations), seed=s).cost for s in SEEDS]
            for name, p in problems.items()
        }
    print(f"{kind}, {options.level}, {evaluations:,} evaluations: gap in %, mean of seeds {SEEDS} (worst)")
    print("| variant | " + " | ".join(names) + " |")
    print("|---|" + "--:|" * len(names))
    best = {
        name: min(min(row[name]) for row in costs.values())
        if options.concurrent
        else PLACERS["min-cut"].place(p, budget=Budget(seconds=20)).cost
        for name, p in problems.items()
    }
    for variant, row in costs.items():
        cells = []
        for name in names:
            gaps = [100 * (cost / best[name] - 1) for cost in row[name]]
            cells.append(f"{sum(gaps) / len(gaps):.2f} ({max(gaps):.2f})")
        print(f"| {variant} | " + " | ".join(cells) + " |")
    print(f"{time.process_time() - began:.0f} CPU s")


if __name__ == "__main__":
    main()
