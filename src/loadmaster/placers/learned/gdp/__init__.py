"""``gdp``: one list scheduler for every graph, whose network may be trained on many graphs or tuned on one."""

from loadmaster.placers.learned.gdp._weights import Weights, load_weights, save_weights
from loadmaster.placers.learned.gdp.gdp import Gdp, GdpSearch

__all__ = ["Gdp", "GdpSearch", "Weights", "load_weights", "save_weights"]
