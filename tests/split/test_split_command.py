"""``loadmaster split``: stages, what the rules give, the plan, the report; and what it says about bad input."""

import json

import pytest
from typer.testing import CliRunner

from loadmaster.cli import app
from loadmaster.export import export
from loadmaster.plan import Plan
from loadmaster.problem import evaluate

pytest.importorskip("torch")

MODEL = '''
import torch
from torch import nn


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down = nn.Linear(16, 32), nn.Linear(32, 16)

    def forward(self, x):
        return x + self.down(torch.relu(self.up(x)))


class Model(nn.Module):
    """A large vocabulary behind small blocks."""

    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(4096, 16)
        self.layers = nn.ModuleList(Block() for _ in range(4))
        self.head = nn.Linear(16, 4096)

    def forward(self, ids):
        x = self.embed(ids)
        for layer in self.layers:
            x = layer(x)
        return self.head(x)


def loss(result, target):
    return nn.functional.cross_entropy(result.flatten(0, 1), target.flatten())


def build():
    print("what a model prints is no part of the answer")
    torch.manual_seed(0)
    ids = torch.randint(0, 4096, (2, 64))
    return Model(), ids, loss, ids


def serve():
    return Model(), torch.zeros(2, 64, dtype=torch.long)


def wrong_shape():
    return nn.Linear(4, 4), torch.zeros(2, 5)


def broken():
    raise ValueError("no weights here")


def nothing():
    return None


def failing_loss():
    return Model(), torch.zeros(2, 64, dtype=torch.long), lambda result, target: result[target], "no index"


def whole_numbers():
    return nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4)), torch.ones(2, 4, dtype=torch.long)


def on_meta():
    return nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4)).to("meta"), torch.ones(2, 4, device="meta")


def no_loss():
    return Model(), torch.zeros(2, 64, dtype=torch.long), lambda result: result


number = 3
'''


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    made = tmp_path_factory.mktemp("split")
    (made / "model.py").write_text(MODEL)
    return made


def command(folder, *arguments, function="build"):
    return CliRunner().invoke(app, ["split", f"{folder / 'model.py'}:{function}", *arguments])


@pytest.fixture(scope="module")
def found(folder):
    result = command(
        folder,
        *("--ranks", "2", "--microbatches", "4", "--budget", "3s", "--json"),
        *("-o", str(folder / "plan.json"), "--report", str(folder / "report.html")),
    )
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def test_stages_times_memory_bound_and_gap_are_printed(found):
    first, last = found["stages"]
    assert first["first"] == "embed"
    assert last["last"] == "head"
    assert all(
        stage["forward"] > 0 and stage["backward"] > 0 and stage["memory"] > 0 for stage in found["stages"]
    )
    assert 0 < found["bound"] <= found["step"]
    assert 0 <= found["bubble"] < 1
    assert found["microbatches"] == 4
    assert found["schedule"] == "1f1b"


def test_the_rules_are_evaluated_in_the_same_simulation(found):
    assert list(found["rules"]) == ["equal layers", "equal parameters", "torchtitan"]
    for row in found["rules"].values():
        assert row["step"] >= found["bound"] * (1 - 1e-9)
        assert row["ratio"] == pytest.approx(row["step"] / found["step"])
    assert found["rules"]["equal layers"]["stages"][0]["last"] == "layers.1"
    if found["optimal"]:
        assert min(row["ratio"] for row in found["rules"].values()) >= 1 - 1e-6


def test_the_plan_has_the_printed_step_and_goes_to_other_engines(found, folder):
    plan = Plan.load(folder / "plan.json")
    assert evaluate(plan.problem(), plan.placement()).cost == pytest.approx(found["step"])
    assert plan.document["torch"]["microbatches"] == 4
    parts = json.loads(export(plan, "torchtitan"))["module_fqns_per_model_part"]
    assert parts[0][0] == "embed"
    assert parts[1][-1] == "head"
    assert [name for part in parts for name in part] == ["embed", *(f"layers.{i}" for i in range(4)), "head"]
    assert json.loads(export(plan, "deepspeed"))["parts"] == [0, len(parts[0]), 6]


def test_the_report_has_every_pass_of_every_microbatch(found, folder):
    from report_pages import unpacked

    header, _ = unpacked((folder / "report.html").read_text())
    assert header["cost"] == pytest.approx(found["step"])
    passes = {tuple(action[:4]) for action in header["actions"]}
    assert passes == {(r, r, m, b) for r in (0, 1) for m in range(4) for b in (0, 1)}
    assert all(0 <= start < end <= found["step"] * (1 + 1e-9) for *_, start, end in header["actions"])


def test_tables_name_the_first_and_last_layer_of_every_stage(folder):
    result = command(folder, "--ranks", "2", "--budget", "1s", "--schedule", "gpipe", function="serve")
    assert result.exit_code == 0, result.output
    for text in ("embed", "head", "bubble", "equal layers", "equal parameters", "torchtitan", "inference"):
        assert text in result.output


@pytest.mark.parametrize(
    ("function", "arguments", "said"),
    [
        ("missing", [], "has no function 'missing'"),
        ("number", [], "has no function 'number'"),
        ("broken", [], "line 51"),
        ("nothing", [], "must return (model, example)"),
        ("wrong_shape", [], "check that the example has the shapes"),
        ("whole_numbers", [], "fails on the example (RuntimeError: "),
        ("failing_loss", [], "the loss fails on the model's result (IndexError: "),
        ("no_loss", [], "the loss must be a tensor with one element, not (2, 64, 4096)"),
        ("build", ["--ranks", "20", "--microbatches", "20"], "20 ranks cannot share"),
        ("build", ["--ranks", "4", "--microbatches", "3"], "--microbatches 3 are fewer than the ranks (4)"),
        ("build", ["--schedule", "zigzag"], "choose 1f1b or gpipe"),
        ("build", ["--granularity", "atom"], "choose layer or op"),
        ("build", ["--speeds", "1,0"], "must be numbers above 0"),
        ("build", ["--speeds", "1,2,3"], "3 speeds are given for 2 ranks"),
        ("build", ["--memory", "much"], "is not a size"),
        ("build", ["--optimizer-state", "inf"], "--optimizer-state must be a number"),
        ("build", ["--device", "abacus"], "no device 'abacus'"),
        ("build", ["--device", "meta"], "no device 'meta'"),
        ("on_meta", [], "has weights on the device 'meta'"),
        ("build", ["-o", ""], "is a folder"),
        ("build", ["--cluster", "p100-8", "--speeds", "1,2"], "--cluster says them itself"),
    ],
)
def test_bad_input_is_one_sentence(folder, function, arguments, said):
    result = command(folder, *arguments, function=function)
    assert result.exit_code == 2, result.output
    assert said in result.output
    assert "Traceback" not in result.output


def test_a_name_that_no_file_can_have_is_no_bug(folder):
    result = CliRunner().invoke(app, ["split", "a" * 5000 + ".py:build"])
    assert result.exit_code == 2
    assert "there is no such file" in result.output


def test_a_missing_file_is_named(folder):
    result = CliRunner().invoke(app, ["split", str(folder / "other.py:build")])
    assert result.exit_code == 2
    assert "there is no such file" in result.output


def test_a_model_that_fits_no_rank_is_infeasible(folder):
    result = command(folder, "--memory", "1kB", "--budget", "1s")
    assert result.exit_code == 3, result.output


def test_with_little_memory_equal_layers_does_not_fit_and_the_plan_does(found, folder):
    """The head's results are the largest thing of all: no block fits beside it."""
    most = max(stage["memory"] for stage in found["rules"]["equal layers"]["stages"])
    result = command(
        folder, "--microbatches", "4", "--memory", str(int(most) - 1), "--budget", "2s", "--json"
    )
    assert result.exit_code == 0, result.output
    tight = json.loads(result.stdout)
    assert tight["feasible"]
    assert all(stage["memory"] <= most - 1 for stage in tight["stages"])
    assert not tight["rules"]["equal layers"]["feasible"]
    assert tight["rules"]["equal layers"]["why"]
