"""Op times against whole stages: is a stage's share of the step what the sum over its ops says?

    python -m benchmarks.torch_shares --rows shares.jsonl
    python -m benchmarks.torch_shares --models resnet-50,unet --splits 3

Every op of a model is measured in passes through the whole of it, forward and backward, in CPU time; then whole stages
of random splits into 2, 3 and 4 stages by layers. A row has the ratio of the sums and the largest error of a stage's
share in points; it has the same after a correction by the stages of *another* split, as `split` does it. The same
stages are measured twice: how far the two agree is the noise of this machine.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.torch_equality import random_split, read


def shares(costs: Any, cut: Any, measured: Any) -> dict[str, float]:
    """Ratio of the sums and largest error of a share, in points."""
    stage = np.array(cut.stage_of)
    ours = np.array([(costs.forward + costs.backward)[stage == s].sum() for s in range(cut.count)])
    ours[-1] += sum(costs.loss)
    theirs = np.array([one.forward + one.backward for one in measured])
    error = 100 * np.abs(ours / ours.sum() - theirs / theirs.sum()).max()
    return {"ratio": float(ours.sum() / theirs.sum()), "points": float(error)}


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure what is missing, and print a table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--models", default="all")
    parser.add_argument("--splits", type=int, default=4)
    parser.add_argument("--small", action="store_true")
    parser.add_argument("--rows", default="torch-shares.jsonl")
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args(arguments)
    from benchmarks.torch_models import MODELS, build
    from loadmaster.graph.torch import capture
    from loadmaster.runtime.torch import corrected, cut_stages, measure_ops, measure_stages

    rows = Path(given.rows)
    names = list(MODELS) if given.models == "all" else given.models.split(",")
    for name in names:
        if any(row["model"] == name for row in read(rows)):
            continue
        case = build(name, large=not given.small)
        captured = capture(case.model, case.example, training=True, name=name)
        costs = measure_ops(captured, loss=case.loss, target=case.target)
        known = {"loss": case.loss, "target": case.target}
        before = None
        for number in range(given.splits):
            for stages in (2, 3, 4):
                rng = random.Random(f"{name} {stages} {number}")
                cut = cut_stages(captured, random_split(captured, stages, "layer", rng), stages)
                measured, again = (measure_stages(captured, cut, **known) for _ in range(2))
                row: dict[str, Any] = {"model": name, "split": number, "stages": stages}
                row |= shares(costs, cut, measured)
                if before is not None:
                    row["corrected"] = shares(corrected(costs, *before), cut, measured)["points"]
                before = (cut, measured)
                row["noise"] = shares(corrected(costs, cut, again), cut, measured)["points"]
                with rows.open("a") as file:
                    file.write(json.dumps(row) + "\n")
        print(name, file=sys.stderr, flush=True)
    found = [row for row in read(rows) if row["model"] in names]
    print(json.dumps(found) if given.json else table(found))
    return 0


def table(rows: list[dict[str, Any]]) -> str:
    """A line per model."""
    lines = [
        "| model | splits | sum over ops / stages | points, median | worst | corrected, worst | noise, worst |",
        "|---|--:|--:|--:|--:|--:|--:|",
    ]
    for name in dict.fromkeys(row["model"] for row in rows):
        mine = [row for row in rows if row["model"] == name]
        ratio = [row["ratio"] for row in mine]
        points = [row["points"] for row in mine]
        after = max((row["corrected"] for row in mine if "corrected" in row), default=float("nan"))
        lines.append(
            f"| {name} | {len(mine)} | {min(ratio):.2f} to {max(ratio):.2f} | {np.median(points):.1f} | "
            f"{max(points):.1f} | {after:.1f} | {max(row['noise'] for row in mine):.1f} |"
        )
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
