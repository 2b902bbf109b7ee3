"""Multilevel search: place groups of ops first, then smaller groups, then the ops."""

from loadmaster.placers.search.multilevel.multilevel import Multilevel

__all__ = ["Multilevel"]
