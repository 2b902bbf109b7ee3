"""The torch module that every op of a plan belongs to.

A plan speaks of ops, torch of modules. What exporters leave of modules: the scope of a name
(``/encoder/layers.0/fc/MatMul`` of the older ONNX exporter, ``__module.layers.0.fc/aten::linear/MatMul`` of
OpenVINO, ``layers.0.fc/linear`` of the PyTorch frontend), the metadata of a node (the newer ONNX exporter), or the
stack of modules of a node of an ``ExportedProgram``.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from loadmaster.errors import InputError
from loadmaster.files import check_regular
from loadmaster.plan import Plan

__all__ = ["Modules", "module_of", "modules_of"]

SCOPES = "pkg.torch.onnx.name_scopes"
"""Metadata of a node: the modules that it is in, from the outside in, and its own name."""
ROOT = "__module"
AGAIN = re.compile(r"@\d+")
"""Behind the name of a module that is called once more, in programs of torch.export."""
MADE_UP = re.compile(r"::|/|^(val|onnx|lifted|const|scalar)_|_default")
"""In names of constants that an exporter made itself: they are no parameters."""


def module_of(op: str) -> str:
    """The module that the name of an op speaks of; empty for ops of the model itself.

    >>> module_of("/encoder/layers.0/fc/MatMul"), module_of("/layers/layers.1/Relu"), module_of("fc1")
    ('encoder.layers.0.fc', 'layers.1', 'fc1')
    >>> module_of("__module.layers.0.fc1/aten::linear/MatMul")
    'layers.0.fc1'
    """
    if op.startswith(ROOT):
        return op.partition("/")[0].removeprefix(ROOT).lstrip(".")
    if "/" not in op:
        return op
    parts: list[str] = []
    for part in op.strip("/").split("/")[:-1]:
        if parts and part.startswith(parts[-1] + "."):  # torch writes a Sequential's name twice
            parts.pop()
        parts.append(part)
    return ".".join(parts)


class Modules:
    """``of``: (ops,) module of every op, empty for the model itself. ``parameters``: parameter -> an op that reads it,
    where the model was given and says so."""

    def __init__(self, of: list[str], parameters: Mapping[str, int]) -> None:
        self.of, self.parameters = of, parameters


def modules_of(plan: Plan, model: Any = None) -> Modules:
    """The module of every op, from the model (an ONNX file, a ``.pt2`` file, a module, an ``ExportedProgram``) or else
    from names.

    Raises
    ------
    InputError : there are no modules to be seen.
    """
    graph = plan.problem().graph
    imported = "Parameter" in graph.op_types
    captured = "torch" in plan.document  # by the PyTorch frontend
    names = [
        "" if graph.backward[v] else AGAIN.sub("", module_of(op)) if _speaks(op) or not imported else ""
        for v, op in enumerate(graph.names)
    ]
    parameters: dict[str, int] = {}
    if isinstance(model, str | Path) and Path(model).suffix == ".pt2":
        from loadmaster.graph.openvino import load_program

        model = load_program(model)
    if isinstance(model, str | Path) and Path(model).suffix == ".onnx":
        scopes, parameters, torchs = _from_onnx(model, graph.index)
        if not torchs:  # scopes of another framework are no modules of torch
            names = [name if op.startswith("/") else "" for op, name in zip(graph.names, names, strict=True)]
        names = [scopes.get(op, name) for op, name in zip(graph.names, names, strict=True)]
    elif hasattr(model, "graph_signature"):
        scopes = _from_program(model)
        parameters = _read_by(model, graph.names)
        names = [scopes.get(op.partition("/")[0], name) for op, name in zip(graph.names, names, strict=True)]
    if hasattr(model, "named_modules"):
        known = {name for name, _ in model.named_modules()}
        names = [_nearest(name, known) for name in names]
        for name, _ in model.named_parameters():
            owner = _nearest(name, {*names, ""})
            parameters[name] = names.index(owner) if owner in names else 0
    if not captured:
        names = _first_calls(names)
    if not any(names):
        ops = [
            op
            for op, kind in zip(graph.names, graph.op_types, strict=True)
            if kind not in ("Parameter", "Constant")
        ]
        advice = (
            "give the program that it was made from (model.pt2) as --model"
            if any("aten." in op for op in ops)
            else "this format is for models of PyTorch: of one, give the ONNX file of torch's exporter as --model"
        )
        raise InputError(
            f"{plan.source}: no op belongs to a module of torch: its ops are named like {ops[0]!r}, not like "
            f"'/encoder/fc/MatMul'; {advice}"
        )
    return Modules(names, parameters)


def _speaks(op: str) -> bool:
    """Whether a name of an imported op is one that scopes are in; what ``torch.export`` calls an op has none."""
    return op.startswith(("/", ROOT)) or ("/" in op and "aten." not in op and "aten::" not in op)


def _nearest(name: str, known: set[str]) -> str:
    while name and name not in known:
        name = name.rpartition(".")[0]
    return name


def _first_calls(names: list[str]) -> list[str]:
    """The older ONNX exporter calls a module that is called again ``act_1``: it is still ``act``."""
    seen = {".".join(name.split(".")[: i + 1]) for name in names for i in range(name.count(".") + 1)}

    def first(name: str) -> str:
        parts: list[str] = []
        for part in name.split("."):
            again = re.fullmatch(r"(.+)_\d+", part)
            base = ".".join([*parts, again[1]]) if again else ""
            parts.append(again[1] if again and base in seen else part)
        return ".".join(parts)

    return [first(name) for name in names]


def _from_onnx(path: str | Path, index: Mapping[str, int]) -> tuple[dict[str, str], dict[str, int], bool]:
    """Op -> module by the metadata of the newer exporter, parameter -> op that reads it, and whether torch wrote it."""
    import onnx

    check_regular(path, "model")
    try:
        whole = onnx.load(str(path), load_external_data=False)
    except Exception as error:
        raise InputError(f"{path}: cannot be read as ONNX ({error})") from None
    graph = whole.graph
    weights = {tensor.name for tensor in graph.initializer}
    scopes: dict[str, str] = {}
    parameters: dict[str, int] = {}
    for node in graph.node:
        op = node.name if node.name in index else next(iter(node.output), "")
        if op not in index:
            continue
        for name in node.input:
            if name in weights and not MADE_UP.search(name):
                parameters.setdefault(name, index[op])
        told = next((prop.value for prop in node.metadata_props if prop.key == SCOPES), "")
        try:
            stack = ast.literal_eval(told) if told else []
        except (SyntaxError, ValueError):
            stack = []
        if isinstance(stack, list) and len(stack) > 1:
            scopes[op] = str(stack[-2])
    return scopes, parameters, whole.producer_name == "pytorch"


def _from_program(program: Any) -> dict[str, str]:
    """Name of a node of an ``ExportedProgram`` -> module."""
    found: dict[str, str] = {}
    for node in program.graph.nodes:
        stack = list((node.meta.get("nn_module_stack") or {}).values())
        if stack:
            found[node.name] = re.sub(r"^L\['self'\]\.?", "", str(stack[-1][0]))
    return found


def _read_by(program: Any, ops: Sequence[str]) -> dict[str, int]:
    """Parameter of an ``ExportedProgram`` -> an op that reads it."""
    first: dict[str, int] = {}
    for v, op in enumerate(ops):
        first.setdefault(op.partition("/")[0], v)
    held = program.graph_signature.inputs_to_parameters
    found: dict[str, int] = {}
    for node in program.graph.nodes:
        if node.name in held:
            readers = [user.name for user in node.users if user.name in first]
            found[held[node.name]] = first[readers[0]] if readers else 0
    return found
