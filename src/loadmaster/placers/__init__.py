"""How: one module per algorithm, one protocol, one plain table of names."""

from loadmaster.errors import InputError
from loadmaster.placers.auto import Auto
from loadmaster.placers.columns.calls import Calls
from loadmaster.placers.columns.frontier import Frontier
from loadmaster.placers.cuts.min_cut import MinCut
from loadmaster.placers.frame.placer import Placer, parameters
from loadmaster.placers.frame.search import Budget, Progress, ProgressCallback, Search
from loadmaster.placers.frame.searcher import Searcher
from loadmaster.placers.learned.gdp import Gdp, GdpSearch
from loadmaster.placers.learned.gdp_paper import GdpPaper
from loadmaster.placers.learned.hdp import Hdp
from loadmaster.placers.learned.hsdag import Hsdag, HsdagPolish
from loadmaster.placers.learned.hsdag_paper import HsdagPaper
from loadmaster.placers.learned.placeto import Placeto
from loadmaster.placers.learned.rnn import Rnn
from loadmaster.placers.rules.accelerate import Accelerate
from loadmaster.placers.rules.cpop import Cpop
from loadmaster.placers.rules.expert import Expert
from loadmaster.placers.rules.greedy import Greedy
from loadmaster.placers.rules.heft import Heft
from loadmaster.placers.rules.lookahead import Lookahead
from loadmaster.placers.rules.m_etf import MEtf
from loadmaster.placers.rules.m_sct import MSct
from loadmaster.placers.rules.m_topo import MTopo
from loadmaster.placers.rules.metis import Metis
from loadmaster.placers.rules.openvino import OpenVino
from loadmaster.placers.rules.peft import Peft
from loadmaster.placers.rules.random import Random
from loadmaster.placers.rules.single import Single
from loadmaster.placers.search.annealing import Annealing
from loadmaster.placers.search.beam import Beam
from loadmaster.placers.search.exhaustive import Exhaustive
from loadmaster.placers.search.local_search import LocalSearch
from loadmaster.placers.solvers.cp_sat import CpSat
from loadmaster.placers.solvers.exact import Exact
from loadmaster.placers.solvers.milp import Milp
from loadmaster.placers.stages.balanced import Balanced
from loadmaster.placers.stages.ideal_dp import IdealDp
from loadmaster.placers.stages.linear_dp import LinearDp
from loadmaster.placers.stages.pipedream import PipeDream

__all__ = [
    "PLACERS",
    "Budget",
    "Placer",
    "Progress",
    "ProgressCallback",
    "Search",
    "Searcher",
    "get_placer",
    "parameters",
]

PLACERS: dict[str, Placer] = {
    placer.name: placer
    for placer in (
        Auto(),
        Single(),
        Random(),
        Greedy(),
        Expert(),
        Heft(),
        Lookahead(),
        Peft(),
        Cpop(),
        Beam(),
        MTopo(),
        MEtf(),
        MSct(),
        OpenVino(),
        Accelerate(),
        MinCut(),
        LocalSearch(),
        Annealing(),
        Exhaustive(),
        IdealDp(),
        LinearDp(),
        Frontier(),
        Exact(),
        CpSat(),
        Milp(),
        Calls(),
        PipeDream(),
        Balanced(),
        Metis(),
        HsdagPaper(),
        Hsdag(),
        HsdagPolish(),
        Placeto(),
        Rnn(),
        Hdp(),
        Gdp(),
        GdpSearch(),
        GdpPaper(),
    )
}
"""All placers by name, with their default hyper-parameters."""


def get_placer(name: str) -> Placer:
    """The placer called ``name``."""
    if name not in PLACERS:
        raise InputError(f"there is no method {name!r}: choose one of {', '.join(PLACERS)}")
    return PLACERS[name]
