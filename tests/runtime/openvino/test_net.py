"""A plan is called like a function."""

from __future__ import annotations

import itertools
import threading

import numpy as np
import openvino as ov
import pytest
from small_networks import overlapping_plan

import loadmaster
from loadmaster.errors import InputError, UnsupportedError
from loadmaster.problem import Concurrent, Pipeline, Serial


@pytest.mark.parametrize("model", [Concurrent(), Pipeline()])
def test_an_open_plan_is_called_like_a_function(model_file, model):
    alone = ov.Core().compile_model(str(model_file), "CPU", {"INFERENCE_PRECISION_HINT": "f32"})
    items = [np.random.default_rng(i).standard_normal((1, 8, 12, 12)).astype(np.float32) for i in range(6)]
    before = threading.active_count()
    with loadmaster.open(model_file, overlapping_plan(model_file, model)) as net:
        found = [net(items[0]), *net.stream(items[1:])]
        with pytest.raises(InputError, match="'image' must have the shape"):
            net(items[0][:, :4])
        with pytest.raises(InputError, match="has 1 inputs"):
            net(items[0], items[1])
        early = net.stream(itertools.cycle(items))
        next(early)
        early.close()
        np.testing.assert_array_equal(net(items[0])[0], found[0][0])
    assert threading.active_count() == before
    for item, outputs in zip(items, found, strict=True):
        for at, expected in enumerate(alone(item).values()):
            np.testing.assert_allclose(outputs[at], expected, rtol=1e-4, atol=1e-4)


def test_an_open_plan_of_another_kind_is_refused(model_file):
    with pytest.raises(UnsupportedError, match="plan of the serial model"):
        loadmaster.open(model_file, overlapping_plan(model_file, Serial()))


def test_a_request_that_the_engine_does_not_take_keeps_no_slot(model_file, monkeypatch):
    items = [np.zeros((1, 8, 12, 12), np.float32)] * 3
    with loadmaster.open(model_file, overlapping_plan(model_file, Pipeline())) as net:
        slots = net._running._slots
        for slot in slots:
            monkeypatch.setattr(slot, "feed", lambda inputs: (_ for _ in ()).throw(RuntimeError("no room")))
        for _ in range(len(slots) + 1):  # one more than there are slots
            with pytest.raises(RuntimeError, match="no room"):
                net(items[0])
        monkeypatch.undo()
        assert len(list(net.stream(items))) == 3
