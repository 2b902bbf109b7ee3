"""The placement problem, the four execution models, and what is known about a placement."""

from loadmaster.problem._evaluation import Call, Evaluation, Transfer, Violation
from loadmaster.problem._model import (
    MODELS,
    Concurrent,
    ExecutionModel,
    Offload,
    Pipeline,
    Serial,
    execution_model,
)
from loadmaster.problem._placement import Placement, Point, Solution
from loadmaster.problem._problem import Problem

__all__ = [
    "MODELS",
    "Call",
    "Concurrent",
    "Evaluation",
    "ExecutionModel",
    "Offload",
    "Pipeline",
    "Placement",
    "Point",
    "Problem",
    "Serial",
    "Solution",
    "Transfer",
    "Violation",
    "execution_model",
]
