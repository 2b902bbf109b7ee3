"""Submodels read only what is there, and joins of joins stay right."""

from __future__ import annotations

import numpy as np
import openvino as ov
from openvino import opset13 as ops
from small_networks import CLOCK, problem_of, random_pieces

from loadmaster.graph.openvino import openvino_model
from loadmaster.runtime import allowed_cores
from loadmaster.runtime.openvino import OpenVinoSession, parse_devices
from loadmaster.runtime.openvino._submodels import cut_model


def test_submodels_read_only_what_earlier_ones_give(model_file):
    """Copies of a join included: a device reads its own."""
    model = openvino_model(model_file)
    for seed in range(12):
        problem = problem_of(model_file, 2 + seed % 2)
        for number, part in enumerate(cut_model(model, random_pieces(problem, seed, piece=0.0))):
            for source, (name, _) in part.inputs:
                assert (source is None) == (name == "image")
                assert source is None or source < number


def test_joins_of_joins_that_are_outputs_too_give_the_same(tmp_path):
    """What enters a submodel is joined in another layout: every reader must see it as it was."""
    generator = np.random.default_rng(1)

    def conv(x, name, channels):
        weight = generator.normal(size=(channels, x.get_output_shape(0)[1], 1, 1)).astype(np.float32) * 0.3
        return ops.convolution(x, ops.constant(weight), [1, 1], [0, 0], [0, 0], [1, 1], name=name)

    x = ops.parameter([1, 4, 6, 5], np.float32, name="image")
    inner = ops.concat([conv(x, "a", 3), conv(x, "b", 2)], 1, name="inner")
    outer = ops.concat([inner, conv(x, "c", 4)], 1, name="outer")
    tall = ops.concat([conv(outer, "d", 2), conv(outer, "e", 2)], 2, name="tall")
    pooled = ops.avg_pool(outer, [1, 1], [1, 1], [1, 1], [3, 3], True, name="pooled")
    ends = [conv(tall, "f", 3), conv(pooled, "g", 2), inner, outer, tall]
    model = ov.Model([ops.result(end) for end in ends], [x], "joins")
    path = tmp_path / "joins.xml"
    ov.save_model(model, str(path), compress_to_fp16=False)
    with OpenVinoSession(
        path, parse_devices(["A=cpu", "B=cpu"]), cores=allowed_cores(), clock=CLOCK
    ) as session:
        problem = problem_of(path)
        for seed in range(6):
            candidate = session.load("concurrent", pieces=random_pieces(problem, seed, piece=0.0))
            assert candidate.verify().error.relative < 1e-5
            candidate.close()


def test_what_openvino_does_not_fold_goes_with_every_piece_that_reads_it(tmp_path):
    """As in exports of Whisper: a mask of constants alone, which the graph does not have."""
    x = ops.parameter([1, 6], np.float32, name="x")
    ones = ops.constant(np.ones((1, 6), np.float32))
    mask = ops.cum_sum(ones, ops.constant(np.int64(1)), name="mask")
    twice = ops.cum_sum(mask, ops.constant(np.int64(1)), name="twice")
    left = ops.multiply(ops.tanh(x, name="left"), mask, name="a")
    right = ops.multiply(ops.sigmoid(left, name="right"), twice, name="b")
    path = tmp_path / "mask.xml"
    ov.save_model(ov.Model([ops.result(right), ops.result(twice)], [x], "mask"), str(path))
    assert "mask" in {node.get_friendly_name() for node in openvino_model(path).get_ordered_ops()}
    problem = problem_of(path)
    assert "mask" not in problem.graph.index
    with OpenVinoSession(
        path, parse_devices(["A=cpu", "B=cpu"]), cores=allowed_cores(), clock=CLOCK
    ) as session:
        for seed in range(6):
            pieces = random_pieces(problem, seed, piece=0.0)
            for how in ("concurrent", "chain"):
                assert session.load(how, pieces=pieces).verify().error.relative < 1e-5
