"""ONNX Runtime as the engine: an ONNX model cut into submodels, one session each. It is imported when something runs.

Devices are written as for OpenVINO (``B=cpu:core=1``); those that it has are CPUs, and GPUs where its package has them.
"""

from loadmaster.runtime.onnxruntime._model import FlatModel, Submodel
from loadmaster.runtime.onnxruntime._model_profile import OnnxRuntimeProfile, profile_model
from loadmaster.runtime.onnxruntime._plans import (
    all_cores_lines,
    how_to_run,
    open_plan,
    run_plan,
    serial_lines,
)
from loadmaster.runtime.onnxruntime._session import OnnxRuntimeSession

open_session = OnnxRuntimeSession

__all__ = [
    "FlatModel",
    "OnnxRuntimeProfile",
    "OnnxRuntimeSession",
    "Submodel",
    "all_cores_lines",
    "how_to_run",
    "open_plan",
    "open_session",
    "profile_model",
    "run_plan",
    "serial_lines",
]
