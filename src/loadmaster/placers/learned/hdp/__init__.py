"""HDP: one network groups the ops, another places the groups."""

from loadmaster.placers.learned.hdp.hdp import Hdp

__all__ = ["Hdp"]
