"""The package onnxruntime, imported when something runs: sessions, devices, and what it says in errors."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from loadmaster.errors import InputError
from loadmaster.hardware import Device
from loadmaster.runtime.openvino._devices import DeviceSpec, require_here

__all__ = ["check_devices", "device_of", "one_line", "onnxruntime", "session", "spec_of"]

PROVIDERS = {"cpu": "CPUExecutionProvider", "gpu": "CUDAExecutionProvider"}
"""Plugin of a device -> the execution provider that runs it."""
PREFIX = "onnxruntime "
QUIET = 4
"""Level of the log: fatal errors alone, for what goes wrong is raised as well."""


def onnxruntime(purpose: str) -> Any:
    """The package.

    Raises
    ------
    InputError : it is not installed.
    """
    try:
        import onnxruntime as found
    except ModuleNotFoundError as error:
        if error.name != "onnxruntime":
            raise
        raise InputError(
            f"{purpose} needs the package onnxruntime: pip install 'loadmaster[onnxruntime]'"
        ) from None
    return found


def check_devices(specs: Sequence[DeviceSpec]) -> None:
    """Refuse devices that ONNX Runtime has not, here.

    Raises
    ------
    InputError : names the device.
    """
    require_here(specs)
    known = onnxruntime("running a model by ONNX Runtime").get_available_providers()
    for spec in specs:
        kind = spec.plugin.partition(".")[0]
        if PROVIDERS.get(kind) not in known:
            able = [plugin for plugin, provider in PROVIDERS.items() if provider in known]
            raise InputError(
                f"device {spec.name!r}: this ONNX Runtime has no {kind!r}: choose from {', '.join(able)}"
            )
        if spec.precision != "f32":
            raise InputError(
                f"device {spec.name!r}: ONNX Runtime computes in the precision of the model: leave out "
                f"precision={spec.precision}, or give --runtime openvino"
            )


def session(
    model: str | bytes, spec: DeviceSpec | None, *, threads: int = 1, entries: Mapping[str, Any] | None = None
) -> Any:
    """A session of one device (None: the CPU), which computes in the calling thread unless there are more threads.

    ``entries`` are further attributes of ``SessionOptions``.
    """
    ort = onnxruntime("running a model by ONNX Runtime")
    options = ort.SessionOptions()
    options.intra_op_num_threads = max(threads, spec.threads if spec else 1)
    options.inter_op_num_threads = 1
    options.log_severity_level = QUIET
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")  # cores are shared by devices
    for name, value in (entries or {}).items():
        setattr(options, name, value)
    kind, _, number = (spec.plugin if spec else "cpu").partition(".")
    provider: Any = PROVIDERS[kind]
    if number:
        provider = (provider, {"device_id": number})
    return ort.InferenceSession(model, options, providers=[provider])


def device_of(spec: DeviceSpec) -> Device:
    """The device of a cluster that stands for one of ONNX Runtime's."""
    return Device(spec.name, spec.plugin.partition(".")[0], model=f"{PREFIX}{spec.text}")


def spec_of(device: Device) -> DeviceSpec | None:
    """The inverse of :func:`device_of`; None for other devices. Those profiled by OpenVINO are the same hardware."""
    if device.model.startswith(PREFIX):
        return DeviceSpec.parse(f"{device.name}={device.model.removeprefix(PREFIX)}")
    return DeviceSpec.of(device)


def one_line(error: BaseException) -> str:
    """What ONNX Runtime says, without its codes and places in its source."""
    text = " ".join(str(error).split())
    text = re.sub(r"^\[ONNXRuntimeError\] : \d+ : \w+ : ", "", text)
    return re.sub(r"/\S+\.(cc|h):\d+ ", "", text)[:300] or type(error).__name__
