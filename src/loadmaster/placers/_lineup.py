"""Who takes part in the portfolio, by execution model and size."""

from __future__ import annotations

import math
from typing import NamedTuple

from loadmaster.placers.columns.calls import Calls
from loadmaster.placers.columns.convex import Convex
from loadmaster.placers.columns.frontier import Frontier
from loadmaster.placers.cuts.min_cut import MinCut
from loadmaster.placers.frame.branching import few_atoms
from loadmaster.placers.frame.enumeration import MOST, placements_of
from loadmaster.placers.frame.placer import Placer
from loadmaster.placers.learned.gdp import Gdp
from loadmaster.placers.rules.accelerate import Accelerate
from loadmaster.placers.rules.cpop import Cpop
from loadmaster.placers.rules.expert import Expert
from loadmaster.placers.rules.greedy import Greedy
from loadmaster.placers.rules.heft import Heft
from loadmaster.placers.rules.lookahead import Lookahead
from loadmaster.placers.rules.metis import Metis
from loadmaster.placers.rules.peft import Peft
from loadmaster.placers.rules.segments import Segments
from loadmaster.placers.search.annealing import Annealing
from loadmaster.placers.search.beam import Beam
from loadmaster.placers.search.exhaustive import Exhaustive
from loadmaster.placers.search.local_search import LocalSearch
from loadmaster.placers.search.multilevel import Multilevel
from loadmaster.placers.solvers.concurrent.program import twin_devices
from loadmaster.placers.solvers.cp_sat import CpSat
from loadmaster.placers.solvers.exact import Exact
from loadmaster.placers.solvers.milp import Milp
from loadmaster.placers.solvers.pipeline.portfolio import too_large
from loadmaster.placers.stages.ideal_dp import IdealDp
from loadmaster.placers.stages.linear_dp import LinearDp
from loadmaster.placers.stages.steps import Stages
from loadmaster.problem import Concurrent, Offload, Pipeline, Problem, Serial

__all__ = ["HUGE", "LARGE", "Lineup", "lineup_of", "part_of", "slow"]

GROUPED = 200
"""Ops from which on it is worth while to place groups of them first."""
SOME = 1000
"""Ops from which on solvers of a whole program prove nothing in some seconds, and keep searchers from the cores."""
LARGE = 5000
"""Ops from which on searches by groups come first."""
HUGE = 50_000
"""Ops from which on nobody waits for the cheap bounds either."""
BLIND, KNOWING = 0.25, 0.7
"""Share of the time for ``frontier``, which knows neither of memory nor of convex devices, before ``cp-sat`` where
memory decides, and for ``min-cut`` there, whose bound for unlike devices only prices memory; and for ``cp-sat`` before
``frontier`` where devices must be convex."""
SLOW: tuple[type, ...] = (Multilevel, LinearDp)
"""Searchers that begin slowly, on every problem."""
GLANCE = 0.2
"""Share of the time for ``convex`` before ``cp-sat``, which proves programs of this size itself."""


class Lineup(NamedTuple):
    """Who takes part, in what order.

    rules : constructions of milliseconds, one after another.
    provers : members that prove a bound, one after another, each for as long as it wants, beside all others.
    searchers : members that only search, or construct at some length; they share what the provers leave.
    brief : a prover that has only a share of the time, because another one follows; and that share. It goes on as long
        as it gets on.
    slow : kinds of searchers that are good at the end of a long time, not of a short one: they have more of it.
    """

    rules: tuple[Placer, ...]
    provers: tuple[Placer, ...]
    searchers: tuple[Placer, ...]
    brief: tuple[Placer, float] | None = None
    slow: tuple[type, ...] = SLOW


def lineup_of(problem: Problem) -> Lineup:
    """The members for a problem: those of its execution model that support its settings and need no extra."""
    if isinstance(problem.model, Pipeline) and problem.model.microbatches:
        return Lineup((), (Stages(),), ())
    rules: tuple[Placer, ...] = (Segments(), Expert(), Greedy(), Accelerate(), Metis())
    provers: tuple[Placer, ...] = ()
    brief: tuple[Placer, float] | None = None
    single = LocalSearch(constructed=False)
    searchers: tuple[Placer, ...] = (single, Gdp(guard=False), Annealing())
    slow_ones = SLOW
    if isinstance(problem.model, Serial | Pipeline) and _short(problem):  # cold single moves are walled in
        slow_ones = (*slow_ones, Annealing)
    match problem.model:
        case Serial() if Milp().supports(problem) is None and (
            problem.n <= SOME or not twin_devices(problem)
        ):
            provers, brief = (MinCut(), Milp()), (MinCut(), BLIND)
        case Serial():
            provers = (MinCut(),)
        case Concurrent():
            rules = (Heft(), Lookahead(), *rules, Peft(), Cpop())
            provers = (CpSat(),)
            searchers = (single, Gdp(guard=False), Beam(), Annealing())
            slow_ones = (*slow_ones, Beam) if problem.n <= SOME else slow_ones
        case Pipeline(contiguity="chain"):
            provers, searchers = (IdealDp(),), (LinearDp(), *searchers)
        case Pipeline(contiguity="device") if not too_large(problem):
            glance = Convex(share=GLANCE) if problem.n <= SOME else Convex()
            provers, brief = (glance, CpSat(), Frontier()), (CpSat(), KNOWING)
            searchers = (LinearDp(), *searchers)
        case Pipeline(contiguity="device"):
            provers, searchers = (Convex(), Frontier(), Exact()), (LinearDp(), *searchers)
        case Pipeline() if _memory_decides(problem):
            provers, brief = (Frontier(), CpSat()), (Frontier(), BLIND)
        case Pipeline():
            provers = (Frontier(), Exact()) if problem.n <= SOME else (Frontier(),)
        case Offload():
            provers = (Calls(), CpSat())
    if problem.n >= GROUPED:
        cycles, finest = 2 if slow(problem) else 1, not slow(problem, HUGE)
        groups = Multilevel(constructed=False, cycles=cycles, finest=finest)
        searchers = (groups, *searchers) if problem.n > LARGE else (searchers[0], groups, *searchers[1:])
    if slow(problem, HUGE):  # others would make a few hundred moves of single ops, and cost groups their time
        searchers = (groups, Gdp(guard=False))
    elif (
        problem.n > HUGE
    ):  # here single ops are moved a million times a second, while annealing would just be warm
        searchers = (single, Gdp(guard=False), groups)

    def fitting(members: tuple[Placer, ...]) -> tuple[Placer, ...]:
        return tuple(member for member in members if member.supports(problem) is None)

    if placements_of(problem) <= MOST or few_atoms(problem):
        provers = (Exhaustive(whole=placements_of(problem) <= MOST), *provers)
    return Lineup(fitting(rules), fitting(provers), fitting(searchers), brief, slow_ones)


def _memory_decides(problem: Problem) -> bool:
    """Accelerators cannot hold everything, of which ``frontier`` knows nothing, and the program that does is small
    enough to be solved."""
    room = float(problem.capacity[~problem.pool].sum())
    return room < float(problem.memory.sum()) and not too_large(problem)


def _short(problem: Problem) -> bool:
    """Not every device holds everything."""
    return float(problem.capacity.min(initial=math.inf)) < float(problem.memory.sum())


def part_of(lineup: Lineup, number: int, runs: int) -> Lineup:
    """The members of one of several runs: rules and proofs do not depend on the seed, so that one run does each."""
    provers = (
        lineup.provers[number::runs] if lineup.searchers else lineup.provers
    )  # there must be something to do
    return lineup._replace(rules=lineup.rules[number::runs], provers=provers)


def slow(problem: Problem, ops: int = LARGE) -> bool:
    """Every move costs a millisecond or more: walks over single ops alone get nowhere, over ``HUGE`` not at all."""
    return isinstance(problem.model, Concurrent) and problem.n > ops
