"""Measurements are found again by all that they depend on, and a broken cache loses none."""

from __future__ import annotations

import sqlite3
import subprocess
import sys

import pytest
from small_networks import write_network

from loadmaster.errors import (
    InputError,
)
from loadmaster.runtime import Cache


def test_what_is_kept_is_found_by_everything_it_depends_on(tmp_path):
    cache = Cache(tmp_path / "sub" / "cache.sqlite")
    cache.put("profile", {"model": "a", "device": "cpu"}, {"x": 1})
    assert Cache(cache.path).get("profile", {"device": "cpu", "model": "a"})[0] == {"x": 1}
    assert cache.get("profile", {"model": "b", "device": "cpu"}) is None
    assert cache.get("link", {"model": "a", "device": "cpu"}) is None
    cache.put("profile", {"model": "a", "device": "cpu"}, {"x": 2})
    assert cache.get("profile", {"model": "a", "device": "cpu"})[0] == {"x": 2}
    assert len(cache) == 1


def test_a_damaged_cache_is_refused_before_anything_is_measured(tmp_path):
    path = tmp_path / "cache.sqlite"
    path.write_bytes(b"this is not a database, but long enough to look like one" * 20)
    with pytest.raises(InputError, match="delete it, or give another file as the cache"):
        Cache(path)


def test_a_cache_that_cannot_be_written_loses_no_measurement(tmp_path, monkeypatch):
    cache = Cache(tmp_path / "cache.sqlite")
    monkeypatch.setattr(cache, "_writable", False)
    cache.put("run", {"a": 1}, 5)
    assert "read-only" in cache.trouble
    assert cache.get("run", {"a": 1}) is None


def test_a_cache_that_breaks_while_measuring_is_a_trouble_not_an_error(tmp_path):
    cache = Cache(tmp_path / "cache.sqlite")
    with sqlite3.connect(cache.path) as connection:
        connection.execute("DROP TABLE measured")
    connection.close()
    cache.put("run", {"a": 1}, 5)
    assert "could not be kept" in cache.trouble
    assert cache.get("run", {"a": 1}) is None


def test_two_processes_use_one_cache(tmp_path):
    path = tmp_path / "cache.sqlite"
    Cache(path)
    code = (
        "import sys; from loadmaster.runtime._cache import Cache\n"
        "cache = Cache(sys.argv[1])\n"
        "for i in range(40): cache.put('run', {'who': sys.argv[2], 'i': i}, i)\n"
        "assert cache.trouble is None, cache.trouble"
    )
    both = [subprocess.Popen([sys.executable, "-c", code, str(path), str(who)]) for who in range(2)]
    assert [process.wait() for process in both] == [0, 0]
    assert len(Cache(path)) == 80


def test_models_differ_by_their_weights(tmp_path):
    from loadmaster.runtime._cache import model_hash

    hashes = {model_hash(write_network(tmp_path / f"{i}.xml", seed=i % 2)) for i in range(3)}
    assert len(hashes) == 2
