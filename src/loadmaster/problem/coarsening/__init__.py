"""Coarsening: a smaller problem whose ops are groups of ops, and the way back."""

from loadmaster.problem.coarsening._coarsen import RULES, Coarsening, coarsen, contract
from loadmaster.problem.coarsening._rules import matching_rounds

__all__ = ["RULES", "Coarsening", "coarsen", "contract", "matching_rounds"]
