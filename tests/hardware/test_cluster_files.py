"""Clusters from TOML, presets, and that every mistake is named with its file, line and key."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loadmaster.errors import InputError
from loadmaster.files import line_numbers
from loadmaster.files._quantities import (
    BYTES,
    BYTES_PER_SECOND,
    FLOP_PER_SECOND,
    SECONDS,
    UNITS,
    Quantity,
    parse_quantity,
)
from loadmaster.graph import layered
from loadmaster.hardware import (
    accelerators,
    load_cluster,
    parse_cluster,
    preset,
    preset_names,
    read_cluster,
    roofline,
)
from loadmaster.hardware._presets import FOLDER

GOOD = """\
name = "box"
description = "a box"
host = "cpu"

[[device]]
name = "cpu"
kind = "cpu"
flops = "1.5 TFLOP/s"
bandwidth = 50e9
launch = "2 us"

[[device]]
name = "gpu"
count = 2
kind = "gpu"
flops = { fp32 = "10 TFLOP/s", fp16 = "20 TFLOP/s" }
bandwidth = "500 GB/s"
weight_bandwidth = "400 GB/s"
capacity = "16 GiB"
launch = 5e-6
efficiency = { conv = 0.5, default = 0.4 }
saturation = { conv = 1e5 }
source = "a data sheet"

[default_link]
latency = "10 us"
bandwidth = "12 GB/s"

[[link]]
between = ["gpu*", "gpu*"]
bandwidth = "20 GB/s"

[[link]]
from = "cpu"
to = "gpu1"
latency = 0
"""


def replaced(old: str, new: str) -> str:
    assert GOOD.count(old) == 1, old
    return GOOD.replace(old, new)


# -- what a file says ----------------------------------------------------------------------------------------


def test_everything_in_a_file() -> None:
    cluster = parse_cluster(GOOD, "box.toml")
    assert (cluster.name, cluster.description, cluster.host) == ("box", "a box", 0)
    assert cluster.names == ("cpu", "gpu0", "gpu1")
    cpu, gpu, _ = cluster.devices
    assert (cpu.flops, cpu.bandwidth, cpu.launch, cpu.capacity) == (1.5e12, 50e9, 2e-6, math.inf)
    assert (gpu.flops, gpu.bandwidth, gpu.launch, gpu.capacity) == (10e12, 500e9, 5e-6, 16 * 2**30)
    assert gpu.peak("fp16") == 20e12
    assert gpu.peak("int8") == 10e12
    assert gpu.weight_bandwidth == 400e9
    assert gpu.efficiency == {"conv": 0.5, "default": 0.4}
    assert gpu.saturation == {"conv": 1e5}
    assert gpu.source == ("a data sheet",)


def test_links_are_the_default_but_for_the_last_entry_that_fits() -> None:
    latency, rate = parse_cluster(GOOD, "box.toml").link_arrays()
    assert latency.tolist() == [[0, 1e-5, 0], [1e-5, 0, 1e-5], [1e-5, 1e-5, 0]]
    assert rate[0, 1] == rate[1, 0] == 1 / 12e9
    assert rate[1, 2] == rate[2, 1] == 1 / 20e9


def test_the_example_in_the_documentation() -> None:
    text = (Path(__file__).parents[2] / "docs" / "clusters-and-costs.md").read_text(encoding="utf-8")
    example = text.split("```toml\n")[1].split("```")[0]
    cluster = parse_cluster(example, "docs.toml")
    assert cluster.names == ("cpu", "gpu0", "gpu1")
    latency, rate = cluster.link_arrays()
    assert (latency[0, 2], rate[1, 2]) == (12e-6, 1 / 20e9)


def test_the_host_is_the_first_cpu_if_nothing_is_said() -> None:
    text = replaced('host = "cpu"\n', "").replace('name = "cpu"\nkind = "cpu"', 'name = "cpu"\nkind = "npu"')
    assert parse_cluster(text, "box.toml").host == 0
    assert parse_cluster(text.replace('kind = "gpu"', 'kind = "cpu"'), "box.toml").host == 1


def test_the_name_is_that_of_the_file_if_nothing_is_said(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(replaced('name = "box"\n', ""))
    assert read_cluster(path).name == "mine"
    assert load_cluster(str(path)) == read_cluster(path)


# -- mistakes ------------------------------------------------------------------------------------------------

MISTAKES = {
    "negative bandwidth": ('bandwidth = "500 GB/s"', 'bandwidth = "-500 GB/s"', 17, "bandwidth", "> 0"),
    "zero flops": ('flops = "1.5 TFLOP/s"', "flops = 0", 8, "flops", "> 0"),
    "a time for a bandwidth": ('bandwidth = "12 GB/s"', 'bandwidth = "10 us"', 27, "bandwidth", "is a time"),
    "bytes for a bandwidth": ('bandwidth = "12 GB/s"', 'bandwidth = "12 GB"', 27, "bandwidth", "an amount of memory"),
    "a bandwidth for a capacity": ('"16 GiB"', '"16 GiB/s"', 19, "capacity", "is a bandwidth"),
    "an unknown unit": ('"16 GiB"', '"16 Gb"', 19, "capacity", "'Gb'"),
    "no number": ('"16 GiB"', '"lots"', 19, "capacity", "'lots'"),
    "a unit without quotes": ('"16 GiB"', "16 GiB", 19, "capacity", "in quotes"),
    "not a number": ("launch = 5e-6", "launch = nan", 20, "launch", "nan"),
    "true for a number": ("launch = 5e-6", "launch = true", 20, "launch", "true or false"),
    "a list for a number": ("launch = 5e-6", "launch = [5e-6]", 20, "launch", "a list"),
    "a negative time": ("launch = 5e-6", 'launch = "-5 us"', 20, "launch", ">= 0"),
    "efficiency above one": ("conv = 0.5", "conv = 50", 21, "conv", "at most 1"),
    "efficiency of no kind": ("conv = 0.5", "convolution = 0.5", 21, "convolution", "matmul"),
    "a precision that is none": ("fp16 =", "half =", 16, "half", "fp16"),
    "no fp32": ('fp32 = "10 TFLOP/s", ', "", 16, "fp32", "missing"),
    "unknown key of a device": ("capacity =", "memory =", 19, "memory", "capacity"),
    "unknown key of a link": ("latency = 0", "delay = 0", 36, "delay", "latency"),
    "unknown key of the file": ('host = "cpu"', 'hosts = "cpu"', 3, "hosts", "host"),
    "unknown host": ('host = "cpu"', 'host = "cpu7"', 3, "host", "'cpu7'"),
    "unknown device of a link": ('to = "gpu1"', 'to = "gpu7"', 35, "to", "'gpu7'"),
    "unknown device between": ('["gpu*", "gpu*"]', '["gpu*", "tpu*"]', 30, "between", "'tpu*'"),
    "one end of a link": ('["gpu*", "gpu*"]', '["gpu*"]', 30, "between", "two devices"),
    "no count": ("count = 2", "count = 0", 14, "count", ">= 1"),
    "a number for a name": ('name = "gpu"', "name = 7", 13, "name", "in quotes"),
    "a device twice": ('name = "gpu"\ncount = 2', 'name = "cpu"', 13, "name", "second device called 'cpu'"),
    "no kind": ('kind = "gpu"\n', "", 12, "kind", "missing"),
    "a table for a text": ('description = "a box"', "description = {}", 2, "description", "in quotes"),
    "a text for a table": ("saturation = { conv = 1e5 }", 'saturation = "much"', 22, "saturation", "table"),
}  # fmt: skip


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_named_with_file_line_and_key(mistake: str) -> None:
    old, new, line, key, word = MISTAKES[mistake]
    with pytest.raises(InputError) as caught:
        parse_cluster(replaced(old, new), "some/box.toml")
    message = str(caught.value)
    assert message.startswith(f"some/box.toml, line {line}: ")
    assert f"'{key}'" in message
    assert word in message
    assert "\n" not in message


def test_a_pair_without_a_link_is_named() -> None:
    text = replaced('[default_link]\nlatency = "10 us"\nbandwidth = "12 GB/s"\n', "")
    with pytest.raises(InputError, match=r"box.toml, line 26: link 1: 'latency' is missing"):
        parse_cluster(text, "box.toml")
    text = text[: text.index("[[link]]")]
    with pytest.raises(InputError, match=r"box.toml, line 12: .* no link from 'cpu' to 'gpu0'"):
        parse_cluster(text, "box.toml")


def test_a_file_without_devices_or_without_sense(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"x.toml, line 1: 'device' is missing"):
        parse_cluster('name = "x"', "x.toml")
    with pytest.raises(InputError, match=r"x.toml, line 2: is not valid TOML"):
        parse_cluster('name = "x"\n[[device\n', "x.toml")
    with pytest.raises(InputError, match="there is no such file"):
        read_cluster(tmp_path / "no.toml")
    (tmp_path / "bytes.toml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(InputError, match="UTF-8"):
        read_cluster(tmp_path / "bytes.toml")


def test_lines_are_found_behind_values_of_many_lines() -> None:
    text = """\
a = [
  "b = 1",  # ]
  { c = 2 },
]
d = '''
e = 3
'''
"f.g" = 4
h.i = 5
[j.k]
l = 6
[[m]]
[[m]]
n = 7
[m.o]
p = 8
"""
    assert line_numbers(text) == {
        ("a",): 1, ("d",): 5, ("f.g",): 8, ("h", "i"): 9, ("j", "k"): 10, ("j", "k", "l"): 11, ("m", 0): 12,
        ("m", 1): 13, ("m", 1, "n"): 14, ("m", 1, "o"): 15, ("m", 1, "o", "p"): 16,
    }  # fmt: skip


# -- units -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "quantity", "number"),
    [
        ("10 us", SECONDS, 1e-5),
        ("10us", SECONDS, 1e-5),
        ("1.5 µs", SECONDS, 1.5e-6),
        ("3", SECONDS, 3.0),
        (7, BYTES, 7.0),
        ("16 GiB", BYTES, 16 * 2**30),
        ("16 GB", BYTES, 16e9),
        ("1_000 kB", BYTES, 1e6),
        ("100 Gbit/s", BYTES_PER_SECOND, 12.5e9),
        (".5 TB/s", BYTES_PER_SECOND, 0.5e12),
        ("9.3 TFLOPS", FLOP_PER_SECOND, 9.3e12),
        ("1e3 GFLOP/s", FLOP_PER_SECOND, 1e12),
    ],
)
def test_units(text: str, quantity: Quantity, number: float) -> None:
    assert parse_quantity(text, quantity) == number


@given(st.sampled_from(sorted(UNITS)), st.sampled_from([SECONDS, BYTES, BYTES_PER_SECOND, FLOP_PER_SECOND]))
def test_a_unit_is_taken_only_where_it_belongs(unit: str, quantity: Quantity) -> None:
    if UNITS[unit][0] is quantity:
        assert parse_quantity(f"2 {unit}", quantity) == pytest.approx(2 * float(UNITS[unit][1]))
    else:
        with pytest.raises(ValueError, match=UNITS[unit][0].name):
            parse_quantity(f"2 {unit}", quantity)


# -- presets ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", preset_names())
def test_every_preset_is_complete_and_says_where_its_figures_come_from(name: str) -> None:
    cluster = preset(name)
    assert cluster.name == name
    assert cluster.description
    assert cluster.source
    assert all(device.source for device in cluster.devices)
    assert cluster.devices[cluster.host].kind == "cpu"
    graph = layered(10)
    time = roofline(graph, cluster)
    assert time.shape == (10, len(cluster))
    assert (time > 0).all()


def test_every_file_of_presets_is_listed() -> None:
    assert {path.stem for path in FOLDER.glob("*.toml")} == {"hsdag", "hsdag-study", "laptop", "p100"}


def test_the_p100_presets_have_the_published_figures() -> None:
    for count in (1, 2, 4, 8):
        cluster = preset(f"p100-{count}")
        assert [device.kind for device in cluster.devices] == ["cpu"] + count * ["gpu"]
        gpu = cluster.devices[-1]
        assert (gpu.flops, gpu.peak("fp16"), gpu.bandwidth, gpu.capacity) == (9.3e12, 18.7e12, 732e9, 2**34)


def test_the_study_preset_has_the_parameters_of_the_study() -> None:
    cpu, igpu, gpu = preset("hsdag-study").devices
    assert (cpu.flops, cpu.bandwidth, cpu.weight_bandwidth, cpu.launch) == (1.45e12, 200e9, 55e9, 2e-6)
    assert (cpu.efficiency["conv"], cpu.efficiency["matmul"]) == (0.7, 0.65)
    assert (gpu.flops, gpu.bandwidth, gpu.launch) == (16.8e12, 400e9, 12e-6)
    assert (gpu.saturation["conv"], gpu.saturation["matmul"]) == (4.5e5, 2e4)
    assert (igpu.flops, igpu.launch) == (0.8e12, 8e-6)
    latency, rate = preset("hsdag-study").link_arrays()
    assert (latency[0, 2], rate[0, 2]) == (15e-6, 1 / 16e9)
    assert (latency[0, 1], rate[0, 1]) == (8e-6, 1 / 25e9)


def test_accelerators_and_cpus_by_number() -> None:
    assert preset("3acc+2cpu") == accelerators(3, 2)
    assert preset("4acc").names == ("acc0", "acc1", "acc2", "acc3")


@pytest.mark.parametrize(
    "name", ["p100", "p100-0", "p100-99999", "h100-2", "nothing", "", "0acc", "9999999acc"]
)
def test_a_name_that_is_none_is_refused(name: str) -> None:
    with pytest.raises(InputError, match="cluster"):
        preset(name)
