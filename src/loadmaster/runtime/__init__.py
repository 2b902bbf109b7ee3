"""For real: devices, profiling, running plans and measuring them. OpenVINO is imported when something runs."""

from loadmaster.runtime._cache import Cache
from loadmaster.runtime._devices import DeviceSpec, available, parse_devices
from loadmaster.runtime._evaluator import MeasuredEvaluator
from loadmaster.runtime._lint import Finding, lint
from loadmaster.runtime._measuring import Measurement
from loadmaster.runtime._optimizing import Optimized, optimize
from loadmaster.runtime._pieces import Piece, cut
from loadmaster.runtime._profiling import ModelProfile, profile_model
from loadmaster.runtime._running import PlanRun, run_plan
from loadmaster.runtime._session import Candidate, Session

__all__ = [
    "Cache",
    "Candidate",
    "DeviceSpec",
    "Finding",
    "MeasuredEvaluator",
    "Measurement",
    "ModelProfile",
    "Optimized",
    "Piece",
    "PlanRun",
    "Session",
    "available",
    "cut",
    "lint",
    "optimize",
    "parse_devices",
    "profile_model",
    "run_plan",
]
