"""The functions that everything else is a thin layer over."""

import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest

import loadmaster
from loadmaster import api
from loadmaster.api._placing import warm_for
from loadmaster.api._replanning import make_ready, place_again
from loadmaster.compiling import compilations
from loadmaster.errors import InfeasibleError, InputError, UnsupportedError
from loadmaster.graph import Graph, layered
from loadmaster.graph._file import dump_graph
from loadmaster.graph.workload import Workload
from loadmaster.hardware import accelerators
from loadmaster.placers import PLACERS
from loadmaster.placers.search.multilevel import _cycles
from loadmaster.plan import Plan
from loadmaster.problem import Concurrent, Offload, Pipeline, Placement, Problem, Serial
from loadmaster.problem._file import dump_problem
from loadmaster.zoo import ZooModel

GOLDEN = json.loads((Path(__file__).parent / "golden.json").read_text())


def write(path, data):
    path.write_text(json.dumps(data))
    return str(path)


@pytest.fixture
def graph_file(tmp_path):
    return write(tmp_path / "graph.json", dump_graph(layered(20, width=3)))


@pytest.fixture
def problem_file(tmp_path):
    return write(tmp_path / "problem.json", GOLDEN[0]["problem"])


@pytest.fixture
def workload_file(tmp_path):
    nodes = [{"id": i, "cpuLatency": 10 + i, "fpgaLatency": 1 + i, "size": 1} for i in range(6)]
    nodes[5]["colorClass"] = nodes[4]["colorClass"] = 7
    edges = [{"sourceId": i, "destId": i + 1, "cost": 0.5} for i in range(5)]
    data = {"maxFPGAs": 2, "maxCPUs": 3, "maxSizePerFPGA": 4, "nodes": nodes, "edges": edges}
    return write(tmp_path / "workload.json", data)


# -- load and problem ----------------------------------------------------------------------------------------


def test_a_source_is_known_by_its_content(graph_file, problem_file, workload_file):
    assert isinstance(api.load("zoo:layered-5"), ZooModel)
    assert isinstance(api.load(graph_file), Graph)
    assert isinstance(api.load(Path(workload_file)), Workload)
    assert isinstance(api.load(problem_file), Problem)


def test_the_default_execution_model_depends_on_the_source(graph_file, problem_file, workload_file):
    assert api.problem(workload_file).model == Pipeline(contiguity="none")
    assert api.problem(graph_file).model == Concurrent()
    assert api.problem(problem_file).model == Concurrent()
    assert api.problem("zoo:layered-5").model == Concurrent()
    assert api.problem(workload_file, model="offload", max_calls=2).model == Offload(2)
    assert api.problem(workload_file, comm="overlap").model == Pipeline(comm="overlap")
    assert api.problem(graph_file, model=Serial()).model == Serial()
    assert api.problem(graph_file, model=Concurrent("static"), memory="peak").model == Concurrent(
        "static", "peak"
    )


def test_a_graph_is_put_on_a_cluster(graph_file, workload_file):
    assert api.problem(graph_file).cluster.names == ("acc0", "acc1", "cpu0")
    assert api.problem(graph_file, "3acc").cluster.names == ("acc0", "acc1", "acc2")
    assert api.problem(layered(3), accelerators(1)).cluster.names == ("acc0", "cpu0")
    with pytest.raises(InputError, match="no cluster called 'moon'"):
        api.problem(graph_file, "moon")
    with pytest.raises(InputError, match="a cluster is given for a workload, which brings its own devices"):
        api.problem(workload_file, "2acc+1cpu")


def test_a_workload_brings_its_devices(workload_file):
    assert api.problem(workload_file).cluster.names == ("acc0", "acc1", "cpu0", "cpu1", "cpu2")
    assert api.problem(workload_file, model="offload").cluster.names == ("acc0", "acc1", "cpu0")


def test_pins_and_forbids_are_rules_over_names():
    problem = api.problem("zoo:layered-30", pins=["op2.=cpu0"], forbids=["op7=acc0"])
    index = problem.graph.index
    assert problem.pin[index["op25"]] == 2
    assert problem.pin[index["op2"]] == -1, "a regular expression matches whole names"
    assert problem.forbidden[index["op7"]].tolist() == [True, False, False]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"model": "quantum"}, "'quantum' is unknown: choose one of serial"),
        ({"comm": "sum"}, "the concurrent model has no setting 'comm'"),
        (
            {"schedule": "late"},
            "schedule='late' of the concurrent model is invalid: choose one of event, static",
        ),
        ({"pins": ["op1"]}, "must be written OPS=DEVICE"),
        ({"pins": ["op1=moon"]}, "there is no device 'moon'"),
        ({"forbids": ["nobody=acc0"]}, "no op is called 'nobody'"),
    ],
)
def test_what_is_wrong_with_a_problem_is_named(arguments, message):
    with pytest.raises(InputError, match=message):
        api.problem("zoo:layered-5", **arguments)


def test_contradictory_pins_are_infeasible():
    with pytest.raises(InfeasibleError, match="pinned both to"):
        api.problem("zoo:layered-5", pins=["op1=acc0", "op.*=acc1"])


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({"fpgas": []}, "is a split of a workload"),
        ({"hello": 1}, "is not a workload, a graph, a problem or a plan"),
        ([1, 2], "is not a workload, a graph, a problem or a plan"),
        ({"format": "loadmaster-problem/1"}, "'devices' is missing"),
        ({"format": "loadmaster-problem/7"}, "this version reads 'loadmaster-problem/1'"),
    ],
)
def test_what_is_wrong_with_a_file_is_named(tmp_path, content, message):
    with pytest.raises(InputError, match=message):
        api.load(write(tmp_path / "file.json", content))


@pytest.mark.parametrize("entry", GOLDEN, ids=lambda entry: entry["title"])
def test_golden_problems_survive_the_round_trip(tmp_path, entry):
    first = api.problem(write(tmp_path / "a.json", entry["problem"]))
    second = api.problem(write(tmp_path / "b.json", dump_problem(first)))
    assert first == second


# -- place and compare ---------------------------------------------------------------------------------------


def test_an_answer_re_evaluates_to_its_cost_and_carries_a_bound():
    problem = api.problem("zoo:layered-25")
    solution = api.place(problem, evaluations=200)
    assert solution.method == "auto"
    evaluation = api.evaluate(problem, solution.placement)
    assert evaluation.feasible
    assert evaluation.cost == solution.cost
    assert 0 < solution.bound <= solution.cost


def test_progress_is_reported():
    states = []
    api.place(api.problem("zoo:layered-30"), "random", evaluations=50, on_progress=states.append)
    assert states[-1].evaluations <= 50
    assert states[-1].bound <= states[-1].cost


def test_methods_that_cannot_are_refused_with_the_reason():
    with pytest.raises(UnsupportedError, match="the method heft cannot place this problem: "):
        api.place(api.problem("zoo:layered-5", model="serial"), "heft")
    with pytest.raises(UnsupportedError, match="heft"):
        api.compare(api.problem("zoo:layered-5", model="serial"), ["single", "heft"], evaluations=5)
    with pytest.raises(InputError, match="no method 'magic': choose one of auto, single"):
        api.place(api.problem("zoo:layered-5"), "magic")


def test_an_infeasible_problem_says_so():
    with pytest.raises(InfeasibleError, match="'op1'"):
        api.place(api.problem("zoo:layered-5", pins=["op1=acc0"], forbids=["op1=acc0"]), evaluations=5)


def test_bad_budgets_are_refused():
    problem = api.problem("zoo:layered-5")
    with pytest.raises(InputError, match=">= 1 evaluations, not 0"):
        api.place(problem, "random", evaluations=0)
    with pytest.raises(InputError, match=">= 0 seconds, not -1"):
        api.place(problem, "random", budget=-1)


@dataclass(frozen=True)
class Fussy:
    """A placer that never finds anything, with parameters of all types."""

    name: ClassVar[str] = "fussy"
    summary: ClassVar[str] = "finds nothing"
    count: int = 1
    rate: float = 0.5
    eager: bool = False
    label: str | None = None

    def supports(self, problem):
        return None

    def place(self, problem, **_):
        raise InfeasibleError(f"nothing pleases me {self.count} times")


def test_compare_gives_every_method_the_same_budget_in_order():
    results = api.compare(api.problem("zoo:layered-30"), ["random", "single"], evaluations=20, seed=3)
    assert [result.method for result in results] == ["random", "single"]
    assert all(result.evaluations <= 20 and result.seed == 3 for result in results)
    with pytest.raises(InputError, match="no method to compare"):
        api.compare(api.problem("zoo:layered-3"), [])


def test_compare_survives_a_method_that_finds_nothing():
    problem = api.problem("zoo:layered-30")
    first, second = api.compare(problem, [Fussy(), "single"], evaluations=20)
    assert isinstance(first, InfeasibleError)
    assert second.method == "single"
    with pytest.raises(InfeasibleError, match="nothing pleases me 2 times"):
        api.compare(problem, [Fussy(count=2), Fussy()], evaluations=20)


def test_parameters_are_read_as_their_type():
    texts = {"count": "3", "rate": "2", "eager": "true", "label": "x"}
    assert api.configured(Fussy(), texts) == Fussy(3, 2.0, True, "x")
    assert api.configured(Fussy(), {"count": 4}) == Fussy(4)
    with pytest.raises(InputError, match="no parameter 'size': its parameters are count, rate, eager, label"):
        api.configured(Fussy(), {"size": "3"})
    with pytest.raises(InputError, match="count='many' of the method fussy is invalid"):
        api.configured(Fussy(), {"count": "many"})
    for placer in PLACERS.values():
        assert api.configured(placer) == placer


# -- placements from files -----------------------------------------------------------------------------------


def test_a_bare_placement_is_read(tmp_path, problem_file):
    bare = {"placement": {"op0": "d0", "op1": "d1", "op2": "d0"}, "order": {"op0": 0, "op1": 1, "op2": 2}}
    problem, placement = api.read_placement(write(tmp_path / "p.json", bare), problem_file)
    assert placement == Placement(np.array([0, 1, 0]), order=np.array([0, 1, 2]))
    assert api.evaluate(problem, placement).feasible
    as_list = {**bare, "order": [0, 1, 2]}
    assert api.read_placement(write(tmp_path / "p.json", as_list), problem_file)[1] == placement


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({"placement": {"op0": "d0"}}, "leaves out op 'op1', 'op2'"),
        ({"placement": {"op0": "d9", "op1": "d0", "op2": "d0"}}, "on 'd9': the devices are d0, d1"),
        ({"placement": {"zebra": "d0"}}, "names op 'zebra', which is not in problem"),
        ({"placement": {"op0": 0}}, "the device of op 'op0' must be a name, not 0"),
        ({"placement": []}, "placement: must be an object"),
        ({"placement": {"op0": "d0", "op1": "d0", "op2": "d0"}, "order": [1]}, "'order' must have 3 entries"),
        (
            {"placement": {"op0": "d0", "op1": "d0", "op2": "d0"}, "order": {"op0": 1}},
            "order: 'op1' is missing",
        ),
        ({"fpgas": [], "cpus": []}, "is a split of a workload, but problem is not a workload"),
        ({"devices": []}, "is not a plan, a split, or an object with a 'placement'"),
        ([], "is not a plan, a split, or an object with a 'placement'"),
    ],
)
def test_what_is_wrong_with_a_placement_is_named(tmp_path, problem_file, content, message):
    with pytest.raises(InputError, match=message) as caught:
        api.read_placement(write(tmp_path / "p.json", content), problem_file)
    assert "p.json" in str(caught.value)


def test_a_plan_brings_its_model_and_for_a_graph_its_devices(tmp_path, graph_file):
    problem = api.problem(graph_file, "3acc+1cpu", "pipeline", comm="overlap")
    solution = api.place(problem, "random", evaluations=10)
    file = tmp_path / "plan.json"
    Plan.from_solution(problem, solution).save(file)

    again, placement = api.read_placement(file, graph_file)
    assert again == problem
    assert api.evaluate(again, placement).cost == solution.cost
    other, _ = api.read_placement(file, graph_file, model="serial")
    assert other.model == Serial()
    changed, _ = api.read_placement(file, graph_file, contiguity="device")
    assert changed.model == Pipeline(contiguity="device", comm="overlap")
    assert api.problem(file) == problem, "a plan can be placed again without its model"
    kept, _ = api.read_placement(file, problem.with_model(Serial()))
    assert kept.model == Serial(), "a problem given as an object keeps its model"


def test_a_plan_for_another_model_is_refused(tmp_path, graph_file):
    problem = api.problem("zoo:layered-20?seed=1")
    Plan.from_solution(problem, api.place(problem, "single")).save(tmp_path / "plan.json")
    with pytest.raises(
        InputError, match=r"is a plan for a different model \(layered-20, \w+\) than layered-20"
    ):
        api.read_placement(tmp_path / "plan.json", graph_file)


def test_a_split_becomes_a_placement(tmp_path, workload_file):
    split = {"fpgas": [{"nodes": [0, 1]}, {"nodes": [2, 3]}], "cpus": [{"nodes": [4]}]}
    file = write(tmp_path / "split.json", split)
    problem, placement = api.read_placement(file, workload_file)
    assert placement.to_names(problem) == dict(
        zip("012345", ["acc0"] * 2 + ["acc1"] * 2 + ["cpu0"] * 2, strict=True)
    )
    evaluation = api.evaluate(problem, placement)
    assert evaluation.feasible
    # Node 4 brings node 5 of its colour class; each accelerator pays 0.5 ms per tensor that crosses.
    assert evaluation.load[:3] == pytest.approx([0.0035, 0.008, 0.029])


def test_surplus_groups_of_a_split_become_devices_and_a_violation(tmp_path, workload_file):
    split = {"fpgas": [{"nodes": [i]} for i in range(4)], "cpus": [{"nodes": [4, 5]}]}
    file = write(tmp_path / "split.json", split)
    problem, placement = api.read_placement(file, workload_file, pins=["0=cpu1"], forbids=["4=cpu0"])
    assert problem.cluster.names == ("acc0", "acc1", "acc2", "acc3", "cpu0", "cpu1", "cpu2")
    evaluation = api.evaluate(problem, placement)
    assert np.isfinite(evaluation.cost)
    assert sorted(violation.kind for violation in evaluation.violations) == [
        "forbidden",
        "pin",
        "surplus",
        "surplus",
    ]
    assert "op '0' is pinned to 'cpu1' but is on 'acc0'" in evaluation.why


@pytest.mark.parametrize(
    ("split", "message"),
    [
        ({"fpgas": [{"nodes": [0, 0]}]}, "names node 0 twice"),
        ({"fpgas": [{"nodes": [77]}]}, "names node 77, which is not in workload"),
        ({"fpgas": [{"nodes": [0, 1, 2]}]}, "leaves out node 3, 4, 5"),
        ({"fpgas": [{}]}, r"fpgas\[0\]: 'nodes' is missing"),
    ],
)
def test_what_is_wrong_with_a_split_is_named(tmp_path, workload_file, split, message):
    with pytest.raises(InputError, match=message) as caught:
        api.read_placement(write(tmp_path / "split.json", split), workload_file)
    assert "split.json" in str(caught.value)


def test_the_cpus_of_a_workload_are_one_pool_under_offload(tmp_path, workload_file):
    bare = {"placement": {str(i): f"cpu{i % 3}" for i in range(6)}}
    problem, placement = api.read_placement(write(tmp_path / "p.json", bare), workload_file, model="offload")
    assert set(placement.to_names(problem).values()) == {"cpu0"}


# -- the package ---------------------------------------------------------------------------------------------


def test_public_names_are_there_and_heavy_ones_are_imported_late():
    for name in loadmaster.__all__:
        assert getattr(loadmaster, name) is not None
        assert name in dir(loadmaster)
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = loadmaster.nothing
    code = "import loadmaster.cli, sys; print({'numpy', 'numba', 'rich', 'msgspec'} & set(sys.modules))"
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert shown.stdout.strip() == "set()"


def test_who_is_ready_to_place_anew_compiles_nothing_while_requests_wait():
    problem = api.problem("zoo:layered-60", "3acc", model="pipeline")
    make_ready(problem)
    with compilations() as compiled:
        found = place_again(problem)
    assert compiled.count == 0
    assert found.cost > 0


@pytest.mark.parametrize("model", ["pipeline", "concurrent"])
def test_what_only_larger_graphs_need_is_made_ready_too(model, monkeypatch):
    made = []
    for name in ("heavy_groups", "matching_rounds"):
        called = getattr(_cycles, name)
        monkeypatch.setattr(
            _cycles, name, lambda *a, _call=called, _name=name, **k: made.append(_name) or _call(*a, **k)
        )
    warm_for(PLACERS["auto"], api.problem("zoo:layered-300", "6acc+1cpu", model=model))
    assert {"heavy_groups", "matching_rounds"} <= set(made)
