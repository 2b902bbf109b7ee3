"""GDP as published."""

from loadmaster.placers.learned.gdp_paper.gdp_paper import GdpPaper

__all__ = ["GdpPaper"]
