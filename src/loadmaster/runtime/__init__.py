"""For real: what every engine shares.

Measuring, verifying, a cache of measurements, a worker process, pieces of a placement, what they cost, and a linter of
plans. An engine has a folder of its own (:mod:`~loadmaster.runtime.openvino`,
:mod:`~loadmaster.runtime.onnxruntime`): a :class:`Session`, which loads ways to run a model into a worker, a
:class:`ModelHost`, which is that worker's end, and a :class:`MeasuredEvaluator`.
"""

from loadmaster.cores import allowed_cores
from loadmaster.graph import draw_input
from loadmaster.runtime._cache import Cache, model_hash
from loadmaster.runtime._cores import busy_ticks, calmest_core, end_with_parent
from loadmaster.runtime._engines import ENGINES, engine
from loadmaster.runtime._evaluator import MeasuredEvaluator, Result
from loadmaster.runtime._flow import Flow, Job
from loadmaster.runtime._host import Executor, ModelHost
from loadmaster.runtime._link_costs import LinkFit, fit_link, measure_link, split_features
from loadmaster.runtime._lint import Finding, lint
from loadmaster.runtime._measuring import Latency, Measurement, Sample, machine_is_busy
from loadmaster.runtime._piece_costs import OverlapFit, Traced, corrected, fit_overlap, paces, predict
from loadmaster.runtime._pieces import Piece, cut
from loadmaster.runtime._plan_runs import Change, Line, PlanRun, pieces_of
from loadmaster.runtime._session import SAMPLES, SECONDS, Candidate, Session
from loadmaster.runtime._tolerance import Tolerance
from loadmaster.runtime._verifying import Verification

__all__ = [
    "ENGINES",
    "SAMPLES",
    "SECONDS",
    "Cache",
    "Candidate",
    "Change",
    "Executor",
    "Finding",
    "Flow",
    "Job",
    "Latency",
    "Line",
    "LinkFit",
    "MeasuredEvaluator",
    "Measurement",
    "ModelHost",
    "OverlapFit",
    "Piece",
    "PlanRun",
    "Result",
    "Sample",
    "Session",
    "Tolerance",
    "Traced",
    "Verification",
    "allowed_cores",
    "busy_ticks",
    "calmest_core",
    "corrected",
    "cut",
    "draw_input",
    "end_with_parent",
    "engine",
    "fit_link",
    "fit_overlap",
    "lint",
    "machine_is_busy",
    "measure_link",
    "model_hash",
    "paces",
    "pieces_of",
    "predict",
    "split_features",
]
