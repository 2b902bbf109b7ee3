"""``gdp``: one policy for every graph, pre-trained, used without training on graphs it has never seen."""

from loadmaster.placers.learned.gdp.gdp import Gdp, GdpSearch

__all__ = ["Gdp", "GdpSearch"]
