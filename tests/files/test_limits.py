"""Limits: each is kept before the memory is asked for, each can be raised, and the message says how."""

import os
import re
from pathlib import Path

import pytest

from loadmaster import api
from loadmaster.errors import InputError, LimitError
from loadmaster.files import (
    LIMITS,
    add_limits,
    check_limit,
    check_regular,
    limit,
    parse_json,
    parse_toml,
    read_bytes,
)
from loadmaster.files._limits import VARIABLE
from loadmaster.plan import Plan


@pytest.fixture(autouse=True)
def no_limits(monkeypatch):
    monkeypatch.setenv(VARIABLE, "")


def test_a_limit_is_raised_by_the_environment(monkeypatch):
    assert limit("devices") == 1024
    monkeypatch.setenv(VARIABLE, "devices=4096, json=20M,file=2e9")
    assert (limit("devices"), limit("json"), limit("file")) == (4096, 20_000_000, 2_000_000_000)
    assert limit("toml") == LIMITS["toml"].default


@pytest.mark.parametrize(
    "text", ["devices", "devices=x", "devices=-1", "nobody=1", "devices=" + "9" * 500, "=", "a=b=c"]
)
def test_what_is_no_limit(monkeypatch, text):
    monkeypatch.setenv(VARIABLE, text)
    with pytest.raises(InputError, match="limit"):
        limit("devices")
    with pytest.raises(InputError, match="limit"):
        add_limits([text])


def test_the_message_says_how_to_raise_it(monkeypatch):
    with pytest.raises(InputError) as refusal:
        check_limit("devices", 5000, "the cluster has 5,000 devices")
    written = re.search(rf"{VARIABLE}=(\S+)", str(refusal.value))[1]
    monkeypatch.setenv(VARIABLE, written)
    check_limit("devices", 5000, "the cluster has 5,000 devices")


def test_a_limit_that_was_raised_lets_through(monkeypatch):
    with pytest.raises(InputError, match="'devices' is 1,024"):
        api.problem("zoo:layered-4", "1100acc")
    add_limits(["devices=2000"])
    assert api.problem("zoo:layered-4", "1100acc").devices == 1100


@pytest.mark.parametrize(
    ("name", "what"),
    [
        ("ops", lambda: api.load("zoo:layered-2000000")),
        ("values", lambda: api.load("zoo:layered-1000?degree=1000000000")),
        ("json", lambda: parse_json(b"[" + b"[]," * 5_000_000 + b"[]]", "x")),
        ("pairs", lambda: api.problem("zoo:layered-20000", "1000acc")),
    ],
)
def test_what_is_beyond_a_limit(name, what):
    with pytest.raises(InputError, match=f"the limit '{name}' is"):
        what()


def test_keys_of_many_parts(tmp_path):
    with pytest.raises(InputError, match="nested too deeply"):
        parse_toml(".".join("a" * 50_000) + " = 1", "x.toml")
    numbers = ", ".join(["0.5"] * 1000)
    assert parse_toml(f"x = [{numbers}]\na.b.c = 1", "x.toml").value["a"] == {"b": {"c": 1}}


def test_only_plain_files_are_read(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    for path, said in (
        (tmp_path / "pipe", "is a pipe"),
        (tmp_path, "Is a directory"),
        (Path("/dev/zero"), "is a device"),
    ):
        for read in (read_bytes, check_regular):
            with pytest.raises(InputError, match=said):
                read(path)
    (tmp_path / "large").touch()
    os.truncate(tmp_path / "large", 2**40)
    with pytest.raises(InputError, match="the limit 'file' is"):
        read_bytes(tmp_path / "large")


def test_messages_repeat_little():
    for text in ("op " + repr("x" * 5000) + " is bad", "a" * 5000, "device '" + "b c " * 2000 + "' is bad"):
        error = InputError(text)
        assert len(str(error)) <= 1001
    assert "x" * 201 not in str(InputError("op " + repr("x" * 5000) + " is bad"))
    assert str(InputError("op " + repr("x" * 5000) + " is bad")).endswith(" is bad")
    assert str(InputError("short")) == "short"


def test_a_plan_beyond_a_limit_is_not_called_damaged(tmp_path, monkeypatch):
    problem = api.problem("zoo:layered-300", model="serial")
    Plan.from_solution(problem, api.place(problem, "single", evaluations=3)).save(tmp_path / "plan.json")
    monkeypatch.setenv(VARIABLE, "json=1000")
    with pytest.raises(LimitError, match="'json' is 1,000") as refusal:
        Plan.load(tmp_path / "plan.json")
    assert "damaged" not in str(refusal.value)
    monkeypatch.setenv(VARIABLE, "")
    assert Plan.load(tmp_path / "plan.json").problem().digest == problem.digest
