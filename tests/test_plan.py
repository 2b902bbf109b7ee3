"""A plan holds everything, exactly, and a damaged one is refused by name."""

import json
import os

import numpy as np
import pytest

from loadmaster import api
from loadmaster.errors import InputError
from loadmaster.files import check_writable, write_atomically
from loadmaster.graph import GraphBuilder
from loadmaster.hardware import Cluster, Device, Link
from loadmaster.plan import FORMAT, Plan
from loadmaster.problem import MODELS, Placement, Point, Problem, Solution, execution_model
from loadmaster.testing.reference import evaluate


def odd_problem(model="concurrent", **settings):
    """Odd names, infinities, several tensors per op, pins, forbids, colocation, uneven links."""
    builder = GraphBuilder('net "x"')
    for v, name in enumerate(["a", "b/ü", 'c"\\', "d\n", "1"]):
        builder.op(
            name, "Conv" if v else "", shapes=[(1, 3), ()], flops=v / 3, param_bytes=1e9 / 7, backward=v == 4
        )
    builder.tensor(0, bytes=0.1, consumers=[1, 2])
    builder.tensor(0, bytes=1e-300, consumers=[2])
    builder.tensor(1, bytes=5, consumers=[3])
    builder.tensor(3, consumers=[])
    devices = (Device("gpu", "acc", 1e10, 1e12, 1e11, 1e-6), Device("cpu", "cpu"), Device("npu", "acc"))
    links = tuple(
        tuple(None if d == e else Link(0.1 * d, np.inf if e == 2 else 1 / 3) for e in range(3))
        for d in range(3)
    )
    return Problem.make(
        builder.build(),
        Cluster("odd", devices, links, host=1),
        execution_model(model, **settings),
        time=[[1 / 3, np.inf, 3], [0.1, 0.2, np.inf], [0, 1, 2], [5, 6, 7], [1, 1, 1]],
        colocation=[[3, 4]],
        pins={0: 0},
        forbids=[(1, 0)],
        surplus=(2,),
        provenance="test",
    )


def odd_solution(problem, **changes):
    placement = Placement(np.array([0, 1, 0, 1, 1]), **changes)
    return Solution(
        placement=placement,
        cost=evaluate(problem, placement).cost,
        bound=1 / 7,
        bound_by="guess",
        method="portfolio",
        evaluations=12,
        seconds=0.3,
        seed=-5,
        parameters={"rate": 0.1, "steps": [1, 2], "limit": None, "name": "é"},
        history=(Point(0.1, 1, 9.0), Point(0.2, 7, 1 / 3)),
        found_by="member",
        stopped="budget",
    )


@pytest.mark.parametrize("model", MODELS)
def test_a_plan_survives_the_round_trip_bit_for_bit(tmp_path, model):
    problem = odd_problem(model)
    extra = {"concurrent": {"order": [0, 1, 2, 3, 4]}, "offload": {"call": [0, 0, 1, 0, 0]}}.get(model, {})
    solution = odd_solution(problem, **{key: np.array(value) for key, value in extra.items()})
    plan = Plan.from_solution(problem, solution, measured={"mean": 0.5, "interval": (0.4, 0.6)})
    plan.save(tmp_path / "plan.json")
    back = Plan.load(tmp_path / "plan.json")

    assert back == plan
    assert back.problem() == problem
    assert back.problem().graph == problem.graph
    assert back.problem().cluster == problem.cluster
    assert back.problem().surplus == problem.surplus
    assert back.problem().provenance == problem.provenance
    for name in ("time", "size", "latency", "memory", "resident", "capacity", "class_of", "pin", "forbidden"):
        mine, its = getattr(problem, name), getattr(back.problem(), name)
        assert (mine.dtype, mine.shape, mine.tobytes()) == (its.dtype, its.shape, its.tobytes())
    assert back.placement() == solution.placement
    assert back.solution() == solution
    assert Plan.from_solution(back.problem(), back.solution(), measured=back.document["measured"]) == plan


def test_equal_plans_are_equal_bytes_and_others_are_not():
    problem = odd_problem()
    first, second = (Plan.from_solution(odd_problem(), odd_solution(problem)) for _ in range(2))
    assert first.to_bytes() == second.to_bytes()
    assert hash(first) == hash(second)
    assert first != Plan.from_solution(odd_problem("serial"), odd_solution(problem))


def test_a_plan_says_what_was_found():
    problem = odd_problem("pipeline", comm="overlap")
    document = json.loads(Plan.from_solution(problem, odd_solution(problem)).to_bytes())
    assert document["format"] == FORMAT
    assert document["graph"] == {"name": 'net "x"', "hash": problem.graph.digest}
    assert document["placement"] == {"a": "gpu", "b/ü": "cpu", 'c"\\': "gpu", "d\n": "cpu", "1": "cpu"}
    assert document["model"] == "pipeline"
    assert document["settings"]["comm"] == "overlap"
    assert document["devices"][1] == {"name": "cpu", "kind": "cpu"}
    assert document["gap"] == (document["cost"] - document["bound"]) / document["cost"]
    assert document["optimal"] is False
    assert document["history"] == [[0.1, 1, 9.0], [0.2, 7, 1 / 3]]
    assert set(document["versions"]) == {"loadmaster", "python", "numpy", "numba"}


def test_an_empty_problem_has_a_plan():
    problem = api.problem("zoo:layered-0")
    solution = Solution(Placement(np.zeros(0, np.int32)), 0.0, 0.0, "none", "none")
    plan = Plan.from_solution(problem, solution)
    assert Plan.parse(json.loads(plan.to_bytes()), "plan").problem() == problem
    assert plan.document["optimal"] is True


# -- damage --------------------------------------------------------------------------------------------------


@pytest.fixture
def document():
    problem = odd_problem()
    return json.loads(Plan.from_solution(problem, odd_solution(problem)).to_bytes())


def load(tmp_path, content):
    file = tmp_path / "plan.json"
    file.write_bytes(content if isinstance(content, bytes) else json.dumps(content).encode())
    return Plan.load(file)


def test_half_a_plan_is_refused(tmp_path, document):
    whole = json.dumps(document).encode()
    with pytest.raises(InputError, match=r"plan\.json: is not valid JSON"):
        load(tmp_path, whole[: len(whole) // 2])


@pytest.mark.parametrize("other", [{}, {"format": "loadmaster-graph/1"}, {"placement": {}}])
def test_another_file_is_not_a_plan(tmp_path, other):
    with pytest.raises(InputError, match=r"plan\.json: is not a plan"):
        load(tmp_path, other)
    with pytest.raises(InputError, match=r"plan\.json: must be an object"):
        load(tmp_path, [other])


def test_a_plan_of_another_version_is_refused(tmp_path, document):
    with pytest.raises(
        InputError, match="format is 'loadmaster-plan/2', but this version reads 'loadmaster-plan/1'"
    ):
        load(tmp_path, {**document, "format": "loadmaster-plan/2"})


@pytest.mark.parametrize(
    "key", ["graph", "problem", "placement", "model", "settings", "cost", "bound", "history"]
)
def test_a_missing_entry_is_named(tmp_path, document, key):
    del document[key]
    with pytest.raises(InputError, match=f"'{key}' is missing"):
        load(tmp_path, document)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("graph", 3),
        ("problem", []),
        ("settings", {"schedule": "sometimes"}),
        ("settings", {"schedule": ["event"]}),
        ("model", "quantum"),
        ("placement", {"a": "gpu"}),
        ("placement", {"a": 1}),
        ("order", [1, 2]),
        ("order", {"a": 0.5}),
        ("order", {"zebra": 1}),
        ("cost", None),
        ("cost", "cheap"),
        ("history", [[1, 2]]),
        ("history", [[1, 2, "x"]]),
        ("parameters", 5),
    ],
)
def test_a_wrong_entry_is_refused(tmp_path, document, key, value):
    with pytest.raises(InputError):
        load(tmp_path, {**document, key: value})


def _damage(problem, path, value):
    *walk, last = path
    for step in walk:
        problem = problem[step]
    problem[last] = value(problem[last]) if callable(value) else value


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("arrays", "time", "data"), lambda text: text[:-8]),
        (("arrays", "time", "data"), lambda text: "A" + text[1:]),
        (("arrays", "time", "data"), lambda text: text[:9] + "é" + text[10:]),
        (("arrays", "time", "data"), 5),
        (("arrays", "time", "shape"), [4, 3]),
        (("arrays", "time", "shape"), ["x"]),
        (("arrays", "time", "dtype"), "<i4"),
        (("arrays", "time", "dtype"), "object"),
        (("arrays", "pin"), None),
        (("arrays",), {}),
        (("graph", "labels"), ""),
        (("graph", "labels"), lambda text: text[4:]),
        (("graph", "arrays", "flops", "data"), lambda text: text[:-4]),
        (("cluster", "devices"), [{"name": "gpu"}]),
        (("cluster", "devices", 0, "speed"), 9),
        (("cluster", "devices", 0, "name"), "other"),
        (("cluster", "links"), [[1]]),
        (("cluster", "host"), 17),
        (("surplus",), ["x"]),
        (("surplus",), []),
        (("hash",), "0"),
    ],
)
def test_a_damaged_problem_is_refused(tmp_path, document, path, value):
    _damage(document["problem"], path, value)
    with pytest.raises(InputError, match=r"plan\.json"):
        load(tmp_path, document)


# -- writing -------------------------------------------------------------------------------------------------


def test_nothing_is_left_behind_and_nothing_lost_when_writing_fails(tmp_path, monkeypatch):
    file = tmp_path / "plan.json"
    write_atomically(file, b"old")

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(InputError, match=r"plan\.json: cannot be written \(No space left on device\)"):
        write_atomically(file, b"new")
    assert file.read_bytes() == b"old"
    assert [path.name for path in tmp_path.iterdir()] == ["plan.json"]


def test_a_link_stays_a_link_and_a_device_stays_a_device(tmp_path):
    real, link = tmp_path / "real.json", tmp_path / "link.json"
    link.symlink_to(real)
    write_atomically(link, b"content")
    assert link.is_symlink()
    assert real.read_bytes() == b"content"
    check_writable(os.devnull)
    write_atomically(os.devnull, b"content")
    assert not os.path.isfile(os.devnull)


def test_paths_that_cannot_be_written_are_found_before(tmp_path):
    check_writable(tmp_path / "plan.json")
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(InputError, match="is a folder"):
        check_writable(tmp_path)
    with pytest.raises(InputError, match="there is no folder"):
        check_writable(tmp_path / "none" / "plan.json")
