"""Placers that are told a wrong model, and may ask the machine 10, 30, 100 or 300 times.

    python -m benchmarks.metal_gap --rows FILE [--graphs 40] [--seeds 5] [--methods model,fit,...]

The machines are those of :mod:`benchmarks.machines`, the graphs those of :mod:`benchmarks.hsdag_transfer`, which the
weights of the package have not seen the families of. Regret is the true cost of what was measured best,
against the best placement of the true problem that is known.
"""

from __future__ import annotations

import argparse
import math
import time
import zlib
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import lru_cache, partial
from typing import Any

import numpy as np

from benchmarks.hsdag_transfer import REFERENCE, held_out, held_out_problem
from benchmarks.machines import (
    KINDS,
    RECORDED,
    Devices,
    Machine,
    Truth,
    off_by,
    recorded,
    recordings,
    wrong_by,
)
from loadmaster.errors import InputError
from loadmaster.placers import Budget, get_placer
from loadmaster.placers.learned.gdp import Gdp
from loadmaster.placers.learned.hsdag import Hsdag
from loadmaster.placers.learned.hsdag._unlike_problems import best_known
from loadmaster.placers.learned.surrogate._loop import Loop, solved
from loadmaster.placers.learned.surrogate._residual import Trace, moved_seconds
from loadmaster.placers.learned.units import units_of
from loadmaster.placers.search.annealing import Annealing
from loadmaster.placers.search.local_search import LocalSearch
from loadmaster.problem import Placement, Problem, Serial
from loadmaster.studies import Case, Page, Row, Scope, Study, mean_over_graphs, regrets

__all__ = ["STUDY"]

BUDGETS = (10, 30, 100, 300)
UNSEEN = ("images", "cells")
"""Folds whose families the weights of the package were trained without."""
SOLVING = 4000
"""Evaluations of a model, where a minimum cut does not solve it."""
ROUNDS = 5
"""In which ``fit`` solves, runs and corrects; ``optimize`` has time for two."""
SURROGATE = 60
"""Runs after which ``surrogate`` has learnt what it will."""
PRICES = (1.0, 4.0)
"""What a cut is taken to cost in turn, as in ``optimize``."""


class Given:
    """One case: what is told, what is true, and what is best."""

    def __init__(self, family: str, draw: int, kind: str, seed: int, weights: str) -> None:
        if kind == RECORDED:
            self.name = family
            self.seen, self.truth = recorded(family)
            self.start = best_known(self.seen, REFERENCE)
            self.error = off_by(self.seen, self.truth, self.start, draw)
        else:
            self.name, self.seen, self.start = held_out_problem(family, draw)
            drawn = zlib.crc32(f"{family} {draw} {kind} {seed}".encode())
            self.truth, self.error = wrong_by(self.seen, self.start, kind, drawn)
        self.best = _best(self.truth, self.start)
        self.seed, self.weights = seed, weights


@lru_cache(maxsize=2)
def given(family: str, draw: int, kind: str, seed: int, weights: str) -> Given:
    """Made once for all methods."""
    return Given(family, draw, kind, seed, weights)


def _best(truth: Truth, start: Devices) -> float:
    """The least cost known on the machine: by solving its problem, then by local search on what it really costs."""
    found = [best_known(truth.problem, REFERENCE), start]
    if not isinstance(truth.problem.model, Serial):
        found.append(solved(truth.problem, REFERENCE, 1, start))
    costs = truth.costs(np.stack(found))
    if truth.overlap:
        machine = Machine(truth.problem, truth, 0, noise=0.0)
        begin = Placement(found[int(costs.argmin())])
        LocalSearch().place(truth.problem, budget=Budget(evaluations=SOLVING), start=begin, evaluator=machine)
        return min(float(costs.min()), machine.least)
    return float(costs.min())


def _model(case: Given, machine: Machine) -> None:
    machine.evaluate(Placement(case.start))


def _search(placer: Any, case: Given, machine: Machine) -> None:
    left = BUDGETS[-1] - machine.evaluations
    if left > 0:
        start = case.start if machine.answer is None else machine.answer
        placer.place(machine.problem, budget=Budget(evaluations=left), seed=case.seed, start=Placement(start),
                     evaluator=machine)  # fmt: skip


def _tuned(case: Given, machine: Machine) -> None:
    _search(Hsdag(weights=case.weights), case, machine)


def fit(case: Given, machine: Machine, most: int = BUDGETS[-1]) -> Problem:
    """``optimize``'s way: solve, run, correct op times by those of their pieces and transfers by what is left, again.

    A piece is what one device does without anything from another in between, here a stretch of the topological
    order. Ends after some rounds, or when no new placement comes up; the corrected problem.
    """
    believed, tried = case.seen, set()
    rng = np.random.default_rng([case.seed, 37])
    for _ in range(ROUNDS):
        fresh = []
        for price in PRICES:
            priced = replace(believed, latency=price * believed.latency, rate=price * believed.rate)
            answer = solved(priced, SOLVING, case.seed, case.start)
            if answer.tobytes() not in tried:
                tried.add(answer.tobytes())
                fresh.append(answer)
        for answer in fresh[: most - machine.evaluations]:
            machine.evaluate(Placement(answer))
            believed = _corrected(believed, case.truth, answer, rng, machine.noise)
        if not fresh:
            break
    return believed


def _corrected(
    believed: Problem, truth: Truth, device: Devices, rng: np.random.Generator, noise: float
) -> Problem:
    """By a trace of a placement: op times by those of their pieces, transfers by one factor."""
    trace = _trace(truth, device, rng, noise)
    changed = believed.time.copy()
    for ops, took in zip(trace.pieces, trace.seconds.tolist(), strict=True):
        thought = float(believed.time[ops, device[ops]].sum())
        if thought > 0:
            changed[ops, device[ops]] *= took / thought
    moved = moved_seconds(believed, device)
    scale = trace.moved / moved if moved > 0 else 1.0
    return replace(believed, time=changed, latency=scale * believed.latency, rate=scale * believed.rate)


def _trace(truth: Truth, device: Devices, rng: np.random.Generator, noise: float) -> Trace:
    """The seconds of every piece, and of all transfers together, with the usual noise."""
    order = truth.problem.graph.topological_order
    piece = np.cumsum(np.concatenate([[False], device[order][1:] != device[order][:-1]]))
    pieces = np.split(order, np.flatnonzero(np.diff(piece)) + 1)
    took = np.array([truth.problem.time[ops, device[ops]].sum() for ops in pieces])
    took = took * np.exp(noise * rng.standard_normal(len(took)))
    moved = moved_seconds(truth.problem, device) * np.exp(noise * rng.standard_normal())
    return Trace(pieces, took, float(moved))


def _surrogate(traces: bool, case: Given, machine: Machine) -> None:
    """A model whose errors are learnt from every run, with traces or without."""
    rng = np.random.default_rng([case.seed, 37])

    def ask(device: Devices) -> tuple[float, Trace | None]:
        cost = machine.evaluate(Placement(device)).value
        return cost, _trace(case.truth, device, rng, machine.noise) if traces else None

    loop = Loop(case.seen, case.seed, SOLVING // 2)
    machine.judge = loop.judged
    loop.run(case.start, ask, SURROGATE)


def _fitted(after: Callable[[Given], Any], case: Given, machine: Machine) -> None:
    """The loop of ``optimize``, then a search that begins with its best and is told the corrected problem."""
    machine.problem = fit(case, machine, BUDGETS[0])
    _search(after(case), case, machine)


def _cma(case: Given, machine: Machine) -> None:
    """CMA-ES (the package ``cma``) over the logits of some twenty groups, from the model's answer."""
    try:
        import cma
    except ImportError:
        raise InputError("the method cma needs the package cma: pip install cma") from None
    units = units_of(case.seen, "matching:20")
    devices = case.seen.devices
    start = np.zeros((units.count, devices))
    np.add.at(start, (units.of_op, case.start), 1.0)
    start = start / start.sum(axis=1, keepdims=True)
    machine.evaluate(Placement(case.start))
    strategy = cma.CMAEvolutionStrategy(
        start.ravel(),
        0.4,
        {"seed": case.seed + 1, "verbose": -9, "maxfevals": BUDGETS[-1], "CMA_diagonal": True},
    )
    while machine.evaluations < BUDGETS[-1]:
        asked = strategy.ask()
        logits = np.array(asked).reshape(len(asked), units.count, devices)
        logits = np.where(units.allowed, logits, -np.inf)
        found = logits.argmax(axis=2).astype(np.int32)[:, units.of_op]
        cost, _ = machine.evaluate_batch(found[: BUDGETS[-1] - machine.evaluations])
        worst = np.where(np.isfinite(cost), cost, 10 * case.best)
        strategy.tell(asked[: len(worst)], worst.tolist()) if len(worst) == len(asked) else None


TRUTH = "told the truth"


def _truth(case: Given, machine: Machine) -> None:
    """No contender: what a model would give whose numbers are all right, solved as ``surrogate`` does."""
    machine.evaluate(Placement(solved(case.truth.problem, SOLVING // 2, case.seed, case.start)))


METHODS: dict[str, Callable[[Given, Machine], None]] = {
    "model": _model,
    "fit": lambda case, machine: fit(case, machine) and None,
    "local-search": partial(_search, replace(LocalSearch(), constructed=False)),
    "annealing": partial(_search, Annealing()),
    "hsdag from scratch": partial(_search, Hsdag(weights="none")),
    "hsdag pre-trained": _tuned,
    "fit + local-search": partial(_fitted, lambda case: replace(LocalSearch(), constructed=False)),
    "fit + hsdag": partial(_fitted, lambda case: Hsdag(weights=case.weights)),
    "surrogate": partial(_surrogate, False),
    "surrogate + traces": partial(_surrogate, True),
    TRUTH: _truth,
    "cma": _cma,
    "gdp": partial(_search, Gdp(tune=True, guard=False)),
    "placeto": lambda case, machine: _search(get_placer("placeto"), case, machine),
    "rnn": lambda case, machine: _search(get_placer("rnn"), case, machine),
}
FEW = ("cma", "gdp", "placeto", "rnn")
"""Methods that are run last, on a quarter of the graphs with one seed before the others, because they take long."""


def run(method: str, family: str, draw: int, kind: str, seed: int, weights: str) -> Row:
    """Regret at every budget."""
    case = given(family, draw, kind, seed, weights)
    machine = Machine(case.seen, case.truth, seed)
    began = time.process_time()
    METHODS[method](case, machine)
    row: Row = {"graph": case.name, "ops": case.seen.n, "model": case.seen.model.name, "error": case.error}
    row |= {"best": min(case.best, machine.least), "seconds": time.process_time() - began}
    row |= {str(n): None if math.isinf(machine.at(n)) else machine.at(n) for n in BUDGETS}
    return row


def options(parser: argparse.ArgumentParser) -> None:
    """How much is run."""
    parser.add_argument("--graphs", type=int, default=40)
    parser.add_argument("--methods", default=",".join(METHODS), help="by commas")
    parser.add_argument("--part", choices=("all", "drawn", RECORDED), default="all", help="kinds of errors")
    parser.add_argument("--folds", default=",".join(UNSEEN), help="of hsdag_transfer: families of the graphs")
    parser.add_argument("--weights", default="shipped", help="of hsdag")


def cases(scope: Scope) -> list[Case]:
    """Seed by seed, each graph with one kind of error; the slow methods last."""
    wanted = scope["methods"].split(",")
    for word in wanted:
        if word not in METHODS:
            raise InputError(f"--methods {word!r}: choose from {', '.join(METHODS)}")
    graphs = list(held_out(scope["graphs"], scope["folds"].split(",")))[: scope["graphs"]]
    found: list[tuple[bool, bool, int, Case]] = []
    for seed in range(scope.seeds):
        problems = []
        for number, (family, draw) in enumerate(graphs[:2] if scope.quick else graphs):
            kinds = KINDS if draw % 2 else [kind for kind in KINDS if kind != "neighbour"]
            problems.append(
                (family, draw, kinds[(number + seed) % len(kinds)], number % 4 == 0 and seed == 0)
            )
        problems *= scope["part"] != RECORDED
        if scope["part"] != "drawn":
            problems += [(name, 0, RECORDED, seed == 0) for name in recordings()]
        for family, draw, kind, soon in problems:
            for method in wanted:
                if scope.only in family:
                    key: Row = {"family": family, "draw": draw, "kind": kind, "seed": seed, "method": method}
                    key["weights"] = scope["weights"]
                    case = Case(key, partial(run, method, family, draw, kind, seed, scope["weights"]))
                    found.append((method in FEW and not soon, method in FEW, seed, case))
    return [case for *_, case in sorted(found, key=lambda one: one[:3])]


def write(page: Page, scope: Scope, rows: Sequence[Row]) -> None:
    """Mean regret by method and budget, by model and by kind of error; differences to ``fit`` in pairs; who wins."""
    key = ("family", "draw", "kind", "seed", "method", "weights")
    runs = regrets([({name: row[name] for name in key}, row) for row in rows])
    drawn = [run for run in runs if run["kind"] != RECORDED]
    parts = [("all drawn errors", drawn)]
    parts += [(m, [r for r in drawn if r["model"] == m]) for m in ("serial", "concurrent")]
    parts += [("recorded times", [run for run in runs if run["kind"] == RECORDED])]
    for title, part in parts:
        if not part:
            continue
        page.section(f"Regret: {title}")
        graphs = len({run["of"] for run in part})
        page.text(
            f"{graphs} graphs; per cent, mean over graphs of the mean over their runs, two standard errors"
        )
        _table(page, part, against=False)
        page.section(f"Against `fit`, in pairs: {title}")
        _table(page, part, against=True)
        _say_who_wins(page, part)
    page.section("Regret at 100 by kind of error")
    kinds = [kind for kind in (*KINDS, RECORDED) if any(run["kind"] == kind for run in runs)]
    lines = []
    for method in dict.fromkeys(run["method"] for run in runs):
        mine = [run for run in runs if run["method"] == method]
        cells = ([(r["of"], r["regret"].get(100)) for r in mine if r["kind"] == kind] for kind in kinds)
        lines.append((f"`{method}`", *map(_mean, cells)))
    page.table(("method", *kinds), lines)


Values = list[tuple[str, float | None]]
"""Graph, and what a run has there."""


def _differences(runs: Sequence[Row], method: str, other: str, at: int) -> Values:
    """Regrets of a method less those of another on the same case; of nobody, the regrets themselves."""
    theirs = {run["case"]: run["regret"].get(at) for run in runs if run["method"] == other}
    found: Values = []
    for run in runs:
        if run["method"] == method and (not other or run["case"] in theirs):
            mine, base = run["regret"].get(at), theirs.get(run["case"], None if other else 0.0)
            found.append((run["of"], None if mine is None or base is None else mine - base))
    return found


def _table(page: Page, runs: Sequence[Row], *, against: bool) -> None:
    lines: list[Sequence[Any]] = []
    for method in METHODS:
        values = [_differences(runs, method, "fit" if against else "", at) for at in BUDGETS]
        if values[0] and not (against and method == "fit"):
            lines.append((f"`{method}`", len(values[0]), *(_mean(one, sign=against) for one in values)))
    page.table(("per cent", "runs", *map(str, BUDGETS)), lines)


def _say_who_wins(page: Page, runs: Sequence[Row]) -> None:
    """Of the methods that ran on nearly all cases, at every budget the best, and those that cannot be told from it."""
    cases = len({run["case"] for run in runs})
    whole = [m for m in METHODS if m != TRUTH and sum(run["method"] == m for run in runs) >= 0.9 * cases]
    for at in BUDGETS:
        means = {
            m: mean_over_graphs(good)[0] for m in whole if (good := _known(_differences(runs, m, "", at)))
        }
        if len(means) < 2:
            continue
        first, *others = sorted(means, key=lambda method: means[method])
        near = []
        for method in others:
            mean, error, _ = mean_over_graphs(_known(_differences(runs, method, first, at)))
            if not mean > error:
                near.append(f"`{method}` (+{100 * mean:.2f} ± {100 * error:.2f})")
        second = f"`{others[0]}` has {100 * means[others[0]]:.2f}"
        text = (
            f"{at} evaluations: `{first}` has the least mean regret, {100 * means[first]:.2f} %; {second}. "
        )
        page.text(
            text
            + (f"Not worse by two standard errors: {', '.join(near)}." if near else "By two standard errors.")
        )


def _known(values: Values) -> list[tuple[str, float]]:
    return [(graph, value) for graph, value in values if value is not None]


def _mean(values: Values, sign: bool = False) -> str:
    """Mean over graphs and two standard errors, in per cent; runs without an answer are counted."""
    good = _known(values)
    if not good:
        return "-"
    mean, error, _ = mean_over_graphs(good)
    none = len(values) - len(good)
    return f"{100 * mean:{'+' if sign else ''}.2f} ± {100 * error:.2f}" + (
        f" ({none} without)" if none else ""
    )


STUDY = Study("metal_gap", "Wrong models: regret over evaluations", cases, write, options)

if __name__ == "__main__":
    raise SystemExit(STUDY.main())
