"""The placement problem, the four execution models, and what is known about a placement.

Modules of their own, for placers and reports that need more than the names below: :mod:`.bounds` (what no
placement can beat), :mod:`.coarsening` (smaller problems), :mod:`.loads` and :mod:`.contiguity` (the compiled
kernels of a search), :mod:`.reference` (the models again, in plain Python).
"""

from loadmaster.problem._evaluation import Action, Call, Evaluation, Message, Stage, Transfer, Violation
from loadmaster.problem._evaluator import Evaluator, Outcome, SimulatedEvaluator, evaluate
from loadmaster.problem._file import dump_problem, is_problem, parse_problem
from loadmaster.problem._model import (
    MODELS,
    Concurrent,
    ExecutionModel,
    Offload,
    Pipeline,
    Serial,
    execution_model,
    named_model,
)
from loadmaster.problem._placement import OPTIMAL_GAP, Placement, Point, Solution, relative_gap
from loadmaster.problem._problem import Problem
from loadmaster.problem._rules import classes_of
from loadmaster.problem._tie import Tie
from loadmaster.problem._workload import place_split, workload_problem
from loadmaster.problem.contiguity import chain_arcs, forward_arcs

__all__ = [
    "MODELS",
    "OPTIMAL_GAP",
    "Action",
    "Call",
    "Concurrent",
    "Evaluation",
    "Evaluator",
    "ExecutionModel",
    "Message",
    "Offload",
    "Outcome",
    "Pipeline",
    "Placement",
    "Point",
    "Problem",
    "Serial",
    "SimulatedEvaluator",
    "Solution",
    "Stage",
    "Tie",
    "Transfer",
    "Violation",
    "chain_arcs",
    "classes_of",
    "dump_problem",
    "evaluate",
    "execution_model",
    "forward_arcs",
    "is_problem",
    "named_model",
    "parse_problem",
    "place_split",
    "relative_gap",
    "workload_problem",
]
