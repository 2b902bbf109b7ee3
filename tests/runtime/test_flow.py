"""Devices that work at once stop when something fails, and hold no more requests than there are slots."""

from __future__ import annotations

import threading
import time

import pytest

from loadmaster.errors import RunError
from loadmaster.runtime._flow import Flow, Job


def flow(first, second, slots=1):
    """Two devices, of which B waits for A."""
    return Flow(
        [[Job("one", "A", first, (1,), 0), Job("two", "B", second, (), 1)]] * slots, {"A": None, "B": None}
    )


def fail():
    raise ValueError("out of luck")


def test_a_slot_is_free_again_only_when_an_abandoned_request_is_done():
    gate = threading.Event()
    running = flow(lambda: None, gate.wait)
    request = running.submit(running.reserve())
    running.release(request)
    waiting = threading.Thread(target=running.reserve)
    waiting.start()
    waiting.join(0.05)
    assert waiting.is_alive()
    gate.set()
    waiting.join()
    running.close()


def test_an_error_of_a_submodel_comes_back_and_the_next_request_runs():
    runs = []
    broken = [True]

    def second():
        runs.append(1)
        if broken[0]:
            fail()

    running = flow(lambda: None, second)
    request = running.submit(running.reserve())
    with pytest.raises(RunError, match="two on device 'B' failed: out of luck"):
        running.wait(request)
    running.release(request)
    broken[0] = False
    request = running.submit(running.reserve())
    running.wait(request)
    running.close()
    assert len(runs) == 2


def test_what_waits_for_a_failed_submodel_never_runs():
    ran = []
    running = flow(fail, lambda: ran.append(1))
    with pytest.raises(RunError, match="one on device 'A'"):
        running.wait(running.submit(running.reserve()))
    running.close()
    assert not ran


def test_closing_ends_the_threads_and_fails_what_is_in_flight():
    gate = threading.Event()
    before = threading.active_count()
    running = flow(lambda: None, gate.wait, slots=2)
    requests = [running.submit(running.reserve()) for _ in range(2)]
    while not requests[0].running:
        time.sleep(0.001)
    closing = threading.Thread(target=running.close)
    closing.start()
    gate.set()
    closing.join()
    assert threading.active_count() == before
    with pytest.raises(RunError, match="closed while it ran"):
        running.wait(requests[1])
    with pytest.raises(RunError, match="is closed"):
        running.reserve()


def test_a_slow_device_holds_back_the_stream_not_the_memory():
    """No more requests are in flight than there are slots."""
    gate = threading.Semaphore(0)
    running = flow(lambda: None, gate.acquire, slots=2)
    requests = [running.submit(running.reserve()) for _ in range(2)]
    third = threading.Thread(target=lambda: requests.append(running.submit(running.reserve())))
    third.start()
    third.join(0.05)
    assert third.is_alive()
    gate.release()
    running.wait(requests[0])
    running.release(requests[0])
    third.join()
    gate.release(2)
    for request in requests[1:]:
        running.wait(request)
    running.close()


def test_pieces_that_wait_for_each_other_are_refused():
    jobs = [Job("one", "A", fail, (1,), 1), Job("two", "A", fail, (0,), 1)]
    with pytest.raises(RunError, match="one never starts"):
        Flow([jobs], {"A": None})
