"""How: one module per algorithm, one protocol, one plain table of names."""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Mapping
from typing import cast

from loadmaster.placers._installed import InstalledPlacer, installed_placers, placer_of
from loadmaster.placers.frame.feasible import find_feasible
from loadmaster.placers.frame.placer import Placer, Portfolio, parameters
from loadmaster.placers.frame.search import Budget, Progress, ProgressCallback, Search
from loadmaster.placers.frame.searcher import Searcher

__all__ = [
    "PLACERS",
    "Budget",
    "InstalledPlacer",
    "Placer",
    "Portfolio",
    "Progress",
    "ProgressCallback",
    "Search",
    "Searcher",
    "all_placers",
    "find_feasible",
    "get_placer",
    "installed_placers",
    "parameters",
]

_TABLE: dict[str, tuple[str, str]] = {
    # name: (module in this package, class)
    "auto": ("auto", "Auto"),
    "single": ("rules.single", "Single"),
    "random": ("rules.random", "Random"),
    "greedy": ("rules.greedy", "Greedy"),
    "expert": ("rules.expert", "Expert"),
    "heft": ("rules.heft", "Heft"),
    "lookahead": ("rules.lookahead", "Lookahead"),
    "peft": ("rules.peft", "Peft"),
    "cpop": ("rules.cpop", "Cpop"),
    "beam": ("search.beam", "Beam"),
    "m-topo": ("rules.m_topo", "MTopo"),
    "m-etf": ("rules.m_etf", "MEtf"),
    "m-sct": ("rules.m_sct", "MSct"),
    "openvino": ("rules.openvino", "OpenVino"),
    "accelerate": ("rules.accelerate", "Accelerate"),
    "segments": ("rules.segments", "Segments"),
    "min-cut": ("cuts.min_cut", "MinCut"),
    "local-search": ("search.local_search", "LocalSearch"),
    "annealing": ("search.annealing", "Annealing"),
    "multilevel": ("search.multilevel", "Multilevel"),
    "exhaustive": ("search.exhaustive", "Exhaustive"),
    "ideal-dp": ("stages.ideal_dp", "IdealDp"),
    "linear-dp": ("stages.linear_dp", "LinearDp"),
    "stages": ("stages.steps", "Stages"),
    "frontier": ("columns.frontier", "Frontier"),
    "convex": ("columns.convex", "Convex"),
    "exact": ("solvers.exact", "Exact"),
    "cp-sat": ("solvers.cp_sat", "CpSat"),
    "milp": ("solvers.milp", "Milp"),
    "calls": ("columns.calls", "Calls"),
    "pipedream": ("stages.pipedream", "PipeDream"),
    "balanced": ("stages.balanced", "Balanced"),
    "metis": ("rules.metis", "Metis"),
    "surrogate": ("learned.surrogate", "Surrogate"),
    "hsdag-paper": ("learned.hsdag_paper", "HsdagPaper"),
    "hsdag": ("learned.hsdag", "Hsdag"),
    "hsdag+polish": ("learned.hsdag", "HsdagPolish"),
    "placeto": ("learned.placeto", "Placeto"),
    "rnn": ("learned.rnn", "Rnn"),
    "hdp": ("learned.hdp", "Hdp"),
    "gdp": ("learned.gdp", "Gdp"),
    "gdp+ls": ("learned.gdp", "GdpSearch"),
    "gdp-paper": ("learned.gdp_paper", "GdpPaper"),
}


class _Table(Mapping[str, Placer]):
    """The placers of :data:`_TABLE`, each imported when it is first asked for: most bring a solver with them."""

    def __init__(self) -> None:
        self._made: dict[str, Placer] = {}

    def __getitem__(self, name: str) -> Placer:
        if name not in self._made:
            module, kind = _TABLE[name]
            self._made[name] = cast(Placer, getattr(importlib.import_module(f"{__name__}.{module}"), kind)())
        return self._made[name]

    def __contains__(self, name: object) -> bool:
        return name in _TABLE

    def __iter__(self) -> Iterator[str]:
        return iter(_TABLE)

    def __len__(self) -> int:
        return len(_TABLE)


PLACERS: Mapping[str, Placer] = _Table()
"""Loadmaster's own placers by name, with their default hyper-parameters."""


def get_placer(name: str) -> Placer:
    """The placer called ``name``: one of Loadmaster's own, else one that an installed package brings.

    Raises
    ------
    InputError : there is none, or that of a package cannot be used; the message says why.
    """
    return PLACERS[name] if name in PLACERS else placer_of(name, PLACERS)


def all_placers() -> dict[str, Placer]:
    """Loadmaster's own placers and those of installed packages that can be used."""
    theirs = {found.name: found.placer for found in installed_placers(PLACERS) if found.placer is not None}
    return {**PLACERS, **theirs}
