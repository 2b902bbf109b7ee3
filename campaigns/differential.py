"""Every evaluation against the plain reference, and every method against brute force, on problems of all kinds.

    python -m campaigns.differential --hours 8 [--part evaluations|methods] [--only METHOD]

A case is one random problem. Of its random placements the cost, the feasibility and the schedule by the compiled
kernels are compared with ``problem/reference.py`` and with a check of the constraints that shares no code with
Loadmaster. Where all placements can be tried, methods are run: what they return must be feasible and cost what it
says, no bound may be above the least cost, "optimal" must be so, and "infeasible" too. What is found is kept as a
plan-like file that ``campaigns.differential --repeat FILE`` runs again.
"""

from __future__ import annotations

import argparse
import math
import sys
import time
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from campaigns import _oracle as oracle
from campaigns._campaign import Campaign, parser
from campaigns._cases import dump_case, load_case
from campaigns._problems import random_placement, random_problem
from loadmaster.errors import InfeasibleError, UndecidedError
from loadmaster.placers import PLACERS, Budget, Placer, get_placer
from loadmaster.problem import Placement, Problem, SimulatedEvaluator, Solution, evaluate, reference

__all__ = ["check_evaluations", "check_method", "main"]

NEAR = 1e-9
"""Relative difference of two sums of the same numbers."""
DETAILED = 4
"""Of so many placements one is looked at in detail: loads, memory, start and end of every op."""
LEARNED = ("hsdag-paper", "hsdag", "hsdag+polish", "placeto", "rnn", "hdp", "gdp", "gdp+ls", "gdp-paper")
SLOW = (*LEARNED, "milp", "exact", "cp-sat", "auto", "multilevel", "frontier", "calls")
"""Methods that are run on some problems only; see :func:`_chosen`."""
SMALL = {
    "hsdag-paper": 20,
    "hsdag": 20,
    "hsdag+polish": 20,
    "placeto": 20,
    "rnn": 20,
    "hdp": 20,
    "gdp-paper": 20,
}
"""Evaluations of methods that train a network."""


class WrongError(AssertionError):
    """An answer that is not right."""


def check_evaluations(problem: Problem, placements: Sequence[Placement]) -> int:
    """Compare every way to evaluate; how many evaluations there were.

    Raises
    ------
    WrongError : two of them differ.
    """
    fast = SimulatedEvaluator(problem)
    plain = [p for p in placements if p.order is None and p.call is None]
    batch = {}
    if plain:
        cost, feasible = fast.evaluate_batch(np.stack([p.device for p in plain]))
        batch = {id(p): (float(c), bool(f)) for p, c, f in zip(plain, cost, feasible, strict=True)}
    for number, placement in enumerate(placements):
        wanted = reference.evaluate(problem, placement)
        if number % DETAILED == 0:
            _check_details(problem, placement, wanted)
        one = fast.evaluate(placement)
        for what, outcome in {"evaluate": one, "evaluate_batch": batch.get(id(placement), one)}.items():
            if outcome[1] != wanted.feasible and not _on_the_edge(problem, wanted):
                raise WrongError(f"{what} says feasible={outcome[1]}, the reference {wanted.why}")
            if wanted.feasible:
                _same(f"cost of {what}", outcome[0], wanted.cost, placement)
        if wanted.feasible and not oracle.allowed(problem, placement):
            raise WrongError("the reference allows what the constraints forbid")
        fits = oracle.fits(problem, placement)
        if wanted.feasible and fits is False:
            raise WrongError("the reference allows more than fits into a device")
        if not wanted.feasible and oracle.allowed(problem, placement) and fits is True:
            kinds = {violation.kind for violation in wanted.violations}
            if kinds - {"calls", "deadlock", "capacity"}:
                raise WrongError(f"the reference forbids what the constraints allow: {wanted.why}")
    return len(placements)


def _check_details(problem: Problem, placement: Placement, wanted: Any) -> None:
    """Loads, memory and schedule."""
    found = evaluate(problem, placement)
    _same("cost of evaluate()", found.cost, wanted.cost, placement)
    if found.feasible != wanted.feasible and not _on_the_edge(problem, wanted):
        raise WrongError(f"feasible: {found.feasible} {found.why}, by the reference {wanted.why}")
    for name in ("busy", "comm", "load", "memory", "peak", "start", "end"):
        _same_arrays(name, getattr(found, name), getattr(wanted, name), placement)


def _on_the_edge(problem: Problem, wanted: Any) -> bool:
    """Whether a device is full to the last bit, so that the order of summation decides."""
    weighed = wanted.peak if getattr(problem.model, "memory", "sum") == "peak" else wanted.memory
    if weighed is None:
        return False
    room = problem.capacity
    with np.errstate(invalid="ignore"):
        return bool((np.isfinite(room) & (np.abs(weighed - room) <= NEAR * room)).any())


def _same(what: str, found: float, wanted: float, placement: Placement) -> None:
    if found != wanted and not math.isclose(found, wanted, rel_tol=NEAR, abs_tol=1e-320):
        raise WrongError(
            f"{what} is {found!r}, the reference says {wanted!r} for {placement.device.tolist()}"
        )


def _same_arrays(what: str, found: Any, wanted: Any, placement: Placement) -> None:
    if (found is None) != (wanted is None):
        raise WrongError(f"{what} is {found}, the reference says {wanted}")
    if found is not None and not np.allclose(found, wanted, rtol=NEAR, atol=1e-320, equal_nan=True):
        scale = float(np.nanmax(np.abs(wanted), initial=0.0))
        if not np.allclose(found, wanted, rtol=NEAR, atol=NEAR * scale, equal_nan=True):
            raise WrongError(
                f"{what} is {found}, the reference says {wanted} for {placement.device.tolist()}"
            )


def check_method(
    problem: Problem, placer: Placer, budget: Budget, seed: int, best: float, whole: bool
) -> str:
    """Run a method and compare with the least cost; what came out, in a word.

    Raises
    ------
    WrongError : the answer contradicts brute force, or itself.
    """
    try:
        solution = placer.place(problem, budget=budget, seed=seed)
    except InfeasibleError as error:
        if math.isfinite(best):
            raise WrongError(
                f"{placer.name} says infeasible ({error}), but there is a placement of {best!r}"
            ) from None
        return "infeasible"
    except UndecidedError:
        return "undecided"
    return check_solution(problem, placer.name, solution, best, whole)


def check_solution(problem: Problem, name: str, solution: Solution, best: float, whole: bool) -> str:
    """Compare an answer with the reference and with the least cost."""
    detail = reference.evaluate(problem, solution.placement)
    if not detail.feasible and not _on_the_edge(problem, detail):
        raise WrongError(f"{name} returns a placement that breaks a constraint: {detail.why}")
    _same(f"cost of {name}", solution.cost, detail.cost, solution.placement)
    if not solution.bound <= solution.cost:
        raise WrongError(f"{name}: its bound {solution.bound!r} is above its cost {solution.cost!r}")
    if not solution.bound <= best * (1 + NEAR):
        raise WrongError(
            f"{name}: its bound {solution.bound!r} by {solution.bound_by} is above the least cost {best!r}"
        )
    if whole and solution.cost < best * (1 - NEAR):
        raise WrongError(f"{name}: its cost {solution.cost!r} is below the least cost {best!r}")
    if solution.optimal and not solution.cost <= best * (1 + 2e-6):
        raise WrongError(f"{name}: says optimal at {solution.cost!r}, but the least cost is {best!r}")
    return "optimal" if solution.optimal else "feasible"


def _budget(rng: np.random.Generator, name: str) -> Budget:
    if name in SMALL:
        return Budget(evaluations=int(rng.choice([1, 5, SMALL[name]])))
    return Budget(evaluations=int(rng.choice([1, 7, 40, 150])))


def _chosen(rng: np.random.Generator, number: int, only: str) -> list[str]:
    """All fast methods, and one or two of the slow in turn."""
    if only:
        return [name for name in PLACERS if only in name.split(",") or name in only.split(",")]
    fast = [name for name in PLACERS if name not in SLOW]
    slow = [SLOW[number % len(SLOW)]]
    if rng.random() < 0.2:
        slow.append("auto")
    return [*fast, *slow]


class Differential:
    """The two parts of a case."""

    def __init__(self, campaign: Campaign, part: str, only: str) -> None:
        self.campaign, self.part, self.only = campaign, part, only

    def case(self, number: int) -> None:
        """One problem."""
        rng = np.random.default_rng([self.campaign.seed, number])
        large = rng.random() < 0.03
        methods = self.part == "methods" or (self.part == "both" and number % 40 == 0)
        problem = random_problem(rng, ops=6 if methods else 40 if large else 9)
        counts = self.campaign.counts
        if problem is None:
            counts["problems refused"] += 1
            return
        counts[f"problems {problem.model.name}"] += 1
        placements = [random_placement(rng, problem) for _ in range(8 if methods else 24)]
        try:
            counts["evaluations"] += check_evaluations(problem, placements)
        except Exception as error:
            self._keep("evaluation", problem, error)
        if methods:
            self._methods(problem, rng, number)

    def _methods(self, problem: Problem, rng: np.random.Generator, number: int) -> None:
        found = oracle.optimum(problem)
        if found is None:
            self.campaign.counts["problems too large for brute force"] += 1
            return
        best, whole = found
        for name in _chosen(rng, number, self.only):
            placer, budget, seed = get_placer(name), _budget(rng, name), int(rng.integers(2**31))
            if placer.supports(problem) is not None:
                self.campaign.counts[f"unsupported by {name}"] += 1
                continue
            began = time.process_time()
            self.campaign.begins(f"{name} evaluations={budget.evaluations} seed={seed}")
            try:
                outcome = check_method(problem, placer, budget, seed, best, whole)
                self.campaign.counts[f"answers {outcome}"] += 1
            except Exception as error:
                self._keep(
                    f"method-{name}", problem, error, method=name, evaluations=budget.evaluations, seed=seed
                )
            self.campaign.ended()
            self.campaign.counts["runs"] += 1
            self.campaign.counts[f"runs of {name}"] += 1
            spent = time.process_time() - began
            if spent > 10 and self.campaign.counts[f"runs of {name}"] > 20:  # else kernels are compiled
                self._keep(f"slow-{name}", problem, f"{spent:.1f} CPU s", method=name, seed=seed)

    def _keep(self, what: str, problem: Problem, why: object, **more: Any) -> None:
        self.campaign.finding(what, dump_case(problem, **more), ".json", why)


def repeat(path: Path) -> int:
    """Run a stored case again: all evaluations, and its method."""
    problem, more = load_case(path)
    rng = np.random.default_rng(0)
    check_evaluations(problem, [random_placement(rng, problem) for _ in range(200)])
    found = oracle.optimum(problem)
    if "method" in more and found is not None:
        placer = get_placer(more["method"])
        print(
            check_method(problem, placer, Budget(evaluations=more.get("evaluations")), more["seed"], *found)
        )
    return 0


def main(arguments: list[str] | None = None) -> int:
    """Run the campaign."""
    found = parser("differential", "Evaluations against the reference, methods against brute force.")
    found.add_argument("--part", choices=["evaluations", "methods", "both"], default="both")
    found.add_argument("--only", default="", metavar="METHOD,...", help="only these methods")
    found.add_argument(
        "--repeat", type=Path, metavar="FILE", help="run one stored case again, and nothing else"
    )
    options: argparse.Namespace = found.parse_args(arguments)
    warnings.filterwarnings("ignore", category=RuntimeWarning)
    if options.repeat is not None:
        return repeat(options.repeat)
    name = "differential" if options.part == "both" else f"differential-{options.part}"
    if options.only:
        name += "-" + options.only.replace(",", "-").replace("+", "-")
    campaign = Campaign(name, options)
    if any(wanted in PLACERS for wanted in LEARNED):
        _one_thread()
    return campaign.run(Differential(campaign, options.part, options.only).case)


def _one_thread() -> None:
    """Small networks are slower on several threads, and cores are shared."""
    try:
        import torch
    except ModuleNotFoundError:
        print("campaigns.differential: without torch the learned methods are left out", file=sys.stderr)
        return
    torch.set_num_threads(1)


if __name__ == "__main__":
    raise SystemExit(main())
