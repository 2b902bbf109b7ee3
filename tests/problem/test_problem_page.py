"""The page about problem files: its example loads, its tables name every field."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from loadmaster import api
from loadmaster.errors import InputError
from loadmaster.graph import layered
from loadmaster.hardware import preset
from loadmaster.problem import Pipeline, Problem, Serial, dump_problem, named_model

PAGE = (Path(__file__).parents[2] / "docs/reference/problem-file.md").read_text()


def test_the_example_on_the_page_is_a_problem(tmp_path):
    text = re.search(r"```json\n(.*?)```", PAGE, re.DOTALL)[1]
    path = tmp_path / "two-layers.json"
    path.write_text(text)
    problem = api.load(path)
    assert isinstance(problem, Problem)
    assert problem.graph.names == ("input", "layer1", "layer2", "lookup")
    found = api.place(problem, "exhaustive", evaluations=1000).placement.to_names(problem)
    assert (found["input"], found["lookup"]) == ("cpu", "cpu")
    assert set(json.loads(text)) == set(dump_problem(problem))


@pytest.mark.parametrize("part", ["ops", "tensors", "devices"])
def test_the_page_names_every_field(part):
    document = dump_problem(api.problem("zoo:layered-24"))
    for key in (*document, *document[part][0]):
        assert f"`{key}`" in PAGE


def test_a_problem_can_be_made_with_a_models_name():
    graph, cluster = layered(6, width=2), preset("2acc+1cpu")
    time = [[1.0] * len(cluster)] * graph.n
    assert Problem.make(graph, cluster, "serial", time=time).model == Serial()
    made = Problem.make(graph, cluster, "pipeline:chain,comm=overlap", time=time)
    assert made.model == Pipeline(contiguity="chain", comm="overlap")
    assert api.problem("zoo:layered-4", model="pipeline:device").model == Pipeline(contiguity="device")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("fast", "the execution model 'fast' is unknown"),
        ("pipeline:sum", "write comm=sum or objective=sum"),
        ("pipeline:fast", "no setting 'fast'"),
        ("serial:chain", "no setting 'chain'"),
        ("pipeline:chain,contiguity=none", "'contiguity' twice"),
    ],
)
def test_a_models_name_that_says_nothing_is_refused(text, said):
    with pytest.raises(InputError) as error:
        named_model(text)
    assert said in str(error.value)
