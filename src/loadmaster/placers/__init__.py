"""How: one module per algorithm, one protocol, one plain table of names."""

from loadmaster.errors import InputError
from loadmaster.placers._base import Placer, parameters
from loadmaster.placers._search import Budget, Progress, ProgressCallback, Search
from loadmaster.placers._searcher import Searcher
from loadmaster.placers.accelerate import Accelerate
from loadmaster.placers.annealing import Annealing
from loadmaster.placers.auto import Auto
from loadmaster.placers.balanced import Balanced
from loadmaster.placers.beam import Beam
from loadmaster.placers.calls import Calls
from loadmaster.placers.cpop import Cpop
from loadmaster.placers.exact import CpSat, Exact, Milp
from loadmaster.placers.expert import Expert
from loadmaster.placers.frontier import Frontier
from loadmaster.placers.greedy import Greedy
from loadmaster.placers.heft import Heft
from loadmaster.placers.ideal_dp import IdealDp
from loadmaster.placers.learned._baselines import Hdp, Placeto, Rnn
from loadmaster.placers.learned._gdp_paper_method import GdpPaper
from loadmaster.placers.learned._methods import Hsdag, HsdagPaper, HsdagPolish
from loadmaster.placers.learned.gdp import Gdp, GdpSearch
from loadmaster.placers.linear_dp import LinearDp
from loadmaster.placers.local_search import LocalSearch
from loadmaster.placers.lookahead import Lookahead
from loadmaster.placers.m_etf import MEtf
from loadmaster.placers.m_sct import MSct
from loadmaster.placers.m_topo import MTopo
from loadmaster.placers.metis import Metis
from loadmaster.placers.min_cut import MinCut
from loadmaster.placers.openvino import OpenVino
from loadmaster.placers.peft import Peft
from loadmaster.placers.pipedream import PipeDream
from loadmaster.placers.random import Random
from loadmaster.placers.single import Single

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
