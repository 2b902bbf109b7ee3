"""ONNX models of strangers that fuzzing found, or reading what it found."""

import pytest

onnx = pytest.importorskip("onnx")


def test_inputs_of_gigabytes_are_not_drawn_to_see_a_shape(tmp_path):
    """Which ops are not zero only a run tells; its inputs alone took 64 GiB."""
    from onnx import TensorProto, helper

    from loadmaster import api
    from loadmaster.errors import InputError

    nodes = [helper.make_node("NonZero", ["x"], ["z"]), helper.make_node("Cast", ["z"], ["y"], to=1)]
    values = [helper.make_tensor_value_info("x", TensorProto.FLOAT, (2**31 - 1, 4))]
    graph = helper.make_graph(nodes, "net", values, [helper.make_tensor_value_info("y", 1, None)])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    (tmp_path / "net.onnx").write_bytes(model.SerializeToString())
    with pytest.raises(InputError, match="the shape of its output 'z' is unknown"):
        api.problem(tmp_path / "net.onnx")


def test_constants_that_take_an_hour_to_compute_are_refused(tmp_path):
    """OpenVINO multiplied two matrices of 36 million elements, made out of two numbers, in plain loops."""
    pytest.importorskip("openvino")
    from onnx import TensorProto, helper

    from loadmaster import api
    from loadmaster.errors import InputError

    nodes = [
        helper.make_node("ConstantOfShape", ["s"], ["k"]),
        helper.make_node("MatMul", ["k", "k"], ["q"]),
        helper.make_node("ReduceSum", ["q"], ["r"]),
        helper.make_node("Add", ["x", "r"], ["y"]),
    ]
    values = [helper.make_tensor_value_info("x", TensorProto.FLOAT, (1, 4))]
    sizes = helper.make_tensor("s", TensorProto.INT64, [2], [6000, 6000])
    graph = helper.make_graph(nodes, "net", values, [helper.make_tensor_value_info("y", 1, None)], [sizes])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    (tmp_path / "net.onnx").write_bytes(model.SerializeToString())
    with pytest.raises(InputError, match="multiplications to compute"):
        api.problem(f"openvino:{tmp_path / 'net.onnx'}")
