"""A device slowed down takes so much longer by the clock of its thread."""

from __future__ import annotations

import time

import pytest

from loadmaster.runtime._pace import paced


@pytest.mark.parametrize(("speed", "chunks"), [(0.5, 100), (0.25, 300), (0.8, 25)])
def test_it_stays_busy_for_what_a_slower_device_would_still_need(speed, chunks):
    now, done = [0.0], []

    def run():
        now[0] += 1.0

    def busy():
        done.append(now[0])
        now[0] += 0.01

    paced(run, speed, clock=lambda: now[0], busy=busy)()
    assert len(done) == pytest.approx(chunks, abs=1)
    assert now[0] == pytest.approx(1 / speed, abs=0.02)


def test_at_full_speed_nothing_is_added():
    def run():
        pass

    assert paced(run, 1.0) is run


def test_the_thread_is_busy_by_its_own_clock():
    """The work itself takes 20 ms of the core; at a quarter of the speed there are at least 80 in all."""

    def run():
        end = time.thread_time() + 0.02
        while time.thread_time() < end:
            pass

    began = time.thread_time()
    paced(run, 0.25)()
    assert time.thread_time() - began >= 0.08


def test_an_error_passes_through():
    def run():
        raise RuntimeError("no")

    with pytest.raises(RuntimeError, match="no"):
        paced(run, 0.5)()
