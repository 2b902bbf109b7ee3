"""What a new user meets first: kernels to compile, packages that are not there, files of another kind."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
from numba import njit
from typer.testing import CliRunner

from loadmaster import api, compiling
from loadmaster.cli import app
from loadmaster.errors import UnsupportedError


def test_warm_says_what_it_does_and_compiles_once():
    first = CliRunner().invoke(app, ["warm", "--method", "greedy", "--model", "serial", "--json"])
    assert first.exit_code == 0
    assert "compiling what greedy needs under serial" in first.stderr
    again = json.loads(
        CliRunner().invoke(app, ["warm", "--method", "greedy", "--model", "serial", "--json"]).stdout
    )
    assert [(entry["model"], entry["kernels"]) for entry in again] == [("serial", 0)]


def test_warm_leaves_out_models_that_the_method_does_not_support():
    assert [found.model for found in api.warm("heft", ["serial", "concurrent"])] == ["concurrent"]
    with pytest.raises(UnsupportedError, match="heft supports none of these models"):
        api.warm("heft", ["serial"])


def test_compiling_is_announced_once_and_what_is_compiled_is_not(monkeypatch):
    monkeypatch.setattr(compiling, "PATIENCE", 0.0)
    monkeypatch.setattr(compiling, "_told", [])
    heard = []
    compiling.on_compiling(lambda: heard.append("compiling"))
    compiling.on_compiling(lambda: heard.append("again"))

    @njit
    def kernel(x):
        return x + 1

    assert kernel(1) == 2
    assert heard == ["compiling"]
    assert kernel(2) == 3
    assert kernel(1.0) == 2.0
    assert heard == ["compiling"]


@pytest.mark.parametrize(
    "command",
    [["profile", "FILE", "-d", "A=cpu"], ["optimize", "FILE"], ["devices"], ["inspect", "FILE.xml"]],
)
def test_without_openvino_there_is_one_sentence_with_the_command_to_install_it(tmp_path, command):
    (tmp_path / "FILE").write_bytes(b"")
    (tmp_path / "FILE.xml").write_bytes(b"")
    script = "import sys; sys.modules['openvino'] = None; from loadmaster.cli import main; main()"
    ended = subprocess.run(
        [sys.executable, "-c", script, *command], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert ended.returncode == 2
    assert "pip install 'loadmaster[openvino]'" in ended.stderr
    assert "Traceback" not in ended.stderr


@pytest.mark.parametrize(
    ("command", "name", "content", "said"),
    [
        ("inspect", "net.bin", b"\x00\x01", "is a file of weights, not a model"),
        ("inspect", "notes.md", b"# Notes", "is a text, not a model"),
        ("inspect", "nodes.toml", b"a = 1", "is a TOML file, not a model"),
        ("inspect", "picture", b"\x89PNG\r\n", "is an image, not a model"),
        ("report", "net.onnx", b"\x08\x07", "is an ONNX model, not a plan"),
        ("inspect", "broken.json", b"{", "is not valid JSON"),
    ],
)
def test_a_file_of_another_kind_is_called_by_its_kind(tmp_path, command, name, content, said):
    path = tmp_path / name
    path.write_bytes(content)
    ended = CliRunner().invoke(app, [command, str(path)])
    assert ended.exit_code == 2
    assert said in ended.stderr


def test_the_command_line_names_its_option_behind_a_sentence_that_fits_all(tmp_path):
    ended = CliRunner().invoke(app, ["inspect", "zoo:layered-5", "--value", "x=much"])
    assert ended.exit_code == 2
    assert "must be a number" in ended.stderr
    assert "(--value)" in ended.stderr
