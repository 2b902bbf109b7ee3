"""An exported model, ready to be placed and to be cut into stages."""

from __future__ import annotations

import warnings
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from torch import fx, nn

from loadmaster.errors import InputError
from loadmaster.graph._network import Network
from loadmaster.graph.torch._example import Example, as_example
from loadmaster.graph.torch._export import export_module, load_program
from loadmaster.graph.torch._graph import network_of
from loadmaster.graph.torch._layers import layers_of
from loadmaster.graph.torch._nodes import is_op, output_tensors, skipped, tensor_bytes
from loadmaster.graph.torch._ties import kept_together
from loadmaster.graph.torch._work import Work, work_of

__all__ = ["Capture", "Parameter", "capture"]

BRANCHES = frozenset({"cond", "while_loop", "map_impl", "scan"})
"""Higher-order ops whose pieces run depending on values."""


@dataclass(frozen=True, eq=False)
class Parameter:
    """A parameter, buffer or constant of the model that ops read.

    ``name`` is the first fully qualified name that the program uses; ``names`` are all names of the same tensor.
    ``readers`` are ops, as indices into :attr:`Capture.nodes`. A tensor with several names, or with readers in several
    layers, is tied.
    """

    name: str
    names: tuple[str, ...]
    tensor: Any
    trained: bool
    persistent: bool
    readers: tuple[int, ...]

    @property
    def bytes(self) -> int:
        """Size of the tensor."""
        return tensor_bytes(self.tensor)


@dataclass(frozen=True, eq=False, repr=False)
class Capture:
    """What ``torch.export`` made of a model.

    Attributes
    ----------
    name : what the model is called in messages and plans.
    training : whether it was exported in training mode; its network then has a backward pass.
    module : the exported graph as a module; its parameters are those of the model itself, not copies.
    nodes : the ops, in the order of execution.
    inputs : the placeholders that are tensors, in the order of the example's tensors.
    in_spec, out_spec : the structure of arguments and results.
    example : one microbatch; None where a program was given that holds none.
    """

    name: str
    training: bool
    module: Any
    nodes: tuple[fx.Node, ...]
    inputs: tuple[fx.Node, ...]
    output: fx.Node
    in_spec: Any
    out_spec: Any
    example: Example | None
    state: Mapping[str, Any]
    """Parameters and persistent buffers by name, the tensors of the model itself."""
    aliases: Mapping[str, tuple[str, ...]]
    """Parameter or buffer -> all names of the same tensor in the model itself."""

    def __repr__(self) -> str:
        mode = "training" if self.training else "inference"
        return f"Capture({self.name!r}, {len(self.nodes)} ops, {mode})"

    @cached_property
    def index(self) -> dict[str, int]:
        """fx node name -> number of the op."""
        return {node.name: v for v, node in enumerate(self.nodes)}

    @cached_property
    def paths(self) -> tuple[str, ...]:
        """(ops,) the module that each op is called in, ``encoder.layers.0``; empty for the model itself. A module that
        is called again has ``@1`` behind its name."""
        return tuple(_path(node) for node in self.nodes)

    @cached_property
    def names(self) -> tuple[str, ...]:
        """(ops,) names in the graph: the module's path and the fx node's name."""
        return tuple(
            f"{path}/{node.name}" if path else node.name
            for path, node in zip(self.paths, self.nodes, strict=True)
        )

    @cached_property
    def parameters(self) -> tuple[Parameter, ...]:
        """Every tensor of the model that ops read, once each, in the order of first use."""
        found: dict[int, tuple[Any, list[str], set[int]]] = {}
        for node in self.module.graph.nodes:
            if node.op != "get_attr":
                continue
            tensor = attribute(self.module, node.target)
            if not isinstance(tensor, torch.Tensor):
                continue  # the graph inside a higher-order op
            _, names, readers = found.setdefault(id(tensor), (tensor, [], set()))
            names.append(str(node.target))
            readers.update(self.index[user.name] for user in node.users if user.name in self.index)
        made = []
        for tensor, names, readers in found.values():
            known = tuple(
                dict.fromkeys([*names, *(more for name in names for more in self.aliases.get(name, ()))])
            )
            made.append(
                Parameter(
                    name=names[0],
                    names=known,
                    tensor=tensor,
                    trained=isinstance(tensor, nn.Parameter) and tensor.requires_grad,
                    persistent=any(name in self.persistent for name in known),
                    readers=tuple(sorted(readers)),
                )
            )
        return tuple(made)

    @property
    def persistent(self) -> frozenset[str]:
        """Names in the model's state dict."""
        return frozenset(self.state)

    @cached_property
    def unread(self) -> dict[str, Any]:
        """What is in the model's state dict and no op reads."""
        read = {name for parameter in self.parameters for name in parameter.names}
        return {name: tensor for name, tensor in self.state.items() if name not in read}

    @cached_property
    def work(self) -> Work:
        """Floating point operations of every op, forward and backward, and which values have gradients."""
        return work_of(self)

    @cached_property
    def together(self) -> list[list[int]]:
        """Ops that no split may separate: ``getitem`` and its producer, what is written in place and who read it."""
        return kept_together(self)

    @cached_property
    def layers(self) -> tuple[str, ...]:
        """(ops,) the layer that each op belongs to: a whole module of the repeated structure, or the op itself."""
        return layers_of(self)

    def forget(self, kept: Collection[int]) -> None:
        """Let go of all tensors of the model but those with these ``id``\\ s; only their names are left.

        For a rank that has made its stage: nothing else can be made of the capture afterwards.
        """
        remaining = {name: tensor for name, tensor in self.state.items() if id(tensor) in kept}
        object.__setattr__(self, "state", {name: remaining.get(name) for name in self.state})
        parameters = tuple(
            replace(one, tensor=one.tensor if id(one.tensor) in kept else None) for one in self.parameters
        )
        unread = {name: tensor for name, tensor in self.unread.items() if id(tensor) in kept}
        self.__dict__.update(parameters=parameters, unread=unread)
        for module in self.module.modules():
            for held in (module._parameters, module._buffers):
                for name, tensor in held.items():
                    if id(tensor) not in kept:
                        held[name] = None

    def network(self, granularity: str = "layer", *, ties: str = "replicate") -> Network:
        """The operator graph to place.

        Parameters
        ----------
        granularity : ``layer``: ops of one layer go together; ``op``: only what must. The graph is the same.
        ties : ``replicate``: ops that read the same parameter may be in several stages, each of which then has a
            replica; ``together``: they share a stage.

        Raises
        ------
        InputError : another granularity, or another way with ties.
        """
        return network_of(self, granularity, ties)


def capture(model: Any, example: Any = None, *, training: bool = False, name: str = "") -> Capture:
    """Export a model and look at its ops.

    Parameters
    ----------
    model : a ``torch.nn.Module`` with ``example``, an ``ExportedProgram``, or a ``.pt2`` file.
    example : inputs of one microbatch: a tensor, a tuple of arguments, a dict of keyword arguments, or a pair of both.
    training : export in training mode, for a training problem. The module's own mode is put back. For a program, which
        was exported in one mode for good, it only says whether the network gets a backward pass.

    Raises
    ------
    InputError : the model cannot be exported; the message names the line of its code.
    """
    known: dict[str, tuple[str, ...]] = {}
    if isinstance(model, nn.Module):
        if example is None:
            raise InputError("a module needs an example of its inputs to be exported: give one microbatch")
        given: Example | None = as_example(example)
        assert given is not None
        name = name or type(model).__name__
        modes = {part: part.training for part in model.modules()}
        try:
            if training != model.training:
                model.train(training)
            program = export_module(model, given, name)
        finally:
            for part, mode in modes.items():
                part.training = mode
        known = _aliases(model)
    else:
        program = load_program(model) if isinstance(model, str | Path) else model
        if not hasattr(program, "graph_signature"):
            raise InputError(
                f"a {type(model).__name__} cannot be captured: give a torch.nn.Module with an example, an "
                "ExportedProgram or a .pt2 file"
            )
        name = name or (Path(model).stem if isinstance(model, str | Path) else "program")
        given = None if example is None else as_example(example)
        if given is None and program.example_inputs is not None:
            given = Example(tuple(program.example_inputs[0]), dict(program.example_inputs[1]))
    return _captured(program, given, training, name, known)


def _captured(
    program: Any, example: Example | None, training: bool, name: str, known: Mapping[str, tuple[str, ...]]
) -> Capture:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        module = program.module(check_guards=False)
    graph = module.graph
    for node in reversed(list(graph.nodes)):
        if skipped(node) or (node.op == "get_attr" and not node.users):
            graph.erase_node(node)
    module.recompile()
    nodes = tuple(node for node in graph.nodes if is_op(node))
    if not nodes:
        raise InputError(f"{name}: the exported program has no ops: nothing can be placed")
    for node in nodes:
        if training and str(node.target) in BRANCHES:
            raise InputError(
                f"{name}: {node.name!r}{_line_of(node)} has several branches or rounds, through which gradients cannot "
                "be measured and split yet: write it with torch.where, or keep it outside the model"
            )
        if isinstance(node.meta.get("val"), torch.SymInt | torch.SymFloat | torch.SymBool):
            raise InputError(
                f"{name}: {node.name!r}{_line_of(node)} makes a Python number of a tensor, which is only known when "
                "the model runs: keep it a tensor"
            )
        for tensor in output_tensors(node):
            if any(not isinstance(size, int) for size in tensor.shape):
                if node.meta.get("unbacked_bindings"):
                    raise InputError(
                        f"{name}: the shape of what {node.name!r}{_line_of(node)} makes depends on values "
                        f"({tuple(tensor.shape)}): stages need fixed shapes, so mask with torch.where instead"
                    )
                raise InputError(
                    f"{name}: the shape of {node.name!r} is open ({tuple(tensor.shape)}): stages need fixed shapes, so "
                    "export without dynamic_shapes"
                )
    return Capture(
        name=name,
        training=training,
        module=module,
        nodes=nodes,
        inputs=tuple(
            node
            for node in graph.nodes
            if node.op == "placeholder" and isinstance(node.meta.get("val"), torch.Tensor)
        ),
        output=next(node for node in graph.nodes if node.op == "output"),
        in_spec=program.call_spec.in_spec,
        out_spec=program.call_spec.out_spec,
        example=example,
        state=dict(program.state_dict),
        aliases=known or _aliases_of(program.state_dict.items()),
    )


def _line_of(node: fx.Node) -> str:
    """Where the model's own code makes it, as far as torch noted that: the last frame of its stack."""
    frames = [line.strip() for line in str(node.meta.get("stack_trace", "")).splitlines() if "File" in line]
    return f" ({frames[-1]})" if frames else ""


def attribute(module: Any, path: str) -> Any:
    """What a dotted name means in a module."""
    found = module
    for part in path.split("."):
        found = getattr(found, part)
    return found


def _aliases(model: nn.Module) -> dict[str, tuple[str, ...]]:
    named = [
        *model.named_parameters(remove_duplicate=False),
        *model.named_buffers(remove_duplicate=False),
    ]
    return _aliases_of(named)


def _aliases_of(named: Any) -> dict[str, tuple[str, ...]]:
    by_tensor: dict[int, list[str]] = {}
    kept: Sequence[tuple[str, Any]] = list(named)
    for name, tensor in kept:
        by_tensor.setdefault(id(tensor), []).append(name)
    return {name: tuple(by_tensor[id(tensor)]) for name, tensor in kept}


def _path(node: fx.Node) -> str:
    stack = node.meta.get("nn_module_stack")
    if not stack:
        return ""
    return str(list(stack.values())[-1][0])
