"""What a notebook shows: well-formed HTML, the right numbers, names as text."""

from html.parser import HTMLParser

import pytest

from loadmaster import api
from loadmaster.graph import GraphBuilder
from loadmaster.hardware import accelerators, roofline
from loadmaster.plan import Plan
from loadmaster.problem import Concurrent, Problem


class Checker(HTMLParser):
    """Every tag is closed in its turn; the text is collected."""

    def __init__(self):
        super().__init__()
        self.open, self.text, self.tags = [], "", set()

    def handle_starttag(self, tag, attrs):
        self.open.append(tag)
        self.tags.add(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text += data + "\n"


@pytest.fixture(scope="module")
def shown():
    builder = GraphBuilder("<script>net</script>")
    for name in "abc":
        builder.op(name, "<i>Conv</i>", flops=1e9, param_bytes=2**20)
    builder.tensor(0, bytes=1024, consumers=[1, 2])
    graph, cluster = builder.build(), accelerators(2)
    problem = Problem.make(graph, cluster, Concurrent(), time=roofline(graph, cluster), pins={0: 2})
    solution = api.place(problem, "greedy", evaluations=20)
    return [graph, problem, solution, Plan.from_solution(problem, solution)]


def test_every_value_shows_itself_as_well_formed_html(shown):
    texts = []
    for value in shown:
        checker = Checker()
        checker.feed(value._repr_html_())
        assert not checker.open
        assert checker.tags <= {"b", "table", "thead", "tbody", "tr", "th", "td"}
        texts.append(checker.text)
    graph, problem, solution, plan = texts
    assert "<script>net</script>" in graph
    assert "<i>Conv</i> 3" in graph
    assert "3.0 MiB" in graph
    assert all(name in problem for name in ("acc0", "acc1", "cpu0"))
    assert "greedy" in solution
    assert "acc0" in plan
