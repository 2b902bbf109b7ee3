"""What HSDAG finds: the modelled setting of its paper, concurrent devices, speed, and a large graph.

python -m benchmarks.hsdag                  serial, CPU + dGPU: gap to the proven optimum, three seeds
python -m benchmarks.hsdag --paper          hsdag-paper there, 2,000 evaluations as published
python -m benchmarks.hsdag --concurrent     CPU + iGPU + dGPU against HEFT and annealing
python -m benchmarks.hsdag --rate           policy updates per minute on 1,000 ops and two devices
python -m benchmarks.hsdag --large          GNMT with 8 layers, 51,417 ops, on eight P100
python -m benchmarks.hsdag --zoo            large training graphs on many devices: equal seconds for annealing and hsdag

No method is given a start. Equal budgets are equal numbers of evaluations.
"""

from __future__ import annotations

import argparse
import time
from dataclasses import replace

import numpy as np

from benchmarks.hsdag_study import MODELS, study_problem
from loadmaster import api
from loadmaster.graph import layered
from loadmaster.hardware import accelerators, roofline
from loadmaster.placers import PLACERS, Budget
from loadmaster.placers.learned.hsdag import Hsdag
from loadmaster.problem import Concurrent, Problem, Serial, Solution

SEEDS = (0, 1, 2)


def gap(solution: Solution, optimum: float) -> float:
    """Per cent above the optimum."""
    return 100.0 * (solution.cost / optimum - 1.0)


def reached(solution: Solution, target: float) -> str:
    """Evaluations until a cost was reached."""
    return next((f"{p.evaluations:,}" for p in solution.history if p.cost <= target), "never")


def study(evaluations: int, levels: list[str]) -> None:
    """Serial, two devices: the optimum is proved by a minimum cut."""
    print(
        f"{evaluations:,} evaluations; gap to the proven optimum in %, worst of seeds {SEEDS} (each: in brackets)"
    )
    print(
        "| graph | level | ops | single | hsdag | within 1 % after | gap closed | wall s (CPU s) "
        "| hsdag+polish | random | local-search |"
    )
    print("|---|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|")
    for level in levels:
        for name in MODELS:
            problem = study_problem(name, level=level)
            best = PLACERS["min-cut"].place(problem, budget=Budget(seconds=20))
            assert best.optimal
            single = PLACERS["single"].place(problem, budget=Budget(evaluations=9))
            row: dict[str, list[float]] = {}
            after, clock, processor = [], [], []
            for method in ("hsdag", "hsdag+polish", "random", "local-search"):
                api._warm_up(PLACERS[method], problem)
                for seed in SEEDS:
                    began = time.perf_counter(), time.process_time()
                    found = PLACERS[method].place(problem, budget=Budget(evaluations=evaluations), seed=seed)
                    row.setdefault(method, []).append(gap(found, best.cost))
                    if method == "hsdag":
                        clock.append(time.perf_counter() - began[0])
                        processor.append(time.process_time() - began[1])
                        after.append(reached(found, 1.01 * best.cost))
            closed = 100.0 * (1.0 - max(row["hsdag"]) / max(gap(single, best.cost), 1e-12))
            text = {m: f"{max(g):.2f} ({', '.join(f'{x:.2f}' for x in g)})" for m, g in row.items()}
            print(
                f"| {name} | {level} | {problem.n} | {gap(single, best.cost):.2f} | {text['hsdag']} | "
                f"{' / '.join(after)} | {closed:.1f} % | {max(clock):.1f} ({max(processor):.1f}) | "
                f"{text['hsdag+polish']} | {text['random']} | {text['local-search']} |",
                flush=True,
            )


def paper() -> None:
    """As published, on the same graphs."""
    print("| graph | single | hsdag-paper | without learning | CPU s |")
    print("|---|--:|--:|--:|--:|")
    for name in MODELS:
        problem = study_problem(name)
        best = PLACERS["min-cut"].place(problem, budget=Budget(seconds=20))
        single = PLACERS["single"].place(problem, budget=Budget(evaluations=9))
        began = time.process_time()
        text = []
        for learn in (True, False):
            placer = api.configured("hsdag-paper", {"learn": learn})
            gaps = [
                gap(placer.place(problem, budget=Budget(evaluations=2001), seed=s), best.cost) for s in SEEDS
            ]
            text.append(f"{max(gaps):.2f} ({', '.join(f'{x:.2f}' for x in gaps)})")
        seconds = (time.process_time() - began) / (2 * len(SEEDS))
        print(
            f"| {name} | {gap(single, best.cost):.2f} | {text[0]} | {text[1]} | {seconds:.0f} |", flush=True
        )


def concurrent(graphs: list[str], evaluations: int, seconds: float, runs: int) -> None:
    """Three devices at once: milliseconds."""
    print(f"ms; hsdag with {evaluations:,} evaluations in {runs} runs, annealing {seconds:g} s")
    print(
        "| graph | ops | single | heft | annealing | hsdag (seeds) | hsdag+polish | against annealing | bound | CPU s |"
    )
    print("|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|")
    for name in graphs:
        problem = study_problem(name, level="kernels", igpu=True, model="concurrent")
        single, heft = (PLACERS[m].place(problem, budget=Budget(evaluations=9)) for m in ("single", "heft"))
        annealing = api.place(problem, "annealing", budget=seconds)
        alone, polished = (api.configured(m, {"runs": runs}) for m in ("hsdag", "hsdag+polish"))
        began = time.process_time()
        found = [alone.place(problem, budget=Budget(evaluations=evaluations), seed=s) for s in SEEDS]
        each = (time.process_time() - began) / len(SEEDS)
        polish = polished.place(problem, budget=Budget(evaluations=evaluations))
        worst = max(s.cost for s in found)
        print(
            f"| {name} | {problem.n} | {1e3 * single.cost:.3f} | {1e3 * heft.cost:.3f} | {1e3 * annealing.cost:.3f} | "
            f"{', '.join(f'{1e3 * s.cost:.3f}' for s in found)} | {1e3 * polish.cost:.3f} | "
            f"{100 * (worst / annealing.cost - 1):+.2f} % | {1e3 * annealing.bound:.3f} | {each:.0f} |",
            flush=True,
        )


def rate(seconds: float) -> None:
    """Updates of 64 placements per minute."""
    graph, cluster = layered(1000, seed=1), accelerators(1, 1)
    rng = np.random.default_rng(0)
    for model in (Serial(), Concurrent()):
        problem = Problem.make(
            graph, cluster, model, time=roofline(graph, cluster) * (0.5 + rng.random((graph.n, 2)))
        )
        api._warm_up(PLACERS["hsdag"], problem)
        began = time.process_time()
        found = PLACERS["hsdag"].place(problem, budget=Budget(seconds=seconds))
        updates, processor = found.evaluations / 64, time.process_time() - began
        print(
            f"{model.name}: {60 * updates / found.seconds:,.0f} updates a minute by the clock, "
            f"{60 * updates / processor:,.0f} per minute of processor time"
        )


def large(seconds: float) -> None:
    """GNMT in training: groups by heavy-edge matching, every placement costed on all ops."""
    problem = api.problem("zoo:gnmt-8", "p100-8")
    heft = PLACERS["heft"].place(problem, budget=Budget(evaluations=2))
    expert = PLACERS["expert"].place(problem, budget=Budget(evaluations=2))
    print(f"{problem.n:,} ops, 8 devices: heft {1e3 * heft.cost:.1f} ms, expert {1e3 * expert.cost:.1f} ms")
    placer = replace(Hsdag(), colocate="matching:1000", batch=16)
    began = time.process_time()
    found = placer.place(problem, budget=Budget(seconds=seconds))
    processor = time.process_time() - began
    print(
        f"hsdag {1e3 * found.cost:.1f} ms after {found.seconds:.0f} s (CPU {processor:.0f} s), {found.evaluations:,} "
        f"evaluations; gap to the bound {100 * found.gap:.1f} %"
    )


ZOO = (("gnmt-8", "p100-8"), ("gnmt-4", "p100-4"), ("transformer-xl-4", "p100-4"))
"""Models and clusters of ``--zoo``."""


def compare_on_zoo(seconds: float) -> None:
    """The same seconds for annealing and for hsdag, on graphs too large to walk over op by op."""
    print(f"ms; annealing and hsdag {seconds:g} s each; CPU s and evaluations in brackets")
    print("| graph | cluster | ops | heft | annealing | hsdag | bound |")
    print("|---|---|--:|--:|--:|--:|--:|")
    for name, cluster in ZOO:
        problem = api.problem(f"zoo:{name}", cluster)
        heft = PLACERS["heft"].place(problem, budget=Budget(evaluations=2))
        row, bound = [], 0.0
        large = {"colocate": "matching:1000", "batch": 16}
        for method, change in (("annealing", {}), ("hsdag", large)):
            placer = api.configured(method, change)
            api._warm_up(placer, problem)
            began = time.process_time()
            found = placer.place(problem, budget=Budget(seconds=seconds))
            processor = time.process_time() - began
            row.append(f"{1e3 * found.cost:.1f} ({processor:.0f}; {found.evaluations:,})")
            bound = max(bound, found.bound)
        print(
            f"| {name} | {cluster} | {problem.n:,} | {1e3 * heft.cost:.1f} | {' | '.join(row)} | {1e3 * bound:.1f} |",
            flush=True,
        )


def main() -> None:
    """Entry point."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    for name in ("paper", "concurrent", "rate", "large", "zoo"):
        parser.add_argument(f"--{name}", action="store_true")
    parser.add_argument("--evaluations", type=int, default=20_000)
    parser.add_argument("--seconds", type=float, default=30.0, help="of annealing, of --rate, of --large")
    parser.add_argument("--graphs", default=",".join(MODELS), help="of --concurrent")
    parser.add_argument("--runs", type=int, default=3, help="of --concurrent")
    parser.add_argument("--levels", default="kchain,kernels,ops")
    options = parser.parse_args()
    if options.paper:
        paper()
    elif options.concurrent:
        concurrent(options.graphs.split(","), options.evaluations, options.seconds, options.runs)
    elif options.rate:
        rate(options.seconds)
    elif options.large:
        large(options.seconds)
    elif options.zoo:
        compare_on_zoo(options.seconds)
    else:
        study(options.evaluations, options.levels.split(","))


if __name__ == "__main__":
    main()
