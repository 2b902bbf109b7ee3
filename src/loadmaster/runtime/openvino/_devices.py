"""Devices that models run on: what OpenVINO finds in the machine, and virtual ones made of it.

A virtual device is one of OpenVINO's plugins registered once more under another name, with its own core, precision
and number of threads, and slowed down if asked. It is written ``"B=cpu:core=1,precision=bf16,speed=0.5"``, or as a
``[[device]]`` table of a TOML file.
A real GPU or NPU is the same thing with another plugin (``"G=gpu"``, ``"G=gpu.1"``).
A device of another machine names its node: ``"B=cpu:node=left"``, or just ``"left/cpu"``.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from string import ascii_uppercase
from typing import Any

import numpy as np

from loadmaster.cores import allowed_cores
from loadmaster.errors import InputError
from loadmaster.files import parse_toml, read_text, shown
from loadmaster.graph.openvino import one_line, openvino
from loadmaster.hardware import Device
from loadmaster.runtime._pace import paced

__all__ = [
    "PRECISIONS",
    "DeviceSpec",
    "Devices",
    "available",
    "one_per_core",
    "parse_devices",
    "require_here",
]

PRECISIONS = {"f32": "fp32", "bf16": "bf16", "f16": "fp16"}
"""OpenVINO's name of a precision -> ours."""

NODE = r"[A-Za-z0-9][A-Za-z0-9_.-]*"
SPEC = re.compile(
    rf"(?P<name>[A-Za-z][A-Za-z0-9_-]*|{NODE}/[a-z]+(\.\d+)?)=(?P<plugin>[a-z]+(\.\d+)?)(:(?P<rest>.*))?"
)
THERE = re.compile(rf"(?P<node>{NODE})/(?P<plugin>[A-Za-z]+(\.\d+)?)(:(?P<rest>.*))?")
"""A plugin of a node, which is the device's name, too."""
KEYS = ("node", "core", "precision", "threads", "speed")
READ: dict[str, Callable[[str], Any]] = {
    "node": str,
    "core": int,
    "precision": str,
    "threads": int,
    "speed": float,
}
NUMBER = re.compile(r"(\d{1,9}(\.\d{0,20})?|\.\d{1,20})(e-?\d{1,2})?", re.ASCII)


@dataclass(frozen=True)
class DeviceSpec:
    """A device to run on.

    >>> DeviceSpec.parse("B=cpu:core=1,precision=bf16")
    DeviceSpec(name='B', plugin='cpu', core=1, precision='bf16', threads=1, speed=1.0, node='')
    """

    name: str
    plugin: str = "cpu"
    """``cpu``, ``gpu``, ``npu``, with the number of one of several behind a dot."""
    core: int | None = None
    """The core of the machine that it uses; None leaves it to the runtime."""
    precision: str = "f32"
    """In which it computes."""
    threads: int = 1
    speed: float = 1.0
    """Against what the hardware can do: at 0.5 its thread stays busy as long again after each submodel."""
    node: str = ""
    """The machine of a Ray cluster that it is in; empty: this one."""

    def __post_init__(self) -> None:
        if self.precision not in PRECISIONS:
            raise InputError(
                f"device {self.name!r}: precision must be one of {', '.join(PRECISIONS)}, not {self.precision!r}"
            )
        if self.threads < 1:
            raise InputError(f"device {self.name!r}: threads must be at least 1, not {self.threads}")
        if not 0 < self.speed <= 1:
            raise InputError(
                f"device {self.name!r}: speed must be a number over 0 and at most 1, not {self.speed:g}"
            )
        if self.node and not re.fullmatch(NODE, self.node):
            raise InputError(f"device {self.name!r}: {shown(self.node)} is not the name of a node")
        if self.core is not None and not self.node and self.core not in allowed_cores():
            raise InputError(
                f"device {self.name!r}: core {self.core} is not one that this process may use: "
                f"choose from {', '.join(map(str, allowed_cores()))}"
            )

    @staticmethod
    def parse(text: str) -> DeviceSpec:
        """The device that a text describes.

        Raises
        ------
        InputError : the text is not of that form, or a value is wrong.
        """
        there = THERE.fullmatch(text.strip())
        if there:  # the short form
            name = f"{there['node']}/{there['plugin'].lower()}"
            text = f"{name}={there['plugin'].lower()}:node={there['node']},{there['rest'] or ''}"
        match = SPEC.fullmatch(text.strip())
        if not match:
            raise InputError(
                f"the device {text!r} must be written NAME=PLUGIN:KEY=VALUE,…, e.g. B=cpu:core=1,precision=bf16",
                option="--device",
            )
        values: dict[str, Any] = {}
        for entry in (match["rest"] or "").split(","):
            key, separator, value = entry.strip().partition("=")
            if not entry.strip():
                continue
            if not separator or key not in KEYS:
                raise InputError(
                    f"the device {text!r}: {entry!r} is not one of {', '.join(KEYS)}", option="--device"
                )
            if key == "node" and not value:
                raise InputError(f"the device {shown(text)}: node must be a name", option="--device")
            if key in ("core", "threads") and not (value.isdecimal() and len(value) < 10):
                raise InputError(
                    f"the device {shown(text)}: {key} must be a whole number < 1e9, not {shown(value)}",
                    option="--device",
                )
            if key == "speed" and not NUMBER.fullmatch(value):
                raise InputError(
                    f"--device {shown(text)}: speed must be a number over 0 and at most 1, e.g. 0.5, not {shown(value)}"
                )
            values[key] = READ[key](value)
        return DeviceSpec(match["name"], match["plugin"], **values)

    @property
    def text(self) -> str:
        """What :meth:`parse` reads back, without the name; what must match for a measurement to be used again."""
        keys = [f"precision={self.precision}", f"threads={self.threads}"]
        if self.core is not None:
            keys.insert(0, f"core={self.core}")
        if self.node:
            keys.insert(0, f"node={self.node}")
        if self.speed != 1.0:
            keys.append(f"speed={self.speed!r}")
        return f"{self.plugin}:{','.join(keys)}"

    def device(self) -> Device:
        """The device of a :class:`~loadmaster.hardware.Cluster` that stands for it."""
        return Device(self.name, self.plugin.partition(".")[0], model=f"openvino {self.text}")

    @staticmethod
    def of(device: Device) -> DeviceSpec | None:
        """The inverse of :meth:`device`: what a plan says about its devices; None where they are no such."""
        if not device.model.startswith("openvino "):
            return None
        return DeviceSpec.parse(f"{device.name}={device.model.removeprefix('openvino ')}")

    @property
    def kind(self) -> tuple[str, str, int, float, str]:
        """All that decides how fast it is: devices of one kind need to be measured only once."""
        return self.plugin, self.precision, self.threads, self.speed, self.node

    @property
    def place(self) -> str:
        """Which ones a link is between: all devices of a plugin, on one node."""
        return f"{self.node}/{self.plugin}" if self.node else self.plugin

    def paced(self, run: Callable[[], object]) -> Callable[[], object]:
        """A call of a submodel at the speed of this device."""
        own = self.plugin.startswith("cpu") and self.threads == 1
        return paced(run, self.speed, clock=time.thread_time if own else time.perf_counter)

    def properties(self) -> dict[str, Any]:
        """What a model is compiled with."""
        if self.plugin.startswith("cpu"):
            return {
                "INFERENCE_PRECISION_HINT": self.precision,
                "INFERENCE_NUM_THREADS": self.threads,
                "NUM_STREAMS": 1,
                "ENABLE_CPU_PINNING": False,
            }
        return {"INFERENCE_PRECISION_HINT": self.precision}


def parse_devices(texts: Iterable[str]) -> tuple[DeviceSpec, ...]:
    """Devices from the command line: each a text for :meth:`DeviceSpec.parse`, or a TOML file of several.

    Raises
    ------
    InputError : a name appears twice, or there is none at all.
    """
    found: list[DeviceSpec] = []
    for text in texts:
        found += _read_toml(text) if text.endswith(".toml") else [DeviceSpec.parse(text)]
    names = [spec.name for spec in found]
    for name in names:
        if names.count(name) > 1:
            raise InputError(f"the device {name!r} appears twice")
    if not found:
        raise InputError("there is no device: give e.g. A=cpu:core=0 and B=cpu:core=1", option="--device")
    return tuple(found)


def require_here(devices: Iterable[DeviceSpec]) -> None:
    """Refuse devices of other machines.

    Raises
    ------
    InputError : one of them names a node.
    """
    for spec in devices:
        if spec.node:
            raise InputError(
                f"device {spec.name!r} is on node {spec.node!r}: give the address of its Ray cluster",
                option="--on",
            )


def one_per_core() -> tuple[DeviceSpec, ...]:
    """A CPU device on every core that this process may use, called A, B and so on; at most 26."""
    return tuple(
        DeviceSpec(name, core=core) for name, core in zip(ascii_uppercase, allowed_cores(), strict=False)
    )


def _read_toml(path: str | Path) -> list[DeviceSpec]:
    file = parse_toml(read_text(path, "toml"), str(path))
    specs = []
    for table in file.tables("device"):
        table.reject_unknown(("name", "plugin", *KEYS))
        for key in ("core", "threads"):
            value = table.value.get(key, 0)
            if isinstance(value, bool) or not isinstance(value, int) or value < 0:
                table.fail(key, f"must be a whole number, not {value!r}")
        speed = table.value.get("speed", 1)
        if isinstance(speed, bool) or not isinstance(speed, int | float):
            table.fail("speed", f"must be a number over 0 and at most 1, not {speed!r}")
        rest = ",".join(f"{key}={table.value[key]}" for key in KEYS if key in table)
        try:
            specs.append(DeviceSpec.parse(f"{table.text('name')}={table.text('plugin', 'cpu')}:{rest}"))
        except InputError as error:
            raise InputError(f"{path}, line {table.line()}: {error}") from None
    return specs


def available() -> list[dict[str, Any]]:
    """What OpenVINO finds in this machine: name, model, what it can compute in."""
    ov = openvino("listing devices")
    core = ov.Core()
    found = []
    for name in core.available_devices:
        capabilities = list(core.get_property(name, "OPTIMIZATION_CAPABILITIES"))
        kind = name.partition(".")[0].lower()
        found.append(
            {
                "name": name.lower(),
                "kind": kind,
                "model": str(core.get_property(name, "FULL_DEVICE_NAME")).strip(),
                "precisions": [p for p, ours in PRECISIONS.items() if ours.upper() in capabilities],
                "cores": len(allowed_cores()) if kind == "cpu" else None,
            }
        )
    return found


class Devices:
    """Devices registered with an ``openvino.Core`` of this process."""

    def __init__(self, specs: Sequence[DeviceSpec]) -> None:
        self.ov = openvino("running a model")
        self.core = self.ov.Core()
        self.specs = {spec.name: spec for spec in specs}
        self.registered: dict[str, str] = {}
        known = [name.lower() for name in self.core.available_devices]
        kinds = {name.partition(".")[0] for name in known}
        for i, spec in enumerate(specs):
            if spec.plugin not in known and spec.plugin not in kinds:
                raise InputError(
                    f"device {spec.name!r}: this machine has no {spec.plugin!r} that OpenVINO can use: "
                    f"it has {', '.join(known)}"
                )
            kind, _, number = spec.plugin.partition(".")
            self.registered[spec.name] = f"LM{kind.upper()}{i}"
            self.core.register_plugin(f"openvino_intel_{kind}_plugin", self.registered[spec.name])
            if number:
                self.core.set_property(self.registered[spec.name], {"DEVICE_ID": number})
            self._check_precision(spec)

    def _check_precision(self, spec: DeviceSpec) -> None:
        """OpenVINO silently computes in another precision where the hardware lacks the one asked for."""
        ops = self.ov.opset13
        x = ops.parameter([1, 8], np.float32)
        tiny = self.ov.Model(
            [ops.matmul(x, ops.constant(np.eye(8, dtype=np.float32)), False, False)], [x], "tiny"
        )
        compiled = self.compile(tiny, spec.name)
        used = compiled.get_property("INFERENCE_PRECISION_HINT").get_type_name()
        able = self.core.get_property(self.registered[spec.name], "OPTIMIZATION_CAPABILITIES")
        if used != "f32" and PRECISIONS[used].upper() not in able:
            used = "f32"
        if used != spec.precision:
            raise InputError(
                f"device {spec.name!r}: this {spec.plugin} cannot compute in {spec.precision} (OpenVINO would silently "
                f"use {used}): choose a precision that it has, e.g. the device {spec.name}={spec.plugin}:precision=f32",
                option="--device",
            )

    def compile(self, model: Any, name: str, **more: Any) -> Any:
        """The model compiled for one device."""
        return self.core.compile_model(
            model, self.registered[name], {**self.specs[name].properties(), **more}
        )

    def compile_hetero(self, model: Any, names: Sequence[str], **more: Any) -> Any:
        """The model compiled for several devices, by the affinities of its nodes where they have some."""
        properties = {self.registered[name]: self.specs[name].properties() for name in names}
        return self.core.compile_model(
            model,
            f"HETERO:{','.join(self.registered[name] for name in names)}",
            {"DEVICE_PROPERTIES": properties, **more},
        )

    def unsupported(self, model: Any, name: str) -> list[str]:
        """Ops that a device does not support, by name."""
        try:
            supported = self.core.query_model(model, self.registered[name])
        except RuntimeError as error:
            raise InputError(f"device {name!r}: cannot say what it supports ({one_line(error)})") from None
        return [
            node.get_friendly_name()
            for node in model.get_ordered_ops()
            if node.get_friendly_name() not in supported and node.get_type_name() != "Constant"
        ]

    def document(self) -> list[dict[str, Any]]:
        """The devices as plain values."""
        return [{**asdict(spec), "registered": self.registered[spec.name]} for spec in self.specs.values()]
