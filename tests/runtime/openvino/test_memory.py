"""Models in memory run by plans as those in files do."""

from __future__ import annotations

import numpy as np
import pytest
from small_networks import CLOCK

import loadmaster
from loadmaster import api
from loadmaster.graph import Given
from loadmaster.graph.openvino import model_file
from loadmaster.optimize import optimize
from loadmaster.plan import Plan

torch = pytest.importorskip("torch")
pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
    pytest.mark.filterwarnings("ignore::UserWarning"),
]
SPECS = api.parse_devices(["acc0=cpu", "acc1=cpu", "cpu0=cpu"])


class Towers(torch.nn.Module):
    """Two branches that join; the normalisation is several nodes without names in OpenVINO."""

    def __init__(self):
        super().__init__()
        self.left, self.right = torch.nn.Linear(16, 16), torch.nn.Linear(16, 16)
        self.norm, self.head = torch.nn.LayerNorm(32), torch.nn.Linear(32, 4)

    def forward(self, x):
        both = torch.cat([torch.relu(self.left(x)), torch.tanh(self.right(x))], -1)
        return self.head(self.norm(both))


@pytest.fixture(scope="module")
def form():
    """Form -> a model in memory, and an example for it."""
    torch.manual_seed(0)
    module, x = Towers().eval(), torch.randn(4, 16)
    return {"module": (module, x), "program": (torch.export.export(module, (x,)), None), "right": (module, x)}


@pytest.mark.parametrize("kind", ["module", "program"])
def test_a_placed_model_in_memory_gives_its_outputs(form, kind):
    model, example = form[kind]
    problem = api.problem(loadmaster.load(model, example=example), "2acc+1cpu", "pipeline")
    kinds = zip(problem.graph.names, problem.graph.op_types, strict=True)
    names = {op: "cpu0" if kind == "Parameter" else f"acc{v % 2}" for v, (op, kind) in enumerate(kinds)}
    solution = api.place(problem, "single", evaluations=10)
    plan = Plan({**Plan.from_solution(problem, solution).document, "placement": names}, "a plan")
    module, x = form["right"]
    with loadmaster.open(model, plan, SPECS, example=example) as net:
        assert net.submodels > 1
        np.testing.assert_allclose(net(x.numpy()), module(x).detach().numpy(), rtol=1e-4, atol=1e-5)
    run = api.run(model, plan, SPECS, example=example, samples=3, baselines=False, clock=CLOCK)
    assert run.lines[0].verification is not None


def test_the_file_of_a_module_has_its_names_and_hash(form):
    module, x = form["module"]
    graph = loadmaster.load(module, example=x).graph
    with model_file(module, Given(), x) as (file, given):
        read = loadmaster.load(file, given).graph
        assert (read.names, read.digest) == (graph.names, graph.digest)
    assert not file.exists()


def test_a_module_is_optimised_and_its_plan_opens(form, tmp_path):
    module, x = form["module"]
    devices = api.parse_devices(["A=cpu", "B=cpu"])
    kept = api.cache(tmp_path / "cache.sqlite")
    found = optimize(module, devices, example=x, budget=20.0, samples=3, clock=CLOCK, cache=kept)
    with loadmaster.open(module, found.plan, example=x) as net:
        np.testing.assert_allclose(net(x.numpy()), module(x).detach().numpy(), rtol=1e-4, atol=1e-5)
