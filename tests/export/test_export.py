"""Plans for other programs."""

import json
import re

import numpy as np
import pytest

from loadmaster.errors import InputError
from loadmaster.export import EXPORTERS, export
from loadmaster.graph import GraphBuilder
from loadmaster.hardware import accelerators, roofline
from loadmaster.plan import Plan
from loadmaster.problem import Concurrent, Placement, Problem, Solution


@pytest.fixture
def plan():
    builder = GraphBuilder('a "graph"')
    for name in ("in", 'quote"d', "back\\slash", "two\nlines", "end\\"):
        builder.op(name, "Conv")
    builder.tensor(0, consumers=[1, 2])
    builder.tensor(0, consumers=[1])
    builder.tensor(1, consumers=[3, 4])
    graph, cluster = builder.build(), accelerators(2)
    problem = Problem.make(graph, cluster, Concurrent(), time=roofline(graph, cluster))
    return Plan.from_solution(
        problem, Solution(Placement(np.array([0, 0, 1, 2, 0])), 1.0, 0.5, "guess", "hand")
    )


def test_openvino_affinities_map_names_to_devices(plan):
    assert json.loads(export(plan, "openvino")) == {
        "in": "GPU.0",
        'quote"d': "GPU.0",
        "back\\slash": "GPU.1",
        "two\nlines": "CPU",
        "end\\": "GPU.0",
    }


DOT_STRING = r'"(?:[^"\\\n]|\\.)*"'
DOT_VALUE = rf"\w+=(?:{DOT_STRING}|\w+)"
DOT_LINE = re.compile(
    rf"digraph {DOT_STRING} {{|subgraph \w+ {{|}}|({DOT_VALUE}; ?)+"
    rf"|\w+( -> \w+)?( \[{DOT_VALUE}(, {DOT_VALUE})*\])?;"
)


def test_graphviz_is_well_formed_whatever_the_names(plan):
    text = export(plan, "dot")
    for line in text.splitlines():
        assert DOT_LINE.fullmatch(line.strip()), line
    assert text.count("{") == text.count("}")
    assert r'label="quote\"d\nConv"' in text
    assert r'label="back\\slash\nConv"' in text
    assert r'label="two\nlines\nConv"' in text
    assert r'label="end\\\nConv"' in text


def test_graphviz_shows_devices_cuts_and_a_legend(plan):
    text = export(plan, "dot")
    colour = dict(re.findall(r'(op\d|device\d) \[.*fillcolor="(#\w+)"\];', text))
    assert [colour[f"op{v}"] for v in range(5)] == [colour[f"device{d}"] for d in (0, 0, 1, 2, 0)]
    assert len({colour[f"device{d}"] for d in range(3)}) == 3
    edges = re.findall(r"op(\d) -> op(\d)( \[.*\])?;", text)
    assert [(u, v) for u, v, style in edges if style] == [("0", "2"), ("1", "3")]
    assert [(u, v) for u, v, style in edges if not style] == [("0", "1"), ("1", "4")]
    assert "acc0 (acc), 3 ops" in text


def test_an_unknown_format_is_named(plan):
    with pytest.raises(
        InputError,
        match=r"the format 'png' is unknown: choose one of openvino, onnxruntime, device-map, huggingface, "
        r"split-points, torchtitan, deepspeed, dot",
    ):
        export(plan, "png")
    assert set(EXPORTERS) == {
        "openvino",
        "onnxruntime",
        "device-map",
        "huggingface",
        "split-points",
        "torchtitan",
        "deepspeed",
        "dot",
    }
