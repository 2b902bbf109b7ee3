"""OpenVINO as the engine: devices, profiles, sessions, and plans that run. It is imported when something runs."""

from loadmaster.runtime.openvino._counters import read_counters
from loadmaster.runtime.openvino._device_profile import DeviceProfile, measure_profile
from loadmaster.runtime.openvino._devices import (
    Devices,
    DeviceSpec,
    available,
    one_per_core,
    parse_devices,
    require_here,
)
from loadmaster.runtime.openvino._evaluator import OpenVinoEvaluator
from loadmaster.runtime.openvino._executors import single
from loadmaster.runtime.openvino._inputs import draw_inputs
from loadmaster.runtime.openvino._model_profile import ModelProfile, profile_model
from loadmaster.runtime.openvino._net import Net, open_plan
from loadmaster.runtime.openvino._overlapped import Overlapped
from loadmaster.runtime.openvino._plans import (
    STREAM,
    all_cores_lines,
    devices_of,
    fitted,
    how_to_run,
    overlapping_cores,
    run_plan,
    serial_lines,
    verify_plan,
)
from loadmaster.runtime.openvino._session import OpenVinoSession
from loadmaster.runtime.openvino._submodels import Port, Submodel, cut_model

open_session = OpenVinoSession

__all__ = [
    "STREAM",
    "DeviceProfile",
    "DeviceSpec",
    "Devices",
    "ModelProfile",
    "Net",
    "OpenVinoEvaluator",
    "OpenVinoSession",
    "Overlapped",
    "Port",
    "Submodel",
    "all_cores_lines",
    "available",
    "cut_model",
    "devices_of",
    "draw_inputs",
    "fitted",
    "how_to_run",
    "measure_profile",
    "one_per_core",
    "open_plan",
    "open_session",
    "overlapping_cores",
    "parse_devices",
    "profile_model",
    "read_counters",
    "require_here",
    "run_plan",
    "serial_lines",
    "single",
    "verify_plan",
]
