"""Coarsening: a smaller problem whose ops are groups of ops, and the way back."""

from loadmaster.problem.coarsening._coarsen import RULES, Coarsening, coarsen, contract

__all__ = ["RULES", "Coarsening", "coarsen", "contract"]
