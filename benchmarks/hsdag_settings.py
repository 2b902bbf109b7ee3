"""Settings of HSDAG compared on graphs that are none of the paper's.

    python -m benchmarks.hsdag_settings
    python -m benchmarks.hsdag_settings --settings default lean=0,elites=0 batch=32,learning_rate=0.01 method=rnn

Kernels of eight networks of the zoo, chains of them joined, on the modelled CPU and GPU of the paper with the GPU 1.1
and 2.2 times as fast. Mean per cent above ``auto`` with three seconds, under both models; and the worst problem.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from loadmaster import api, zoo
from loadmaster.problem import Problem
from loadmaster.problem.coarsening import coarsen
from loadmaster.reproduce._hsdag_problems import kernel_network, machine

GRAPHS = (
    "amoebanet?layers=6&training=0", "two-tower", "gpt2?layers=4", "transformer-xl-2?training=0", "resnet-101", "unet",
    "layered-100?width=6&seed=5", "wavenet-18?training=0",
)  # fmt: skip
RATIOS = (1.1, 2.2)


class Given(NamedTuple):
    name: str
    model: str
    problem: Problem
    best: float


def problems(seconds: float) -> Iterator[Given]:
    """What is placed, and what ``auto`` makes of it."""
    for graph in GRAPHS:
        found = zoo.model(graph)
        network = found if graph.startswith("layered") else kernel_network(found)
        for model in ("concurrent", "serial"):
            for ratio in RATIOS:
                scale = {"cpu": 0.01 * ratio, "gpu": 0.01}
                fine = api.problem(network, machine("cpu", "gpu"), model, scale_to=scale)
                problem = coarsen(fine, "chain").coarse
                best = api.place(problem, "auto", budget=seconds).cost
                yield Given(f"{graph} {ratio}", model, problem, best)


def above(given: Given, settings: str, evaluations: int, seeds: int) -> float:
    """Mean per cent above the best."""
    pairs = [pair.split("=") for pair in settings.split(",") if "=" in pair]
    parameters = {key: value for key, value in pairs if key != "method"}
    placer = api.configured(dict(pairs).get("method", "hsdag"), parameters)
    costs = [api.place(given.problem, placer, evaluations=evaluations, seed=s).cost for s in range(seeds)]
    return 100.0 * float(np.mean(np.log(np.array(costs) / given.best)))


def main(arguments: Sequence[str] | None = None) -> None:
    """The command."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--settings", nargs="+", default=["default", "lean=0", "elites=0", "lean=0,elites=0"])
    parser.add_argument("--evaluations", type=int, default=2000)
    parser.add_argument("--seeds", type=int, default=3)
    options = parser.parse_args(arguments)
    given = list(problems(3.0))
    print("| settings | concurrent | serial | worst |\n|---|--:|--:|--:|")
    for settings in options.settings:
        found = np.array([above(one, settings, options.evaluations, options.seeds) for one in given])
        shown = [found[[one.model == model for one in given]].mean() for model in ("concurrent", "serial")]
        print(f"| {settings} | {shown[0]:.2f} % | {shown[1]:.2f} % | {found.max():.1f} % |", flush=True)


if __name__ == "__main__":
    main()
