"""Placeto: an agent that visits the groups of ops one by one and moves each."""

from loadmaster.placers.learned.placeto.placeto import Placeto

__all__ = ["Placeto"]
