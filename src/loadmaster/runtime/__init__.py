"""For real: devices, profiling, running plans and measuring them. OpenVINO is imported when something runs."""

from loadmaster.optimize import Optimized, optimize
from loadmaster.runtime._cache import Cache
from loadmaster.runtime._lint import Finding, lint
from loadmaster.runtime._measuring import Measurement
from loadmaster.runtime._pieces import Piece, cut
from loadmaster.runtime.openvino._devices import DeviceSpec, available, parse_devices
from loadmaster.runtime.openvino._evaluator import MeasuredEvaluator
from loadmaster.runtime.openvino._plans import PlanRun, run_plan
from loadmaster.runtime.openvino._profiles import ModelProfile, profile_model
from loadmaster.runtime.openvino._session import Candidate, Session

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
