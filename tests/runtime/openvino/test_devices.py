"""Devices are read from texts and files, checked, and get cores of their own."""

from __future__ import annotations

import pytest

from loadmaster.errors import (
    InputError,
)
from loadmaster.runtime.openvino import Devices, DeviceSpec, available, parse_devices
from loadmaster.runtime.openvino._overlapped import cores_of


def test_devices_are_read_from_texts_and_files(tmp_path):
    file = tmp_path / "devices.toml"
    file.write_text(
        '[[device]]\nname = "A"\ncore = 0\n[[device]]\nname = "B"\nplugin = "gpu.1"\nprecision = "f16"\n'
    )
    assert parse_devices([str(file)]) == (DeviceSpec("A", core=0), DeviceSpec("B", "gpu.1", precision="f16"))
    assert parse_devices(["A=cpu:threads=2,precision=bf16"]) == (
        DeviceSpec("A", precision="bf16", threads=2),
    )


def test_a_device_of_a_cluster_says_what_it_is():
    spec = DeviceSpec.parse("A=cpu:core=0,precision=bf16")
    assert DeviceSpec.of(spec.device()) == spec


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("A", "must be written NAME=PLUGIN"),
        ("A=cpu:pace=9", "is not one of node, core"),
        ("A=cpu:core=x", "core must be a whole number"),
        ("A=cpu:core=9999", "core 9999 is not one that this process may use"),
        ("A=cpu:precision=f64", "precision must be one of f32, bf16, f16"),
        ("A=cpu:threads=0", "threads must be at least 1"),
    ],
)
def test_a_wrong_device_is_refused(text, reason):
    with pytest.raises(InputError) as error:
        parse_devices([text])
    assert reason in str(error.value)


def test_a_device_that_is_not_there_is_refused():
    with pytest.raises(InputError, match="no 'npu' that OpenVINO can use"):
        Devices([DeviceSpec("N", "npu")])
    with pytest.raises(InputError, match="'A' appears twice"):
        parse_devices(["A=cpu", "A=cpu"])


def test_a_precision_that_the_hardware_lacks_is_refused_not_replaced():
    (cpu,) = [entry for entry in available() if entry["name"] == "cpu"]
    for precision in ("bf16", "f16"):
        if precision in cpu["precisions"]:
            Devices([DeviceSpec("A", precision=precision)])
        else:
            with pytest.raises(InputError, match=f"cannot compute in {precision}"):
                Devices([DeviceSpec("A", precision=precision)])


def test_devices_get_cores_of_their_own():
    specs = parse_devices(["A=cpu", "B=cpu", "C=cpu"])
    assert cores_of(specs, [4, 7]) == {"A": 4, "B": 7, "C": None}
