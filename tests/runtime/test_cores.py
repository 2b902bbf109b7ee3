"""Where a process cannot be kept to cores, nothing is measured, and all else goes on."""

from __future__ import annotations

import os

import pytest

from loadmaster.errors import UnsupportedError
from loadmaster.runtime import allowed_cores, calmest_core
from loadmaster.runtime._cores import pin
from loadmaster.runtime._worker import Worker


def test_the_calmest_core_is_one_that_may_be_used():
    assert calmest_core() in allowed_cores()


def test_without_pinning_no_worker_starts(monkeypatch):
    for name in ("sched_getaffinity", "sched_setaffinity"):
        monkeypatch.delattr(os, name, raising=False)
    assert allowed_cores() == list(range(os.cpu_count() or 1))
    pin({0})
    with pytest.raises(UnsupportedError, match="needs Linux"):
        Worker([0], "nobody:Nothing")
