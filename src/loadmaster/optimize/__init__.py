"""The main job, end to end: profile, place, run the best few for real, keep what is measured best."""

from loadmaster.optimize._optimize import Optimized, optimize

__all__ = ["Optimized", "optimize"]
