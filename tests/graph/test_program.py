"""A .pt2 file that would have PyTorch run code is refused, and its code does not run."""

import contextlib
import io
import json
import logging
import os
import zipfile

import pytest

from loadmaster.errors import InputError
from loadmaster.graph._program import _is_arithmetic, check_program
from loadmaster.graph.openvino._pytorch import load_program

torch = pytest.importorskip("torch")


class Code:
    def __init__(self, marker):
        self.marker = marker

    def __reduce__(self):
        return os.mkdir, (str(self.marker),)


@pytest.fixture(scope="module")
def parts():
    size = torch.export.Dim("batch", min=2, max=64)
    program = torch.export.export(
        torch.nn.Linear(4, 3), (torch.ones(2, 4),), dynamic_shapes={"input": {0: size}}
    )
    stream = io.BytesIO()
    torch.export.save(program, stream)
    with zipfile.ZipFile(stream) as archive:
        return {part.filename: archive.read(part) for part in archive.infolist()}


def written(path, parts, method=zipfile.ZIP_STORED):
    with zipfile.ZipFile(path, "w", method) as archive:
        for name, content in parts.items():
            archive.writestr(name, content)
    return path


def part(parts, text):
    return next(name for name in parts if text in name)


def test_a_plain_program_is_read(tmp_path, parts):
    program = load_program(written(tmp_path / "net.pt2", parts))
    assert program.module()(torch.ones(5, 4)).shape == (5, 3)


def test_example_inputs_that_are_code_do_not_run(tmp_path, parts, monkeypatch):
    monkeypatch.setattr(logging, "raiseExceptions", False)  # torch 2.13 cannot format its own warning
    stream = io.BytesIO()
    torch.save((Code(tmp_path / "ran"),), stream)
    file = written(tmp_path / "net.pt2", {**parts, part(parts, "sample_inputs"): stream.getvalue()})
    with pytest.raises(InputError, match="not plain tensors"):
        load_program(file)
    assert not (tmp_path / "ran").exists()
    with contextlib.suppress(Exception):
        torch.export.load(str(file))  # what would have happened
    assert (tmp_path / "ran").exists()


def test_weights_that_are_pickled_are_refused(tmp_path, parts):
    name = part(parts, "weights_config")
    config = json.loads(parts[name])
    for entry in config["config"].values():
        entry["use_pickle"] = True
    with pytest.raises(InputError, match="weights or constants that are pickled"):
        check_program(written(tmp_path / "net.pt2", {**parts, name: json.dumps(config).encode()}))


@pytest.mark.parametrize(
    "operator",
    ["torch.os.system", "torch.hub.load", "torch.ops.load_library", "_operator.methodcaller", "#x", "print"],
)
def test_functions_that_are_no_operators_are_refused(tmp_path, parts, operator):
    name = part(parts, "models/")
    content = parts[name].replace(b"torch.ops.aten.linear.default", operator.encode())
    assert content != parts[name]
    with pytest.raises(InputError, match="the operator"):
        check_program(written(tmp_path / "net.pt2", {**parts, name: content}))


def test_expressions_that_are_code_are_refused(tmp_path, parts):
    name = part(parts, "models/")
    content = parts[name].replace(b"Symbol(", b"__import__(")
    assert content != parts[name]
    with pytest.raises(InputError, match="the expression"):
        check_program(written(tmp_path / "net.pt2", {**parts, name: content}))


@pytest.mark.parametrize(
    ("text", "arithmetic"),
    [
        ("Mul(Integer(3), Symbol('s77', positive=True, integer=True))", True),
        ("s0*s1 + 2", True),
        ("Max(1, s0)//4", True),
        ("", True),
        ("__import__('os')", False),
        ("os.system", False),
        ("open(x)", False),
        ("().__class__", False),
        ("9**9999999", False),
        ("Pow(Integer(9), Integer(99999))", False),
        ("'a b'", False),
        ("lambda: 1", False),
        ("[x for x in y]", False),
    ],
)
def test_what_is_arithmetic(text, arithmetic):
    assert _is_arithmetic(text) == arithmetic


def test_an_archive_that_unpacks_to_more_than_it_holds(tmp_path, parts):
    file = written(tmp_path / "net.pt2", {**parts, "big": bytes(10**7)}, zipfile.ZIP_DEFLATED)
    with pytest.raises(InputError, match="compressed"):
        check_program(file)
