"""What ``torch.export`` makes of a model, as a graph to place."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from small_modules import Branching, SkipModel, skip_case, tied_case
from torch import nn
from torch.utils.checkpoint import checkpoint
from torch.utils.flop_counter import FlopCounterMode

import loadmaster
from loadmaster.errors import InputError
from loadmaster.graph.order import topological_order
from loadmaster.graph.torch import as_example, capture, is_random
from loadmaster.problem import Problem


@pytest.fixture(scope="module")
def tied():
    model, example, _, _ = tied_case(dropout=0.1)
    return capture(model, example, training=True)


@pytest.fixture(scope="module")
def skip():
    model, example, _, _ = skip_case()
    return capture(model, example, training=True)


def test_ops_are_called_after_their_module_and_fx_node(tied) -> None:
    assert "blocks.1.up/linear_2" in tied.names
    assert [node.name for node in tied.inputs] == ["ids", "scale"]
    graph = tied.network().graph
    assert graph.output_shapes[graph.index["blocks.1.up/linear_2"]] == ((2, 5, 16),)
    assert graph.names[graph.index["blocks.1.up/linear_2/backward"]]
    assert graph.backward[graph.index["loss/backward"]]


def test_the_modules_mode_and_weights_stay_as_they_were() -> None:
    model, example, _, _ = tied_case()
    model.eval()
    model.blocks[0].train()
    found = capture(model, example, training=True)
    assert not model.training
    assert model.blocks[0].training
    assert not model.blocks[1].training
    assert next(p.tensor for p in found.parameters if "embed.weight" in p.names) is model.embed.weight


def test_flops_are_those_of_torchs_own_counter_on_the_whole_model() -> None:
    for case in (tied_case, skip_case):
        model, example, loss, target = case()
        found = capture(model, example, training=True)
        given = as_example(example)
        with FlopCounterMode(display=False) as forward:
            value = loss(model.train()(*given.args, **given.kwargs), target)
        with FlopCounterMode(display=False) as backward:
            value.backward()
        assert sum(found.work.forward) == forward.get_total_flops() > 0
        assert sum(found.work.backward) == backward.get_total_flops() > 0


def test_tied_parameters_are_one_with_all_names_and_readers(tied) -> None:
    (shared,) = [parameter for parameter in tied.parameters if len(parameter.names) > 1]
    assert set(shared.names) == {"embed.weight", "head.weight"}
    assert len(shared.readers) == 2
    assert list(tied.unread) == ["unread"]
    together = tied.network(ties="together")
    problem = _problem(together)
    first, second = (problem.graph.index[tied.names[v]] for v in shared.readers)
    assert problem.class_of[first] == problem.class_of[second]
    apart = _problem(tied.network())
    assert apart.class_of[first] != apart.class_of[second]


def test_in_place_ops_getitem_and_statistics_stay_with_their_producers(skip, tied) -> None:
    problem = _problem(skip.network("op"))
    graph = problem.graph
    group = {name: int(problem.class_of[graph.index[name]]) for name in graph.names}
    first = [name for name in graph.names if name.startswith("first.0") and "conv" not in name]
    assert {name.rpartition("/")[2].rstrip("_0123456789") for name in first if "backward" not in name} == {
        "add",  # the sum, and the batch norm's counter of batches
        "batch_norm",
        "relu",
    }
    assert len({group[name] for name in first}) == 1
    assert group["first.0.norm/batch_norm"] != group["second.0.norm/batch_norm_2"]
    problem = _problem(tied.network("op"))
    graph = problem.graph
    chunk = next(name for name in graph.names if name.startswith("blocks.0/chunk"))
    items = [
        user for user in graph.names if user.startswith("blocks.0/getitem") and not user.endswith("/backward")
    ]
    assert len(items) == 2
    assert {int(problem.class_of[graph.index[name]]) for name in [chunk, *items]} == {
        int(problem.class_of[graph.index[chunk]])
    }


def test_backward_ops_are_with_their_forward_twins_and_mirror_their_edges(tied) -> None:
    problem = _problem(tied.network("op"))
    graph = problem.graph
    for name in graph.names:
        if name.endswith("/backward"):
            twin = graph.index[name.removesuffix("/backward")]
            assert problem.class_of[twin] == problem.class_of[graph.index[name]]
    before, after = "blocks.0.up/linear/backward", "blocks.0/chunk/backward"
    arcs = {(graph.names[u], graph.names[v]) for u, v in zip(*graph.arcs, strict=True)}
    assert (after, before) in arcs


def test_layers_are_blocks_and_make_no_cycle(tied, skip) -> None:
    assert set(tied.layers) >= {"embed", "blocks.0", "blocks.1", "blocks.2", "head"}
    assert set(skip.layers) >= {"stem", "first.0", "first.1", "second.0", "second.1", "head"}
    for found in (tied, skip):
        number = {layer: at for at, layer in enumerate(dict.fromkeys(found.layers))}
        arcs = {
            (number[found.layers[found.index[node.name]]], number[found.layers[found.index[user.name]]])
            for node in found.nodes
            for user in node.users
            if user.name in found.index
        }
        tail, head = zip(*((a, b) for a, b in arcs if a != b), strict=True)
        order = topological_order(len(number), np.array(tail, np.int32), np.array(head, np.int32))
        assert len(order) == len(number)


def test_the_graph_is_the_same_at_either_granularity_and_in_another_process(tied) -> None:
    model, example, _, _ = tied_case(dropout=0.1)
    again = capture(model, example, training=True)
    assert tied.network().graph.digest == tied.network("op").graph.digest == again.network().graph.digest
    model.blocks.append(model.blocks[0])
    assert capture(model, example, training=True).network().graph.digest != tied.network().graph.digest


def test_only_ops_that_draw_are_random(tied) -> None:
    assert [node.name for node in tied.nodes if is_random(node)] == ["dropout", "dropout_1", "dropout_2"]
    model, example, _, _ = tied_case(dropout=0.1)
    assert not any(is_random(node) for node in capture(model, example).nodes)
    model, example, _, _ = tied_case(dropout=0.0)
    assert not any(is_random(node) for node in capture(model, example, training=True).nodes)


def test_a_program_and_its_file_give_the_ops_of_the_module(tmp_path: Path) -> None:
    model, example, _, _ = skip_case()
    program = torch.export.export(model.eval(), (example,), strict=False)
    path = tmp_path / "model.pt2"
    torch.export.save(program, path)
    graphs = [capture(model, example).network().graph, capture(program).network().graph]
    loaded = loadmaster.load(f"torch:{path}")
    assert len({graph.digest for graph in (*graphs, loaded.graph)}) == 1
    with pytest.raises(InputError, match="leave them out"):
        loadmaster.load(f"torch:{path}", {"x": (1, 3, 6, 6)})


def test_control_flow_that_depends_on_values_is_refused_with_the_line() -> None:
    line = next(
        number
        for number, text in enumerate(
            Path(__file__).with_name("small_modules.py").read_text().splitlines(), 1
        )
        if "x.sum() > 0" in text
    )
    with pytest.raises(InputError, match=rf"small_modules\.py:{line}, in forward.*torch\.where"):
        capture(Branching(), torch.zeros(3))


def test_an_example_of_the_wrong_shape_is_refused_with_the_line() -> None:
    with pytest.raises(
        InputError, match=r"SkipModel: torch\.export stops at .*small_modules\.py:\d+, in forward.*example"
    ):
        capture(SkipModel(), torch.zeros(2, 5, 6, 6))


@pytest.mark.parametrize("given", [None, 3, (), {"a": 1}])
def test_an_example_without_tensors_is_refused(given: object) -> None:
    with pytest.raises(InputError, match=r"example|microbatch"):
        capture(nn.Linear(2, 2), given)


def test_open_shapes_and_other_things_are_refused(tmp_path: Path) -> None:
    program = torch.export.export(
        nn.Linear(2, 2),
        (torch.zeros(4, 2),),
        dynamic_shapes=({0: torch.export.Dim("n", min=2)},),
        strict=False,
    )
    with pytest.raises(InputError, match="fixed shapes"):
        capture(program)
    with pytest.raises(InputError, match="cannot be captured"):
        capture(3)
    with pytest.raises(InputError, match="no such file"):
        capture(tmp_path / "none.pt2")
    (tmp_path / "text.pt2").write_text("no")
    with pytest.raises(InputError, match=r"not a program"):
        capture(tmp_path / "text.pt2")


def test_unknown_granularities_and_ties_are_refused(tied) -> None:
    with pytest.raises(InputError, match="'module' is unknown: choose one of layer, op"):
        tied.network("module")
    with pytest.raises(InputError, match="choose one of replicate, together"):
        tied.network(ties="none")


def _problem(network) -> Problem:
    from loadmaster.hardware import Cluster, Device

    graph = network.graph
    return Problem.make(
        graph,
        Cluster("one", (Device("a"),)),
        "pipeline",
        time=np.ones((graph.n, 1)),
        colocation=network.colocation,
    )


class Doubled(torch.autograd.Function):
    """A backward pass that is not the derivative of the forward pass."""

    @staticmethod
    def forward(context, x):
        return x.clamp(min=0)

    @staticmethod
    def backward(context, gradient):
        return 2 * gradient


class Calling(nn.Module):
    """A layer, and a function of its result."""

    def __init__(self, function) -> None:
        super().__init__()
        self.layer, self.function = nn.Linear(4, 4), function

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.function(self.layer(x))


def test_what_an_export_would_lose_or_cannot_know_is_refused_by_name() -> None:
    x = torch.ones(3, 4)
    with pytest.raises(
        InputError, match=r"uses the autograd function Doubled of .* gradients would be wrong"
    ):
        capture(Calling(Doubled.apply), x, training=True)
    assert len(capture(Calling(Doubled.apply), x).nodes) == 2  # forward alone is right
    assert Doubled.apply(x.requires_grad_()).sum().backward() is None  # nothing is left behind
    x = torch.ones(3, 4)
    again = Calling(lambda h: checkpoint(torch.relu, h, use_reentrant=True))
    with pytest.raises(InputError, match="give use_reentrant=False"):
        capture(again, x, training=True)
    with pytest.raises(InputError, match=r"'item' .* makes a Python number of a tensor"):
        capture(Calling(lambda h: h * h.max().item()), x)
    with pytest.raises(InputError, match=r"the shape of what 'index' .* depends on values"):
        capture(Calling(lambda h: h[h[:, 0] > 0]), x)
    branched = Calling(lambda h: torch.cond(h.sum() > 0, torch.relu, torch.tanh, (h,)))
    with pytest.raises(InputError, match=r"'cond' .* has several branches"):
        capture(branched, x, training=True)


def test_a_branch_on_values_is_one_sentence_and_nothing_else_is_printed(
    capsys: pytest.CaptureFixture[str],
) -> None:
    class Branch(nn.Module):
        def forward(self, x):
            print("mine", file=sys.stderr)
            return x + 1 if x.sum() > 0 else x

    with pytest.raises(InputError, match=r"in forward: 'return x \+ 1 if x.sum\(\) > 0 else x'"):
        capture(Branch(), torch.ones(3))
    assert set(capsys.readouterr().err.split()) == {"mine"}
