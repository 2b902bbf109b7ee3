"""Graph and workload files: what is read back is what was written, and mistakes are named."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loadmaster import zoo
from loadmaster.errors import GraphError, InputError
from loadmaster.files import read_json
from loadmaster.graph import Graph, GraphBuilder, layered
from loadmaster.graph._file import FORMAT, dump_graph, parse_graph
from loadmaster.graph.workload import parse_split, parse_workload

amounts = st.floats(min_value=0, allow_nan=False, allow_infinity=False)


@st.composite
def graphs(draw: st.DrawFn) -> Graph:
    """Any small graph: odd names, several tensors per op, tensors that nobody reads."""
    names = draw(
        st.lists(st.text(st.characters(exclude_categories=["Cs"]), min_size=1), unique=True, max_size=8)
    )
    builder = GraphBuilder(draw(st.text(st.characters(exclude_categories=["Cs"]), max_size=5)))
    for name in names:
        shapes = draw(st.lists(st.lists(st.integers(0, 2**40), max_size=3), max_size=2))
        numbers = [draw(amounts) for _ in range(4)]
        builder.op(
            name,
            draw(st.sampled_from(["", "Conv", "Ädd\n"])),
            shapes=shapes,
            flops=numbers[0],
            bytes_read=numbers[1],
            bytes_written=numbers[2],
            param_bytes=numbers[3],
            backward=draw(st.booleans()),
        )
    for v in range(len(names)):
        for _ in range(draw(st.integers(0, 2))):
            later = range(v + 1, len(names))
            readers = st.lists(st.sampled_from(later), unique=True, max_size=3) if later else st.just([])
            builder.tensor(v, bytes=draw(amounts), consumers=draw(readers))
    return builder.build()


@given(graphs())
def test_a_graph_survives_the_round_trip_exactly(graph):
    back = parse_graph(json.loads(json.dumps(dump_graph(graph))), "file.json")
    assert back == graph
    assert back.digest == graph.digest
    assert back.name == graph.name


@pytest.mark.parametrize("name", ["layered-0", "layered-1", "layered-200?width=3&seed=5&skip=0.5"])
def test_zoo_graphs_survive_the_round_trip(name):
    graph = zoo.graph(name)
    assert parse_graph(dump_graph(graph), "file.json") == graph


def test_only_names_and_producers_are_needed():
    graph = parse_graph(
        {"format": FORMAT, "ops": [{"name": "a"}], "tensors": [{"producer": "a"}]}, "folder/net.json"
    )
    assert (graph.name, graph.n, graph.tensors, graph.edges) == ("net", 1, 1, 0)


def broken(**changes):
    """A graph file of two ops with a change to its first op, its tensor or the whole."""
    data = dump_graph(layered(2, width=1))
    for key, value in changes.items():
        where, _, field = key.rpartition("__")
        target = {"": data, "op": data["ops"][0], "tensor": data["tensors"][0]}[where]
        if value is ...:
            del target[field]
        else:
            target[field] = value
    return data


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"format": "loadmaster-graph/9"},
            "'loadmaster-graph/9', but this version reads 'loadmaster-graph/1'",
        ),
        ({"ops": ...}, "'ops' is missing"),
        ({"ops": {}}, "'ops' must be a list"),
        ({"ops": [3]}, r"ops\[0\]: must be an object"),
        ({"op__name": ...}, r"ops\[0\]: 'name' is missing"),
        ({"op__name": 7}, r"ops\[0\]: 'name' must be a string"),
        ({"op__name": ""}, "empty name"),
        ({"op__name": "op1"}, "'op1' appears twice"),
        ({"op__flops": -1}, r"ops\[0\] 'op0': 'flops' must be a finite number >= 0"),
        ({"op__flops": "many"}, r"ops\[0\] 'op0': 'flops' must be a number, not 'many'"),
        ({"op__shapes": [["a"]]}, r"ops\[0\] 'op0': 'shapes' must hold lists of whole numbers"),
        ({"op__backward": "no"}, "'backward' must be true or false"),
        ({"tensor__producer": "nobody"}, "'nobody', which is not an op"),
        ({"tensor__producer": 0}, r"tensors\[0\]: 'producer' must be a string"),
        ({"tensor__consumers": ["nobody"]}, "'nobody', which is not an op"),
        ({"tensor__consumers": [1]}, r"tensors\[0\]: 'consumers' must hold names of ops"),
        ({"tensor__consumers": ["op1", "op1"]}, "from op 'op0' to op 'op1' appears twice"),
        ({"tensor__consumers": ["op0"]}, "reads its own output"),
        ({"tensor__bytes": None, "tensor__producer": "op1", "tensor__consumers": ["op1"]}, "cycle"),
    ],
)
def test_what_is_wrong_in_a_graph_file_is_named(changes, message):
    with pytest.raises(InputError, match=message) as caught:
        parse_graph(broken(**changes), "net.json")
    assert str(caught.value).startswith("net.json")


def test_a_cycle_is_named():
    data = {
        "format": FORMAT,
        "ops": [{"name": "a"}, {"name": "b"}],
        "tensors": [{"producer": "a", "consumers": ["b"]}, {"producer": "b", "consumers": ["a"]}],
    }
    with pytest.raises(GraphError, match=r"net\.json: the graph has a cycle: "):
        parse_graph(data, "net.json")


@pytest.mark.parametrize("content", [b"", b"{", b'{"a": 1', b"\xff\xfe", b"[" * 100_000, b"NaN"])
def test_a_file_that_is_not_json_is_named(tmp_path, content):
    file = tmp_path / "net.json"
    file.write_bytes(content)
    with pytest.raises(InputError, match="is not valid JSON"):
        read_json(file)


def test_files_that_cannot_be_read_are_named(tmp_path):
    with pytest.raises(InputError, match=r"none\.json: there is no such file"):
        read_json(tmp_path / "none.json")
    with pytest.raises(InputError, match="cannot be read"):
        read_json(tmp_path)


# -- workload files ------------------------------------------------------------------------------------------


def workload(**changes):
    data = {
        "maxFPGAs": 2,
        "maxCPUs": 1,
        "maxSizePerFPGA": 100,
        "nodes": [
            {"id": 10, "supportedOnFpga": 1, "cpuLatency": 10, "fpgaLatency": 1, "size": 5, "colorClass": 1},
            {
                "id": 20,
                "supportedOnFpga": 0,
                "cpuLatency": 20,
                "fpgaLatency": 2,
                "isBackwardNode": 1,
                "colorClass": 1,
            },
        ],
        "edges": [{"sourceId": 10, "destId": 20, "cost": 3, "size": 64}],
    }
    return {**data, **changes}


def test_a_workload_is_read_in_seconds_with_ids_as_names():
    found = parse_workload(workload(), "folder/bert.json")
    assert found.graph.names == ("10", "20")
    assert found.graph.name == "bert"
    assert found.cpu_time.tolist() == [0.01, 0.02]
    assert found.acc_time.tolist() == [0.001, float("inf")]
    assert found.out_cost.tolist() == [0.003]
    assert found.graph.tensor_bytes.tolist() == [64.0]
    assert found.graph.backward.tolist() == [False, True]
    assert found.colocation == ((0, 1),)
    assert (found.accelerators, found.cpus, found.capacity) == (2, 1, 100.0)


node = workload()["nodes"][0]
edge = workload()["edges"][0]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"maxFPGAs": "two"}, "'maxFPGAs' must be a whole number"),
        ({"nodes": [node, node]}, "node 10 appears twice"),
        ({"nodes": [{**node, "id": "x"}]}, r"nodes\[0\]: 'id' must be a whole number"),
        ({"nodes": [{"id": 10}], "edges": []}, "node 10: 'cpuLatency' is missing"),
        (
            {"nodes": [{**node, "cpuLatency": -1}], "edges": []},
            "node 10: 'cpuLatency' must be a finite number >= 0",
        ),
        ({"edges": [{**edge, "destId": 99}]}, "destId is 99, which is not a node"),
        ({"edges": [{**edge, "cost": None}]}, "from node 10 to node 20: 'cost' must be a number"),
        ({"edges": [{"sourceId": 20, "destId": 10, "cost": 1}]}, "from the backward to the forward pass"),
    ],
)
def test_what_is_wrong_in_a_workload_is_named(changes, message):
    with pytest.raises(InputError, match=message):
        parse_workload(workload(**changes), "bert.json")


def test_the_edges_of_one_node_must_cost_the_same():
    nodes = [{**node, "id": i, "colorClass": None} for i in range(3)]
    edges = [{"sourceId": 0, "destId": 1, "cost": 1}, {"sourceId": 0, "destId": 2, "cost": 2}]
    with pytest.raises(InputError, match="from node 0 to node 2 costs 2"):
        parse_workload(workload(nodes=nodes, edges=edges), "bert.json")


def test_a_split_holds_node_ids():
    split = parse_split({"fpgas": [{"nodes": [1, 2]}, {"nodes": []}], "cpus": [{"nodes": [3]}]}, "split.json")
    assert split.accelerators == (("1", "2"), ())
    assert split.cpus == (("3",),)
    with pytest.raises(InputError, match=r"split\.json: fpgas\[0\]: 'nodes' must hold node ids, not 'a'"):
        parse_split({"fpgas": [{"nodes": ["a"]}]}, "split.json")


# -- the zoo -------------------------------------------------------------------------------------------------


def test_layered_graphs_take_parameters():
    assert len(zoo.graph("layered-100?width=1")) == 100
    assert zoo.graph("layered-50?seed=1") != zoo.graph("layered-50?seed=2")
    assert zoo.graph("layered-50?seed=1") == zoo.graph("layered-50?seed=1")


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("nothing", "the zoo has no graph 'nothing': give e.g. layered-1000"),
        ("layered", "the zoo has no graph"),
        ("layered-x", "the zoo has no graph"),
        ("layered-9?color=red", "has no parameter 'color': choose from width, degree"),
        ("layered-9?n=3", "has no parameter 'n'"),
        ("layered-9?width=wide", "width must be of type int, not 'wide'"),
        ("layered-9?width=0", "width >= 1"),
        ("layered-99999999999", "the limit .ops. is 1,000,000"),
    ],
)
def test_names_that_the_zoo_does_not_know(name, message):
    with pytest.raises(InputError, match=message):
        zoo.graph(name)
