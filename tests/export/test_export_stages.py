"""Stages as lists of modules, for torchtitan and DeepSpeed, and Hugging Face's maps with memory.

The tests with the engines themselves are there where these are installed, or where LOADMASTER_ENGINES names their
site-packages folder: both need packages and builds that this project does not want to depend on.
"""

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from loadmaster.errors import InputError
from loadmaster.export import export, stage_modules
from loadmaster.graph import GraphBuilder
from loadmaster.hardware import Cluster, Device
from loadmaster.plan import Plan
from loadmaster.problem import Pipeline, Placement, Problem, Solution

ENGINES = os.environ.get("LOADMASTER_ENGINES", "")
OPS = [
    "tok_embeddings/linear",
    *(
        f"layers.{i}{op}"
        for i in range(4)
        for op in (".fc1/linear_1", "/relu", ".fc2/linear_2", "@1/again", "/add")
    ),
    "norm/layer_norm",
    "lm_head/linear_9",
]


def stage_plan(device, ops=OPS, *, kinds=("gpu", "gpu"), capacity=None):
    """A plan of the PyTorch frontend: a chain of forward ops and their backward twins."""
    builder = GraphBuilder("blocks")
    builder.op("x", "Parameter", boundary=True)
    for name in ops:
        builder.op(name, param_bytes=100.0)
    n = len(ops)
    for i in range(n):
        builder.op(f"{ops[n - 1 - i]}/backward", backward=True)
    for i in range(2 * n):
        builder.tensor(i, bytes=4.0, consumers=[i + 1])
    graph = builder.build()
    where = [device(ops[0]), *(device(name) for name in ops), *(device(name) for name in reversed(ops))]
    count = len(kinds)
    problem = Problem.make(
        graph,
        Cluster("small", tuple(Device(f"rank{i}", kind) for i, kind in enumerate(kinds))),
        Pipeline("chain"),
        time=np.ones((graph.n, count)),
        memory=graph.param_bytes,
        latency=np.zeros((count, count)),
        rate=np.zeros((count, count)),
        capacity=capacity,
    )
    plan = Plan.from_solution(
        problem, Solution(Placement(np.array(where, np.int32)), 1.0, 0.5, "guess", "hand")
    )
    return Plan({**plan.document, "torch": {"version": "2.13.0"}}, "plan.json")


def after(first):
    """Ops from the first of a module on are on the second device."""
    at = next(i for i, name in enumerate(OPS) if name.startswith(first))
    return lambda name: int(OPS.index(name) >= at)


def test_torchtitan_is_given_the_modules_of_every_part():
    exported = json.loads(export(stage_plan(after("layers.3")), "torchtitan"))
    assert exported == {
        "module_fqns_per_model_part": [
            ["tok_embeddings", "layers.0", "layers.1", "layers.2"],
            ["layers.3", "norm", "lm_head"],
        ]
    }


def test_deepspeed_is_given_layers_and_boundaries():
    exported = json.loads(export(stage_plan(after("layers.3")), "deepspeed"))
    assert exported["parts"] == [0, 4, 7]
    assert exported["num_stages"] == 2
    assert exported["layers"][3:5] == ["layers.2", "layers.3"]


def test_the_order_of_stages_is_that_of_the_data_not_of_the_devices():
    stages = stage_modules(stage_plan(lambda name: 1 - after("norm")(name)))
    assert [stage.device for stage in stages] == [1, 0]
    assert stages[1].modules == ("norm", "lm_head")


def test_a_divided_module_is_named_by_its_children():
    plan = stage_plan(lambda name: int(OPS.index(name) >= OPS.index("layers.1.fc2/linear_2")))
    assert stage_modules(plan)[1].modules[0] == "layers.1.fc2"
    assert json.loads(export(plan, "deepspeed"))["layers"][2:4] == ["layers.1.fc1", "layers.1.fc2"]
    with pytest.raises(
        InputError, match=r"'layers.1.fc1' is neither a child of the model nor of one of its lists"
    ):
        export(plan, "torchtitan")


def test_a_module_without_children_cannot_be_divided():
    ops = ["a/linear", "b/matmul", "b/add", "c/linear"]
    plan = stage_plan(lambda name: int(name in ops[2:]), ops)
    with pytest.raises(InputError, match=r"module 'b' has ops in stages 1 and 2, .*--granularity layer"):
        export(plan, "deepspeed")


def test_devices_in_a_circle_are_no_pipeline():
    plan = stage_plan(lambda name: int(name.startswith("layers.1")))
    with pytest.raises(InputError, match=r"data flows from rank0 to rank1 and back"):
        export(plan, "torchtitan")


def test_children_without_ops_are_named_behind_those_before_them():
    torch = pytest.importorskip("torch")

    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.tok_embeddings = torch.nn.Identity()
            self.dropout = torch.nn.Dropout(0.0)
            self.layers = torch.nn.ModuleList(torch.nn.Sequential(torch.nn.Identity()) for _ in range(4))
            self.norm, self.lm_head = torch.nn.Identity(), torch.nn.Identity()
            self.softcap = torch.nn.Identity()

    ops = ["tok_embeddings/linear", *(f"layers.{i}/add" for i in range(4)), "norm/mul", "lm_head/linear"]
    plan = stage_plan(lambda name: int(ops.index(name) >= 4), ops)
    parts = json.loads(export(plan, "torchtitan", Model()))["module_fqns_per_model_part"]
    assert sorted(parts[0]) == ["dropout", "layers.0", "layers.1", "layers.2", "tok_embeddings"]
    assert parts[1][-1] == "softcap"


def test_hugging_face_is_given_the_memory_of_every_device():
    accelerate = pytest.importorskip("accelerate")
    torch = pytest.importorskip("torch")
    sys.path.insert(0, str(Path(__file__).parent))
    try:
        import engine_programs
    finally:
        sys.path.pop(0)
    given = json.loads(
        export(stage_plan(after("layers.3"), kinds=("gpu", "cpu"), capacity=[1e9, 4e9]), "huggingface")
    )
    assert given["device_map"]["layers.3"] == "cpu"
    assert given["max_memory"] == {"0": int(1e9), "cpu": int(4e9)}
    assert given["memory"] == {"0": 1600, "cpu": 700}
    model = engine_programs.model()
    accelerate.utils.check_device_map(model, given["device_map"])
    limits = {int(name) if name.isdecimal() else name: size for name, size in given["max_memory"].items()}
    assert accelerate.infer_auto_device_map(model, max_memory=limits) == {"": 0}
    tight = {0: 1300, "cpu": limits["cpu"]}
    assert "cpu" in accelerate.infer_auto_device_map(model, max_memory=tight).values()
    unlimited = json.loads(export(stage_plan(after("layers.3")), "huggingface"))
    assert unlimited["max_memory"] == {}
    on_cpus = json.loads(export(stage_plan(after("layers.3"), kinds=("cpu", "cpu")), "huggingface"))[
        "device_map"
    ]
    x = torch.randn(3, 4)
    expected = model(x)
    torch.testing.assert_close(accelerate.dispatch_model(model, on_cpus, force_hooks=True)(x), expected)


# -- in the engines themselves ----------------------------------------------------------------------------------


def installed(name):
    """Whether an engine is here, or in the folder that LOADMASTER_ENGINES names."""
    return (bool(ENGINES) and (Path(ENGINES) / name).is_dir()) or importlib.util.find_spec(name) is not None


def run(*command):
    program = str(Path(__file__).parent / "engine_programs.py")
    found = subprocess.run(
        [sys.executable, *command[:-2], program, *command[-2:]], capture_output=True, text=True, timeout=300
    )
    assert found.returncode == 0, found.stdout + found.stderr
    return found.stdout


if installed("torchtitan"):

    def test_torchtitan_splits_where_the_plan_does(tmp_path):
        path = tmp_path / "parts.json"
        path.write_text(export(stage_plan(after("layers.3")), "torchtitan"))
        found = json.loads(run("torchtitan", str(path)).splitlines()[-1])
        assert found["equal"]
        assert "layers.2.fc1" in found["held"][0]
        assert found["held"][1] == ["layers.3.fc1", "layers.3.fc2", "lm_head", "norm"]

    def test_our_version_of_torchtitans_rule_is_torchtitans():
        from loadmaster.split import block_parts

        found = json.loads(run("titans_rule", "").splitlines()[-1])
        assert len(found) == 5
        for sizes, parts in found.items():
            stages, blocks, first, last = map(int, sizes.split(","))
            theirs = [sum(name.startswith("layers.") for name in part) for part in parts]
            assert block_parts(blocks, stages, first, last) == theirs


if installed("deepspeed"):

    def test_deepspeed_builds_the_stages_of_the_plan(tmp_path):
        path = tmp_path / "parts.json"
        path.write_text(export(stage_plan(after("layers.3")), "deepspeed"))
        run("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "deepspeed", str(path))
        found = [json.loads(Path(f"{path}.{rank}").read_text()) for rank in range(2)]
        assert all(entry["equal"] for entry in found)
        assert found[1]["held"] == ["layers.3", "norm", "lm_head"]
