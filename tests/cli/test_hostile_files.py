"""Files that a stranger made: one sentence and exit code 2, whatever is in them; and the last resort behind it all."""

import base64
import json
import os
import re
import tracemalloc
import zlib
from pathlib import Path

import numpy as np
import pytest
from test_mutated_files import packed, small_plan, small_problem, with_hash
from typer.testing import CliRunner

from loadmaster import api
from loadmaster.cli import app
from loadmaster.errors import InputError
from loadmaster.plan import Plan
from loadmaster.problem._file import dump_problem

REPRO = Path(__file__).parents[3] / "shared" / "repro"


def refused(*arguments) -> str:
    """The one sentence with which a command ends, exit code 2."""
    outcome = CliRunner().invoke(app, [str(argument) for argument in arguments])
    assert outcome.exit_code == 2, outcome.output
    assert outcome.stdout == ""
    lines = outcome.stderr.strip().splitlines()
    assert len(lines) == 1, outcome.stderr
    assert lines[0].startswith("loadmaster: error: ")
    return lines[0]


def written(path: Path, document) -> Path:
    path.write_text(json.dumps(document))
    return path


def changed(base, *path, value):
    """A copy with another value at a path."""
    document = json.loads(json.dumps(base))
    inner = document
    for key in path[:-1]:
        inner = inner[key]
    inner[path[-1]] = value
    return document


# -- problems ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "value", "said"),
    [
        (("ops", 0, "time"), [1e308, 1e308], "too large to add up safely"),
        (("ops", 0, "time", 0), 10**400, "a whole number of 401 digits is too large"),
        (("colocation",), [3], "colocation[0] must be a list, not 3"),
        (("pins",), {"9" * 5000: 0}, "is not an op"),
        (("devices", 0, "capacity"), 1e308, "capacity"),
        (("ops",), [[]] * 3, "must be an object"),
    ],
)
def test_a_wrong_value_in_a_problem(tmp_path, path, value, said):
    file = written(tmp_path / "net.json", changed(dump_problem(small_problem()), *path, value=value))
    for command in ("inspect", "place"):
        assert said in refused(command, file)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b'{"format": "op\xff"}', "is not valid JSON"),
        (b'{"a": 1, "a": 2}', "the key 'a' appears twice"),
        (b"[" * 80 + b"]" * 80, "nested too deeply"),
        (b'{"a": NaN}', "is not valid JSON"),
        (b'{"a": 1e309}', "is not valid JSON"),
        (b'{"a": ' + b"9" * 5000 + b"}", "is not valid JSON"),
        (b"", "is not valid JSON"),
        (b"null", "is not a workload, a graph"),
    ],
)
def test_json_that_is_none(tmp_path, content, said):
    file = tmp_path / "net.json"
    file.write_bytes(content)
    assert said in refused("inspect", file)


def test_what_is_no_file(tmp_path):
    assert "cannot be read" in refused("inspect", tmp_path)
    assert "there is no such file" in refused("inspect", tmp_path / "missing.json")
    assert "cannot be read" in refused("inspect", tmp_path / ("x" * 300 + ".json"))
    assert "cannot be read" in refused("inspect", tmp_path / ("x" * 300 + ".xml"))
    assert "is a device" in refused("inspect", "/dev/zero")


# -- plans ---------------------------------------------------------------------------------------------------


def with_array(key: str, array: np.ndarray) -> dict:
    """A plan with another array in its graph, and hashes that fit."""
    document = small_plan(small_problem())
    document["problem"]["graph"]["arrays"][key] = packed(array)
    return with_hash(document)


@pytest.mark.parametrize(
    ("key", "array", "said"),
    [
        ("consumer_op", np.array([1, 2, 0], "<i4"), "the graph has a cycle: op"),
        ("consumer_op", np.array([1, 2, 9], "<i4"), "a tensor's consumer is op 9, which does not exist"),
        (
            "tensor_producer",
            np.array([0, 1, -5], "<i4"),
            "a tensor's producer is op -5, which does not exist",
        ),
        ("consumer_ptr", np.array([0, 2, 1, 3], "<i4"), "must increase from 0 to 3"),
        ("consumer_ptr", np.array([0, 1, 2, 2**31 - 1], "<i4"), "must increase from 0 to 3"),
        ("consumer_ptr", np.array([0, 3], "<i4"), "shape must be 4"),
        ("flops", np.ones(7), "shape must be 4"),
        ("flops", np.array([1.0, np.nan, 1.0, 1.0]), "flops must be a finite number"),
        ("backward", np.array([0, 2, 0, 0], "|u1").view("|b1"), "boolean values must be 0 or 1"),
        ("flops", np.ones(4, "<i4"), "dtype must be '<f8'"),
    ],
)
def test_arrays_of_a_plan_are_checked_as_a_builder_checks(tmp_path, key, array, said):
    file = written(tmp_path / "plan.json", with_array(key, array))
    assert said in refused("report", file, "-o", tmp_path / "report.html")
    assert said in refused("lint", file)


@pytest.mark.parametrize(
    ("path", "value", "said"),
    [
        (("measured",), [1], "measured: must be an object, not a list"),
        (("measured",), {"schedule": [3]}, "schedule[0]: must be an object"),
        (("devices",), [3, 4], "devices[0]: must be an object"),
        (("problem", "cluster", "devices", 0), 3, "devices[0]: must be an object"),
        (("problem", "cluster", "devices", 0, "saturation"), 3, "saturation"),
        (("problem", "cluster", "links"), [[None, [1]], [None, None]], "links[0][1]"),
        (("settings",), {"name": "x"}, "has no setting 'name'"),
        (("problem", "surplus"), ["x"], "surplus"),
    ],
)
def test_a_wrong_value_in_a_plan(tmp_path, path, value, said):
    file = written(tmp_path / "plan.json", changed(small_plan(small_problem()), *path, value=value))
    assert said in refused("explain", file)


def test_labels_that_hold_each_other_too_often(tmp_path):
    deep = b'{"names": ' + b"[" * 500 + b"]" * 500 + b"}"
    plan = small_plan(small_problem())
    plan["problem"]["graph"]["labels"] = base64.b64encode(zlib.compress(deep)).decode()
    assert "nested too deeply" in refused("report", written(tmp_path / "plan.json", plan))


@pytest.mark.parametrize("what", ["tensor_producer", "labels"])
def test_a_small_file_does_not_unpack_to_gigabytes(what):
    zeros = zlib.compressobj(9)
    data = b"".join([*(zeros.compress(bytes(2**20)) for _ in range(192)), zeros.flush()])
    plan = small_plan(small_problem())
    graph = plan["problem"]["graph"]
    text = base64.b64encode(data).decode()
    if what == "labels":
        graph["labels"] = text
    else:
        graph["arrays"][what] = {"dtype": "<i4", "shape": [48 * 2**20], "data": text}
    tracemalloc.start()
    with pytest.raises(InputError, match="unpacks to more than"):
        Plan.parse(plan, "plan.json")
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert most < 3e8


# -- options -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "options",
    [
        ("--budget", "1e309"),
        ("--budget", "9" * 400),
        ("--evaluations", "9" * 400),
        ("--seed", "9" * 400),
        ("--seed", "-1"),
        ("--model", "offload", "--max-calls", "9" * 400),
        ("--scale-to", "cpu0=1e400"),
        ("--cluster", "9" * 5000 + "acc"),
        ("--coarsen", "matching:" + "9" * 5000),
    ],
)
def test_numbers_beyond_measure_in_options(options):
    assert len(refused("place", "zoo:layered-4", *options)) < 1000


@pytest.mark.parametrize("text", ["1e400", "9" * 5000])
def test_numbers_that_are_none_in_options(text):
    outcome = CliRunner().invoke(app, ["place", "zoo:layered-4", "--evaluations", text])
    assert outcome.exit_code == 2
    assert "Invalid value for '--evaluations'" in outcome.stderr


@pytest.mark.parametrize("size", ["9" * 30, "9" * 5000, "1000000x1000000x1000000", "x".join("2" * 70)])
def test_shapes_beyond_measure(tmp_path, size):
    (tmp_path / "net.onnx").write_bytes(b"")
    assert "at most 2**40 elements" in refused("inspect", tmp_path / "net.onnx", "--shape", f"x={size}")


# -- other formats -------------------------------------------------------------------------------------------


def test_a_cell_that_is_too_long_for_csv(tmp_path):
    table = tmp_path / "costs.csv"
    table.write_text("op,acc0,acc1,cpu0\n" + "x" * 140_000 + ",1,1,1\n")
    assert "line 2: is not valid CSV" in refused("place", "zoo:layered-4", "--costs", table)


@pytest.mark.parametrize(
    "line",
    [
        "flops = " + "9" * 400,
        "flops = " + "9" * 5000,
        "flops = 0x" + "f" * 5000,
        "flops = " + "[" * 5000,
        "flops = '1e99999999999'",
    ],
)
def test_numbers_beyond_measure_in_toml(tmp_path, line):
    file = tmp_path / "box.toml"
    file.write_text(f'[[device]]\nname = "cpu"\nkind = "cpu"\nbandwidth = 1e9\n{line}\n')
    refused("clusters", file)


def test_a_cluster_of_a_billion_devices(tmp_path):
    file = tmp_path / "box.toml"
    file.write_text('[[device]]\nname = "c"\nkind = "cpu"\ncount = 1000000000\nflops = 1\nbandwidth = 1\n')
    assert "'count' must be a whole number >= 1 and <= 1024" in refused("clusters", file)


IR = """<?xml version="1.0"{encoding}?><net name="n" version="11"><layers>
<layer id="0" name="w" type="Const" version="opset1">
<data element_type="f32" shape="1" offset="{offset}" size="{size}"/>
<output><port id="0" precision="FP32"><dim>1</dim></port></output></layer></layers><edges/></net>"""


@pytest.mark.parametrize(
    ("encoding", "offset", "size", "said"),
    [
        ("", "abc", "4", "the offset of a constant is 'abc'"),
        ("", "0", "-4", "the size of a constant is '-4'"),
        ("", "9" * 5000, "4", "the offset of a constant is"),
        ("", "1000", "4", "is truncated"),
        (' encoding="klingon"', "0", "4", "is not an OpenVINO IR"),
    ],
)
def test_an_ir_with_wrong_weights(tmp_path, encoding, offset, size, said):
    (tmp_path / "net.bin").write_bytes(bytes(4))
    (tmp_path / "net.xml").write_text(IR.format(encoding=encoding, offset=offset, size=size))
    assert said in refused("inspect", tmp_path / "net.xml")


def test_an_ir_without_its_weights(tmp_path):
    (tmp_path / "net.xml").write_text(IR.format(encoding="", offset="0", size="4"))
    assert "its weights are missing" in refused("inspect", tmp_path / "net.xml")


# -- the last resort -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "error", [KeyError("x"), ZeroDivisionError("zero"), RecursionError("deep"), MemoryError()]
)
def test_a_mistake_of_ours_asks_for_a_report(monkeypatch, error):
    def fail(*_, **__):
        raise error

    monkeypatch.setattr(api, "problem", fail)
    outcome = CliRunner().invoke(app, ["inspect", "zoo:layered-4", "--json"])
    assert outcome.exit_code == 70
    assert outcome.stdout == ""
    assert len(outcome.stderr.strip().splitlines()) == 1
    assert f"this is a bug in Loadmaster ({type(error).__name__}): please report it" in outcome.stderr
    file = Path(re.search(r"the details are in (\S+)", outcome.stderr)[1])
    try:
        assert "Traceback (most recent call last)" in file.read_text()
    finally:
        file.unlink()


def test_messages_stay_on_one_line_whatever_a_file_calls_its_ops(tmp_path):
    problem = changed(dump_problem(small_problem()), "ops", 0, "name", value="a\n\x1b[31m" + "x" * 5000)
    problem["ops"][0]["time"] = ["late", 1]
    sentence = refused("inspect", written(tmp_path / "net.json", problem))
    assert "\x1b" not in sentence
    assert len(sentence) < 2200


# -- the reviewers' files ------------------------------------------------------------------------------------


def test_the_files_that_reviewers_found(tmp_path):
    if not REPRO.is_dir():
        pytest.skip(f"the reviewers' files are not in {REPRO}")
    out = ("-o", tmp_path / "report.html")
    refused("place", REPRO / "time_1e308.json", "--method", "local-search", "--evaluations", "50")
    for name in ("coloc_int.json", "offset_abc.xml"):
        refused("inspect", REPRO / name)
    plans = ("measured_list", "plan_device_not_a_table", "plan_cycle", "deep_labels", "plan_pointer_huge")
    for name in plans:
        refused("report", REPRO / f"{name}.json", *out)
    assert not os.path.exists(tmp_path / "report.html")
