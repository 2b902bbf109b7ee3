"""The second half of ``make demo``: two models split over two ranks, by Loadmaster and in equal layers.

Both splits run under torchrun, are compared with the unsplit model, and then take turns.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from pathlib import Path

from benchmarks.torch_rounds import measure_rounds, median, request_of
from loadmaster.errors import LoadmasterError, RunTimeoutError
from loadmaster.split import split
from loadmaster.units import percent, seconds_text

MODELS = {"GPT, 16k words": "gpt", "ResNet-50, half width": "resnet"}
HERE = Path(__file__).with_name("demo_models.py")


def main() -> int:
    """Split, run, and print step times side by side."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", default="build/demo", help="where plans go")
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument(
        "--limit", type=float, default=120.0, help="seconds for all; rounds take what is left"
    )
    parser.add_argument("--microbatches", type=int, default=8)
    given = parser.parse_args()
    folder = Path(given.folder)
    folder.mkdir(parents=True, exist_ok=True)
    cores = sorted(os.sched_getaffinity(0))
    rows, end = [], time.monotonic() + given.limit
    try:
        for left, (title, function) in zip(range(len(MODELS), 0, -1), MODELS.items(), strict=True):
            share = (end - time.monotonic()) / left
            rows.append(_one(title, function, folder, cores, given, share))
    except LoadmasterError as error:
        print(f"demo: {error}", file=sys.stderr)
        return 4
    print()
    print(
        "Time of one training step on two ranks (1F1B), median of rounds in turn; loss and gradients equal the unsplit"
    )
    print("model's:")
    print(f"  {'':24}{'equal layers':>14}{'Loadmaster':>14}{'gain':>9}{'predicted':>12}{'gap':>16}")
    for title, times, predicted, gap in rows:
        line = f"  {title:24}{'too busy':>14}{'to measure':>14}{'-':>9}"
        if times is not None:
            usual, ours = times
            line = f"  {title:24}{seconds_text(usual):>14}{seconds_text(ours):>14}{usual / ours:>8.2f}x"
        print(f"{line}{predicted:>11.2f}x{gap:>16}")
    if len(cores) < 2:
        print("There is one core for both ranks, so a step takes the work of both, whatever the split.")
    elif os.getloadavg()[0] > len(cores) + 2:
        print(
            "The machine was busy with other work, which blurs the gain: run `make demo` again when it is idle."
        )
    return 0


def _one(
    title: str, function: str, folder: Path, cores: list[int], given: argparse.Namespace, share: float
) -> tuple[str, tuple[float, float] | None, float, str]:
    """Title, step times of equal layers and ours (None where the machine had no time for them), predicted gain, gap."""
    from loadmaster.torch import load_source

    began = time.monotonic()
    spec = f"{HERE}:{function}"
    print(f"{title}: measuring its ops and placing its layers …", file=sys.stderr, flush=True)
    found = split(load_source(spec), 2, microbatches=given.microbatches, budget=5.0)
    plans = {}
    for name, rule in (("equal layers", "equal layers"), ("loadmaster", None)):
        path = folder / f"{function}-{name.replace(' ', '-')}.json"
        found.plan(rule).save(path)
        plans[name] = str(path)
    print(
        f"{title}: stages chosen after {time.monotonic() - began:.0f} s; running both splits on two ranks …",
        file=sys.stderr,
        flush=True,
    )
    pinned = cores[:2] if len(cores) >= 2 else []
    # Ranks take about as long to start and to compare with the unsplit model as it took to choose the stages.
    seconds = min(25.0, share - 2 * (time.monotonic() - began))
    request = request_of(spec, plans, rounds=given.rounds, seconds=seconds, cores=pinned)
    times = None
    try:
        measured = measure_rounds(request, 2, timeout=max(30.0, share - (time.monotonic() - began)))
        times = median(measured["times"]["equal layers"]), median(measured["times"]["loadmaster"])
    except RunTimeoutError as error:
        print(f"{title}: {error}", file=sys.stderr, flush=True)
    entry = found.rules["equal layers"]
    assert not isinstance(entry, str)
    gap = "proven optimal" if found.solution.optimal else percent(found.solution.gap)
    return title, times, entry[1].cost / found.solution.cost, gap


if __name__ == "__main__":
    sys.exit(main())
