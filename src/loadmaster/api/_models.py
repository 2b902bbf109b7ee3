"""What can be placed: models, workloads and problems, by any name or object."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from loadmaster.errors import InputError
from loadmaster.files import named, read_json
from loadmaster.graph import Given, Graph, Network, is_graph, load_onnx, load_openvino, parse_graph
from loadmaster.graph.workload import Workload, is_split, is_workload, parse_workload
from loadmaster.hardware import Cluster, Costs, estimate, load_cluster, parse_totals, read_costs, scale_to
from loadmaster.plan import Plan, is_plan, is_profile, parse_profile
from loadmaster.problem import (
    Concurrent,
    ExecutionModel,
    Pipeline,
    Problem,
    execution_model,
    is_problem,
    named_model,
    parse_problem,
    workload_problem,
)

DEFAULT_CLUSTER = "2acc+1cpu"


Model = Graph | Network | Workload | Problem
"""What a file can hold: a graph alone, a network (a graph with ops that go together), a workload (a graph with
costs and devices), or a whole problem."""


Shapes = Mapping[str, Sequence[int]] | Iterable[str]
"""Sizes for what an ONNX model leaves open, by name: a mapping, or texts such as ``"input=1x3x224x224"``."""


Values = Mapping[str, Any] | Iterable[str]
"""Values of inputs that are the same in every run, by name: a mapping, or texts such as ``"sr=16000"``."""


def load(source: Any, shapes: Shapes = (), *, values: Values = (), example: Any = None) -> Model:
    """What is in a file, the model called ``zoo:NAME``, or a model that is in memory.

    - ``zoo:NAME``, ``.onnx``, an ``onnx.ModelProto``, ``.xml`` (OpenVINO's IR), an ``openvino.Model``: a
      :class:`Network`
    - ``.pt2``, an ``ExportedProgram``, a ``torch.nn.Module`` with an example: a :class:`Network`, through OpenVINO;
      ``torch:FILE.pt2`` the ops as PyTorch exported them, for its own pipelines (:mod:`loadmaster.torch`)
    - ``.json``: a graph file gives a :class:`Graph`, a workload a :class:`Workload`, a problem, a profile or a plan a
      :class:`Problem`

    A problem file says nothing about the execution model: it comes as ``concurrent``. ``openvino:FILE`` reads a
    model through OpenVINO, ``layers:FILE`` counts every layer of its IR.

    Parameters
    ----------
    shapes : for models, sizes of what they leave open (:func:`loadmaster.graph.load_onnx`,
        :func:`loadmaster.graph.load_openvino`).
    values : for models, values of inputs that are the same in every run, e.g. ``{"sr": 16000}``: such an input
        becomes a constant, and what depends on it is folded.
    example : for a ``torch.nn.Module``, an example of its inputs: a tensor, a tuple of them, or a dict.

    Raises
    ------
    InputError : the file does not exist, is none of these, or is not valid.
    """
    given = Given(shapes, values)
    if not isinstance(source, str | Path):
        return _loaded_object(source, given, example)
    if example is not None:
        raise InputError(f"an example is given for {source}, which is no torch.nn.Module: leave it out")
    text = str(source)
    scheme, file = _scheme(text)
    if scheme == "torch":
        if given or given.constants:
            raise InputError(f"shapes or values are given for {text}, whose inputs are fixed: leave them out")
        from loadmaster.graph.torch import capture

        return capture(file).network()
    if scheme is not None:
        return load_openvino(file, given, counting="layers" if scheme == "layers" else "ops")
    if text.lower().endswith(".onnx"):
        return load_onnx(source, given)
    if given or given.constants:
        raise InputError(
            f"shapes or values are given for {text}, which is not an ONNX model, nor one of OpenVINO or "
            "PyTorch: leave them out"
        )
    if text.startswith("zoo:"):
        from loadmaster import zoo

        return zoo.model(text.removeprefix("zoo:"))
    data = read_json(source, "a model, a workload, a graph, a problem or a plan")
    with named(text):
        return _parsed(data, text)


def _loaded_object(source: Any, given: Given, example: Any) -> Model:
    """A model that is in memory; libraries are told by the name of the class, none is imported for that."""
    if isinstance(source, Graph | Network | Workload | Problem):
        if given or given.constants or example is not None:
            raise InputError(
                "shapes, values or an example are given for what is loaded already: leave them out"
            )
        return source
    home = type(source).__module__.partition(".")[0]
    if home == "onnx":
        return load_onnx(source, given)
    known = home in ("openvino", "torch") or any(
        kind.__module__.startswith("torch.") for kind in type(source).__mro__
    )
    if not known:
        raise InputError(
            f"a {type(source).__name__} cannot be loaded: give a file, zoo:NAME, a torch.nn.Module with an example, an "
            "ExportedProgram, an openvino.Model or an onnx.ModelProto"
        )
    return load_openvino(source, given, example=example)


def _parsed(data: Any, text: str) -> Model:
    """What parsed JSON holds."""
    if is_graph(data):
        return parse_graph(data, text)
    if is_problem(data):
        return parse_problem(data, text, Concurrent())
    if is_plan(data):
        return Plan.parse(data, text).problem()
    if is_profile(data):
        return parse_profile(data, text)
    if is_workload(data):
        return parse_workload(data, text)
    if is_split(data):
        raise InputError(
            f"{text}: is a split of a workload: give the workload itself, and the split as the placement",
            option="--placement",
        )
    raise InputError(
        f"{text}: is not a workload, a graph, a problem or a plan, nor called *.onnx, *.xml or *.pt2"
    )


def _scheme(text: str) -> tuple[str | None, str]:
    """How OpenVINO or PyTorch is to read a file, None where neither is to."""
    scheme, separator, file = text.partition(":")
    if separator and scheme in ("openvino", "layers", "torch"):
        return scheme, file
    return ("openvino", text) if text.lower().endswith((".xml", ".pt2")) else (None, text)


def problem(
    source: Any,
    cluster: str | Cluster | None = None,
    model: str | ExecutionModel | None = None,
    *,
    costs: str | Path | None = None,
    scale_to: str | Mapping[str, float] | None = None,
    precision: str | None = None,
    shapes: Shapes = (),
    values: Values = (),
    pins: Iterable[str] = (),
    forbids: Iterable[str] = (),
    pin_outputs: bool = False,
    **settings: str | int | None,
) -> Problem:
    """The problem of placing ``source`` under an execution model.

    Parameters
    ----------
    source : a file, ``zoo:NAME``, or whatever else :func:`load` takes or has returned.
    cluster : for a graph alone, the devices (a preset's name or a TOML file, by default ``2acc+1cpu``); op
        times follow from their speeds. Workloads and problems bring their devices.
    costs : for a graph alone, a CSV or JSON table of op times per device, in place of the speeds.
    scale_to : for a graph alone, what all ops together take on a device (``"cpu=0.0128,gpu=12ms"``): its op
        times are multiplied to meet that.
    precision : for a graph alone, the number format whose peak speed counts, by default ``fp32``.
    shapes, values : for a model, sizes of what it leaves open, and values of inputs that never change (:func:`load`).
    model : ``serial``, ``concurrent``, ``pipeline`` or ``offload``, also with settings (``pipeline:chain``). By
        default ``pipeline`` for workloads, what the problem says for problems and plans, and ``concurrent`` for all
        else.
    pins, forbids : rules ``"ops=device"``; ops by name or regular expression.
    pin_outputs : for a network, pin its outputs to the host, where its inputs always are.
    settings : settings of the execution model; None keeps the default.
    """
    loaded = load(source, shapes, values=values)
    if cluster is not None and not isinstance(loaded, Graph | Network):
        what = "a workload" if isinstance(loaded, Workload) else "a problem"
        raise InputError(f"a cluster is given for {what}, which brings its own devices: leave it out")
    if (costs or scale_to or precision) and isinstance(loaded, Workload | Problem):
        what = "a workload" if isinstance(loaded, Workload) else "a problem"
        raise InputError(f"costs, a scale or a precision is given for {what}, which brings its own op times")
    if isinstance(loaded, Problem):
        found = loaded.with_model(_execution_model(model, settings, default=loaded.model))
    elif isinstance(loaded, Workload):
        found = workload_problem(loaded, _execution_model(model, settings, default=Pipeline()))
    else:
        where = cluster if isinstance(cluster, Cluster) else load_cluster(cluster or DEFAULT_CLUSTER)
        chosen = _execution_model(model, settings, default=Concurrent())
        entry = loaded if isinstance(loaded, Network) else Network(loaded)
        known = _costs(entry.graph, where, costs, scale_to, precision or "fp32")
        found = Problem.make(
            entry.graph,
            where,
            chosen,
            time=known.time,
            colocation=entry.colocation,
            pins=dict.fromkeys((*entry.inputs, *(entry.outputs if pin_outputs else ())), where.host),
            provenance="; ".join((known.text, *entry.notes)),
            origin=known.origin,
        )
    return found.constrained(pins=pins, forbids=forbids)


def _costs(
    graph: Graph,
    cluster: Cluster,
    table: str | Path | None,
    totals: str | Mapping[str, float] | None,
    precision: str,
) -> Costs:
    """Op times from a table or from the devices' speeds, scaled where asked."""
    if table is None:
        found = estimate(graph, cluster, precision=precision)
    else:
        found = read_costs(table, graph, cluster, precision=precision)
    wanted = parse_totals(totals) if isinstance(totals, str) else totals or {}
    return scale_to(found, graph, cluster, wanted)


def _execution_model(
    model: str | ExecutionModel | None, settings: Mapping[str, str | int | None], default: ExecutionModel
) -> ExecutionModel:
    """The model of that name with fresh settings, or the given or default one with some settings changed."""
    if isinstance(model, str):
        base = named_model(model)
        return execution_model(base.name, **{**base.settings, **_given(settings)})
    base = model or default
    return execution_model(base.name, **{**base.settings, **_given(settings)})


def _given(settings: Mapping[str, str | int | None]) -> dict[str, str | int]:
    return {key: value for key, value in settings.items() if value is not None}
