"""GDP as published."""

from loadmaster.placers.learned.gdp_paper.gdp_paper import GdpPaper, train_batch

__all__ = ["GdpPaper", "train_batch"]
