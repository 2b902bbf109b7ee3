"""Models of the zoo, placed at random on virtual devices, give the outputs of the unplaced model.

A sample of what ``python -m benchmarks.openvino_runs equality`` does at full size.
"""

from __future__ import annotations

import numpy as np
import pytest
from small_networks import CLOCK, DEVICES

from loadmaster.graph import load_openvino
from loadmaster.problem import classes_of
from loadmaster.runtime._verifying import F32_TOLERANCE
from loadmaster.runtime.openvino import OpenVinoSession, parse_devices
from loadmaster.runtime.openvino._device_profile import measure_profile
from loadmaster.zoo import export_model

SMALL = {
    "resnet-50?size=32": 1,
    "inception-v3?size=75": 1,
    "bert-base?layers=2&seq=16&vocabulary=400": 3,
    "gpt2-decode?layers=2&width=96&heads=6&seq=17&vocabulary=300": 3,
    "two-tower?size=32": 1,
}
"""Model -> number of placements, for compiling hundreds of submodels takes seconds."""


@pytest.mark.parametrize("name", SMALL)
def test_random_placements_of_groups_are_equal_and_nearly_all_time_is_mapped(name, tmp_path):
    path = tmp_path / "model.xml"
    export_model(name, path)
    network = load_openvino(path)
    graph = network.graph
    generator = np.random.default_rng(3)
    with OpenVinoSession(path, parse_devices(DEVICES), clock=CLOCK) as session:
        profile = measure_profile(session, graph, "A", repeats=3)
        assert profile.unmapped < 0.02
        assert not profile.unsupported
        groups = [[graph.index[op] for op in group] for group in profile.fused]
        class_of = classes_of(graph.n, [*groups, *network.colocation])
        for _ in range(SMALL[name]):
            chosen = generator.integers(len(DEVICES), size=class_of.max() + 1)[class_of]
            placement = {op: "ABC"[d] for op, d in zip(graph.names, chosen, strict=True)}
            candidate = session.load("hetero", placement=placement)
            found = candidate.verify()
            assert found.error.relative <= F32_TOLERANCE
            assert found.control > 10 * F32_TOLERANCE
            assert candidate.submodels > 10
            candidate.close()
