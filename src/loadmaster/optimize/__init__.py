"""The main job, end to end: profile, place, run the best few for real, keep what is measured best."""

from loadmaster.optimize._optimize import MODELS, optimize
from loadmaster.optimize._refine import chains, refine
from loadmaster.optimize._result import Optimized

__all__ = ["MODELS", "Optimized", "chains", "optimize", "refine"]
