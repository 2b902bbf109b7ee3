"""HSDAG, improved: groups of ops and their devices from one policy."""

from loadmaster.placers.learned.hsdag.hsdag import Hsdag, HsdagPolish

__all__ = ["Hsdag", "HsdagPolish"]
