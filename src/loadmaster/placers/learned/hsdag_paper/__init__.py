"""HSDAG as published."""

from loadmaster.placers.learned.hsdag_paper.hsdag_paper import HsdagPaper

__all__ = ["HsdagPaper"]
