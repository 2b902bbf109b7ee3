"""``gdp``: one policy for every graph, pre-trained, used without training on graphs it has never seen."""

from loadmaster.placers.learned.gdp._weights import Weights, load_weights, save_weights
from loadmaster.placers.learned.gdp.gdp import Gdp, GdpSearch

__all__ = ["Gdp", "GdpSearch", "Weights", "load_weights", "save_weights"]
