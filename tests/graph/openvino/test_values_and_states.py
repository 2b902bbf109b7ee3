"""OpenVINO models with inputs that never change, with a state, and from PyTorch."""

from __future__ import annotations

import numpy as np
import openvino as ov
import pytest
from openvino import opset13 as ops
from openvino.op.util import VariableInfo

from loadmaster import api
from loadmaster.errors import InputError
from loadmaster.graph import Given, Network, load_openvino
from loadmaster.graph.openvino import openvino_model

torch = pytest.importorskip("torch")


def stateful(path, *, first=True):
    """y = x + state, state = y; the state begins with x * 2, or with zeros."""
    x = ops.parameter([2, 3], np.float32, name="x")
    variable = VariableInfo()
    variable.data_shape, variable.data_type, variable.variable_id = ov.PartialShape([2, 3]), ov.Type.f32, "s"
    begins = ops.multiply(x, np.float32(2)) if first else ops.constant(np.zeros((2, 3), np.float32))
    held = ov.op.util.Variable(variable)
    read = ops.read_value(begins, held)
    y = ops.add(x, read, name="sum")
    model = ov.Model([ops.result(y)], [ops.assign(y, held)], [x], "stateful")
    ov.save_model(model, str(path), compress_to_fp16=False)
    return path


def test_a_state_begins_afresh_in_every_request(tmp_path):
    path = stateful(tmp_path / "s.xml")
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    request = (
        ov.Core().compile_model(str(path), "CPU", {"INFERENCE_PRECISION_HINT": "f32"}).create_infer_request()
    )
    ours = ov.Core().compile_model(openvino_model(path), "CPU", {"INFERENCE_PRECISION_HINT": "f32"})
    for _ in range(2):
        request.reset_state()
        expected = request.infer([x])[0]
        assert np.array_equal(expected, 3 * x)
        assert np.array_equal(ours([x])[0], expected)
    assert not {"ReadValue", "Assign"} & set(load_openvino(path).graph.op_types)


def test_a_value_is_a_constant_of_the_model(tmp_path):
    x = ops.parameter([2, -1], np.float32, name="x")
    n = ops.parameter([], np.int64, name="n")
    sizes = ops.concat([ops.constant(np.array([2])), ops.unsqueeze(n, np.int64(0))], 0)
    path = tmp_path / "v.xml"
    ov.save_model(ov.Model([ops.result(ops.reshape(x, sizes, False))], [x, n], "v"), str(path))
    network = load_openvino(path, ["x=2x6"], values=["n=6"])
    assert network.graph.output_shapes[0] == ((2, 6),)
    assert len(network.inputs) == 1
    with pytest.raises(InputError, match="but the inputs are x, n"):
        load_openvino(path, values={"m": 1})


def input_shapes(network):
    return {network.graph.output_shapes[v][0] for v in network.inputs}


class Small(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(4, 5)

    def forward(self, x, bias=None):
        return torch.relu(self.layer(x)) if bias is None else torch.relu(self.layer(x)) + bias


@pytest.fixture(scope="module")
def program():
    return torch.export.export(Small().eval(), (torch.randn(2, 4),), {"bias": torch.randn(2, 5)})


def test_a_pt2_file_is_a_model_like_any_other(tmp_path, program):
    path = tmp_path / "small.pt2"
    torch.export.save(program, path)
    network = api.load(path)
    assert network.graph.name == "small"
    assert {"MatMul", "Relu", "Add"} <= set(network.graph.op_types)
    assert input_shapes(network) == {(2, 4), (2, 5)}
    path.write_bytes(b"nothing")
    with pytest.raises(InputError, match="is not a program that"):
        api.load(path)


def test_shapes_of_an_exported_program_are_seen_also_of_keywords_and_open_sizes(program):
    assert input_shapes(load_openvino(program)) == {(2, 4), (2, 5)}
    batch = torch.export.Dim("batch", min=2, max=64)
    free = torch.export.export(Small().eval(), (torch.randn(6, 4),), dynamic_shapes={"x": {0: batch}})
    assert input_shapes(load_openvino(free)) == {(6, 4)}
    assert input_shapes(load_openvino(free, {"x": (3, 4)})) == {(3, 4)}


class Untraceable(Small):
    def forward(self, x):
        if torch.jit.is_tracing():
            raise RuntimeError("not by tracing")
        return super().forward(x)


class Impossible(Small):
    def forward(self, x):
        raise RuntimeError("not at all")


def test_a_module_that_cannot_be_traced_is_exported(tmp_path):
    assert isinstance(api.load(Untraceable().eval(), example=torch.randn(2, 4)), Network)
    with pytest.raises(
        InputError, match=r"neither by tracing \(.*\) nor through torch.export \(.*not at all"
    ):
        api.load(Impossible().eval(), example=torch.randn(2, 4))


def test_one_door_for_models_in_memory():
    x = ops.parameter([2, 3], np.float32, name="x")
    assert isinstance(api.load(ov.Model([ops.result(ops.relu(x))], [x], "m")), Network)
    network = api.load("zoo:layered-5")
    assert api.load(network) is network
    with pytest.raises(InputError, match="a dict cannot be loaded: give a file"):
        api.load({})
    with pytest.raises(InputError, match="an example is given"):
        api.load("zoo:layered-5", example=1)


def test_shapes_with_values_survive_a_worker(tmp_path):
    import pickle

    given = pickle.loads(pickle.dumps(Given(["x=2x3"], ["sr=16000"])))
    assert (dict(given), given.constants) == ({"x": (2, 3)}, {"sr": 16000})
