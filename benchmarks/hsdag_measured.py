"""HSDAG rewarded by the metal: search on a model of the costs, run the findings, correct the model, keep the best run.

python -m benchmarks.hsdag_measured --budget 120 --clock wall

Inception-V3 on two devices of one core each, by our concurrent runtime. The winner is measured again, afresh, by
``optimize`` and then once more in a new process, beside one core. The same with ``--method auto`` for comparison.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

from benchmarks.openvino_runs import interval
from loadmaster.optimize import optimize
from loadmaster.runtime import Cache, Measurement
from loadmaster.runtime.openvino import parse_devices, run_plan
from loadmaster.zoo._export import export_model

DEVICES = ["A=cpu:core=0", "B=cpu:core=1"]


def main() -> None:
    """Entry point."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", default="inception-v3")
    parser.add_argument("--method", default="hsdag")
    parser.add_argument("--set", action="append", default=[], metavar="NAME=VALUE", help="of the method")
    parser.add_argument("--budget", type=float, default=120.0)
    parser.add_argument("--samples", type=int, default=30)
    parser.add_argument("--clock", default="auto", choices=["auto", "wall", "core"])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--folder", type=Path, default=Path("build/hsdag"))
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    path = options.folder / f"{options.model}.xml"
    if not path.exists():
        export_model(options.model, path)
    began = time.monotonic()
    found = optimize(
        path,
        parse_devices(DEVICES),
        budget=options.budget,
        method=options.method,
        parameters=dict(text.split("=", 1) for text in options.set),
        samples=options.samples,
        clock=options.clock,
        cache=Cache(options.folder / "measured.sqlite"),
        seed=options.seed,
        say=lambda text: print(f"{time.monotonic() - began:5.0f} s  {text}", flush=True),
    )
    for name, seconds in found.screened.items():
        print(f"screened: {name}: {1e3 * seconds:.1f} ms")
    for line in found.lines:
        show("optimize", line.name, line.measurement)
    clock = next(line.measurement.clock for line in found.lines if line.measurement is not None)
    print(f"pays: {found.pays}; {time.monotonic() - began:.0f} s so far", flush=True)
    if found.pays:
        again = run_plan(path, found.plan, samples=options.samples, clock=clock)
        for line in again.lines:
            show("afresh", line.name, line.measurement)
    print(f"clock {clock}; {time.monotonic() - began:.0f} s in all")


def show(when: str, name: str, measured: Measurement | None) -> None:
    """One line of a table."""
    if measured is not None:
        print(f"| {when} | {name} | {interval(measured)} | {measured.submodels} |", flush=True)


if __name__ == "__main__":
    main()
