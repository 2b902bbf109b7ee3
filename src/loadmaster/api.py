"""What Loadmaster does, as functions; the command line is a thin layer over them.

>>> # problem = api.problem("zoo:layered-300", "2acc+1cpu", model="pipeline")
>>> # solution = api.place(problem, "local-search", budget=10.0)
>>> # solution.cost, solution.bound, solution.gap
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, cast, get_type_hints

import msgspec
import numpy as np

from loadmaster.compiling import compilations
from loadmaster.errors import InputError, NoPlacementError, UnsupportedError
from loadmaster.files import check_writable, named, read_json, shown
from loadmaster.graph import Given, Graph, Network, is_graph, layered, load_onnx, load_openvino, parse_graph
from loadmaster.graph.workload import Split, Workload, is_split, is_workload, parse_split, parse_workload
from loadmaster.hardware import (
    Cluster,
    Costs,
    estimate,
    load_cluster,
    parse_totals,
    preset,
    preset_names,
    read_costs,
    scale_to,
)
from loadmaster.placers import PLACERS, all_placers, get_placer, installed_placers
from loadmaster.placers import parameters as parameters_of
from loadmaster.placers.frame.coarsened import place_coarse
from loadmaster.placers.frame.placer import Placer, Portfolio
from loadmaster.placers.frame.search import Budget, ProgressCallback
from loadmaster.placers.frame.searcher import Searcher
from loadmaster.plan import Plan, is_plan, is_profile, parse_profile, placement_from_document
from loadmaster.problem import (
    MODELS,
    Concurrent,
    Evaluator,
    ExecutionModel,
    Offload,
    Pipeline,
    Placement,
    Problem,
    Solution,
    evaluate,
    execution_model,
    is_problem,
    named_model,
    parse_problem,
    place_split,
    workload_problem,
)
from loadmaster.problem.coarsening import Coarsening
from loadmaster.problem.coarsening import coarsen as make_groups

if TYPE_CHECKING:
    from loadmaster.placers.learned.gdp.pretraining import Report
    from loadmaster.runtime import Cache, Finding, PlanRun
    from loadmaster.runtime.openvino import DeviceSpec, ModelProfile, Net

__all__ = [
    "Warmed",
    "compare",
    "configured",
    "evaluate",
    "load",
    "place",
    "problem",
    "read_placement",
    "warm",
]

DEFAULT_CLUSTER = "2acc+1cpu"
DEFAULT_METHOD = "auto"
DEFAULT_SECONDS = 30.0

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
    - ``.pt2``, an ``ExportedProgram``, a ``torch.nn.Module`` with an example: a :class:`Network`, through OpenVINO
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
    """How OpenVINO is to read a file, None where it is not to."""
    scheme, separator, file = text.partition(":")
    if separator and scheme in ("openvino", "layers"):
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


def place(
    problem: Problem,
    method: str | Placer = DEFAULT_METHOD,
    *,
    budget: float | None = None,
    evaluations: int | None = None,
    seed: int = 0,
    start: Placement | None = None,
    parameters: Mapping[str, Any] | None = None,
    coarsen: str | Coarsening | None = None,
    evaluator: Evaluator | None = None,
    on_progress: ProgressCallback | None = None,
) -> Solution:
    """The best placement that a method finds.

    Parameters
    ----------
    budget : seconds; 30 if nothing is given, no limit if only ``evaluations`` is.
    evaluations : the maximum number of evaluations; such a run repeats exactly for a seed.
    start : a placement to start from.
    parameters : hyper-parameters of the method, by name.
    coarsen : rules that put ops into groups, e.g. ``"constants,chain,matching:1000"``, or the groups
        themselves: the method places groups; cost and bound are those of the full problem
        (:mod:`loadmaster.problem.coarsening`).
    evaluator : what determines costs instead of the simulation, e.g. a
        :class:`~loadmaster.runtime.MeasuredEvaluator`; not with ``coarsen``.
    on_progress : called with the state of the search about ten times a second.

    Raises
    ------
    UnsupportedError : the method cannot handle the problem; the message says why.
    InfeasibleError : no placement satisfies the constraints.
    UndecidedError : the budget was used up before a feasible placement was known.
    """
    placer = configured(method, parameters or {})
    if not 0 <= seed < 2**63:
        raise InputError(f"a seed must be a whole number >= 0 and < 2**63, not {shown(seed)}")
    if coarsen is not None and evaluator is not None:
        raise InputError("an evaluator learns the costs of ops, so it cannot be used with coarsen")
    groups = make_groups(problem, coarsen) if isinstance(coarsen, str) else coarsen
    _require_support(placer, groups.coarse if groups else problem)
    if budget is None and evaluations is None:
        budget = DEFAULT_SECONDS
    limits = Budget(budget, evaluations)
    try:
        if budget is not None:
            _warm_up(get_placer("single"), problem)  # what an interrupt is answered with
            _warm_up(placer, problem)
        if groups is not None:
            return place_coarse(
                placer, groups, budget=limits, seed=seed, start=start, on_progress=on_progress
            )
        return placer.place(
            problem, budget=limits, seed=seed, start=start, evaluator=evaluator, on_progress=on_progress
        )
    except KeyboardInterrupt:
        # Nothing was known yet (kernels were being compiled, say): the best single device is known at once.
        found = get_placer("single").place(
            problem, budget=Budget(seconds=1.0), seed=seed, start=start, evaluator=evaluator
        )
        return replace(found, method=placer.name, parameters=parameters_of(placer), stopped="interrupted")


def _warm_up(placer: Placer, problem: Problem) -> None:
    """Place a tiny problem of the same kind, so that loading or compiling kernels does not count against the budget."""
    if isinstance(placer, Portfolio):
        for member in placer.members(problem):
            _warm_up(member, problem)
        return
    key = (placer.name, problem.model, problem.devices)
    if key in _warm:
        return
    _warm.add(key)
    graph = layered(24, width=4)
    rng = np.random.default_rng(0)
    # Numbers without pattern, so that no bound is met at once and every part of the method has its turn.
    tiny = Problem.make(
        graph,
        problem.cluster,
        problem.model,
        time=0.5 + rng.random((graph.n, problem.devices)),
        memory=np.zeros(graph.n),
        size=rng.random(graph.tensors),
        latency=rng.random((problem.devices, problem.devices)),
        rate=rng.random((problem.devices, problem.devices)),
    )
    # Training on it must leave no files behind.
    files = {field.name: "" for field in fields(cast(Any, placer)) if field.name in ("checkpoint", "log_dir")}
    placer = cast(Placer, replace(cast(Any, placer), **files))
    if placer.supports(tiny) is None:
        enough = placer.warm_up if isinstance(placer, Searcher) else None
        if placer.place(tiny, budget=Budget(evaluations=enough)).stopped == "interrupted":
            raise KeyboardInterrupt  # meant for the problem at hand, of which nothing is known yet


_warm: set[tuple[str, ExecutionModel, int]] = set()


class Warmed(NamedTuple):
    """What was made ready for an execution model: its text, kernels that had to be compiled, and seconds."""

    model: str
    kernels: int
    seconds: float


def warm(
    method: str | Placer = DEFAULT_METHOD,
    models: Iterable[str] = ("serial", "concurrent", "pipeline", "pipeline:chain", "offload"),
    *,
    cluster: str | Cluster | None = None,
    on_start: Callable[[str], None] = lambda model: None,
) -> list[Warmed]:
    """Compile ahead of time what a method needs, for each of some execution models that it supports.

    The kernels are kept beside the modules (or where ``NUMBA_CACHE_DIR`` says), for all later processes. A tiny
    problem is placed and evaluated on the cluster (by default ``2acc+1cpu``); nothing else is done. Some kernels are
    made for a number of devices, so that it matters how many the cluster has.

    Raises
    ------
    UnsupportedError : the method supports none of the models.
    """
    placer, done, reason = configured(method), list[Warmed](), ""
    for text in models:
        example = problem("zoo:layered-24", cluster, model=text)
        why = placer.supports(example)
        if why is not None:
            reason = reason or why
            continue
        on_start(text)
        began = time.perf_counter()
        with compilations() as compiled:
            _warm_up(get_placer("single"), example)
            _warm_up(placer, example)
            found = get_placer("single").place(example, budget=Budget(evaluations=1))
            evaluate(example, found.placement)
        done.append(Warmed(text, compiled.count, time.perf_counter() - began))
    if not done:
        raise UnsupportedError(f"the method {placer.name} supports none of these models: {reason}")
    return done


def compare(
    problem: Problem,
    methods: Sequence[str | Placer],
    *,
    budget: float | None = None,
    evaluations: int | None = None,
    seed: int = 0,
    coarsen: str | Coarsening | None = None,
    on_progress: ProgressCallback | None = None,
) -> list[Solution | NoPlacementError]:
    """What each method finds within the same budget, in the order of the methods.

    A method that finds no feasible placement gives its error in place of a solution; if none finds any, the
    first error is raised. An interrupt ends the comparison after the method that it stopped.
    """
    placers = [configured(method) for method in methods]
    if not placers:
        raise InputError("there is no method to compare")
    groups = make_groups(problem, coarsen) if isinstance(coarsen, str) else coarsen
    for placer in placers:
        _require_support(placer, groups.coarse if groups else problem)
    results: list[Solution | NoPlacementError] = []
    for placer in placers:
        try:
            solution = place(
                problem,
                placer,
                budget=budget,
                evaluations=evaluations,
                seed=seed,
                coarsen=groups,
                on_progress=on_progress,
            )
        except NoPlacementError as error:
            results.append(error)
            continue
        results.append(solution)
        if solution.stopped == "interrupted":
            break
    errors = [result for result in results if isinstance(result, NoPlacementError)]
    if len(errors) == len(results):
        raise errors[0]
    return results


def configured(method: str | Placer, parameters: Mapping[str, Any] | None = None) -> Placer:
    """The placer called ``method`` with some hyper-parameters changed; strings are parsed as the field's type.

    Raises
    ------
    InputError : the method or a parameter is unknown, or a value has the wrong type.
    """
    placer = get_placer(method) if isinstance(method, str) else method
    instance = cast(Any, placer)
    hints = get_type_hints(type(placer))
    known = [field.name for field in fields(instance)]
    changes = {}
    for key, value in (parameters or {}).items():
        if key not in known:
            its = f"its parameters are {', '.join(known)}" if known else "it has none"
            raise InputError(f"the method {placer.name} has no parameter {key!r}: {its}")
        try:
            changes[key] = msgspec.convert(value, hints[key], strict=not isinstance(value, str))
        except msgspec.ValidationError as error:
            raise InputError(
                f"the parameter {key}={value!r} of the method {placer.name} is invalid: {error}"
            ) from None
    return cast(Placer, replace(instance, **changes))


def _require_support(placer: Placer, problem: Problem) -> None:
    reason = placer.supports(problem)
    if reason is not None:
        raise UnsupportedError(f"the method {placer.name} cannot place this problem: {reason}")


# -- placements from files -----------------------------------------------------------------------------------


def read_placement(
    path: str | Path,
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
) -> tuple[Problem, Placement]:
    """A placement from a file, with the problem that it refers to.

    The file is a plan, an object ``{"placement": {op: device}}`` (``order`` and ``call`` where wanted), or a
    split of a workload. Groups of a split beyond the workload's devices become extra devices of the problem,
    which is a violation. The other arguments are those of :func:`problem`; where ``source`` is a file, a plan
    also brings its execution model, and for a graph alone its devices, unless others are asked for.

    Raises
    ------
    InputError : the file is none of these, is a plan for another model, or does not fit the ops and devices.
    """
    data = read_json(path, "a placement")
    plan = Plan.parse(data, str(path)) if is_plan(data) else None
    if plan is not None and isinstance(source, str | Path):
        values, shapes = values or plan.values, shapes or plan.shapes
    loaded = load(source, shapes, values=values)
    if plan is not None:
        graph = loaded if isinstance(loaded, Graph) else loaded.graph
        if plan.graph_hash != graph.digest:
            raise InputError(
                f"{path}: is a plan for a different model ({plan.graph_name}, {plan.graph_hash[:12]}) than "
                f"{graph.name} ({graph.digest[:12]})"
            )
        if model is None and isinstance(source, str | Path):
            model = plan.problem().model
        if cluster is None and isinstance(loaded, Graph | Network):
            cluster = plan.problem().cluster
    target = problem(
        loaded,
        cluster,
        model,
        costs=costs,
        scale_to=scale_to,
        precision=precision,
        shapes=(),
        values=(),
        pins=pins,
        forbids=forbids,
        pin_outputs=pin_outputs,
        **settings,
    )
    if is_split(data):
        if not isinstance(loaded, Workload):
            raise InputError(f"{path}: is a split of a workload, but {target.graph.name} is not a workload")
        return _split_placement(loaded, target, parse_split(data, str(path)), str(path))
    if not isinstance(data, dict) or "placement" not in data:
        raise InputError(f"{path}: is not a plan, a split, or an object with a 'placement' of ops to devices")
    if isinstance(loaded, Workload) and isinstance(target.model, Offload):
        data = {**data, "placement": _pooled(data["placement"], loaded.cpus)}
    return target, placement_from_document(data, target, str(path))


def _pooled(placement: Any, cpus: int) -> Any:
    """A placement on a workload's CPUs, which the ``offload`` model takes as the one device ``cpu0``."""
    if not isinstance(placement, dict):
        return placement
    pool = {f"cpu{i}" for i in range(cpus)}
    return {
        op: "cpu0" if isinstance(device, str) and device in pool else device
        for op, device in placement.items()
    }


def _split_placement(
    workload: Workload, target: Problem, split: Split, source: str
) -> tuple[Problem, Placement]:
    """A split as a placement; pins and forbids survive when the problem is widened by surplus devices."""
    try:
        wide, placement = place_split(workload, target, split)
    except InputError as error:
        raise InputError(f"{source}: {error}") from None
    if wide is target:
        return target, placement
    place_of = np.array([wide.cluster.index[name] for name in target.cluster.names])
    forbidden = wide.forbidden.copy()
    forbidden[:, place_of] = target.forbidden
    pin = np.where(target.pin >= 0, place_of[target.pin], -1).astype(np.int32)
    return replace(wide, pin=pin, forbidden=forbidden), placement


# -- what there is -------------------------------------------------------------------------------------------

__all__ += [
    "broken_methods",
    "cluster",
    "clusters",
    "coarsened",
    "methods",
    "methods_for",
    "write_zoo_model",
    "zoo_models",
]


def cluster(name: str | Path) -> Cluster:
    """A cluster: a preset by name, or a TOML file."""
    return load_cluster(name)


def clusters() -> list[Cluster]:
    """The presets."""
    return [preset(name) for name in preset_names()]


def coarsened(problem: Problem, rules: str) -> Coarsening:
    """The problem with ops in groups, by rules such as ``"colour,chain"``."""
    return make_groups(problem, rules)


def methods() -> list[dict[str, Any]]:
    """Every method: what it is, its parameters, and the execution models that it supports or why not.

    Methods of other packages say which one they are from (``package``).
    """
    examples = {name: problem("zoo:layered-4", model=name) for name in MODELS}

    def described(placer: Placer) -> dict[str, Any]:
        reasons = {model: placer.supports(example) for model, example in examples.items()}
        return {
            "name": placer.name,
            "summary": placer.summary,
            "models": [model for model, reason in reasons.items() if reason is None],
            "unsupported": {model: reason for model, reason in reasons.items() if reason is not None},
            "parameters": parameters_of(placer),
        }

    theirs = [
        {**described(found.placer), "package": found.package}
        for found in installed_placers(PLACERS)
        if found.placer is not None
    ]
    return [described(placer) for placer in PLACERS.values()] + theirs


def broken_methods() -> list[str]:
    """Why methods that other packages announce cannot be used, a sentence each."""
    return [found.problem for found in installed_placers(PLACERS) if found.placer is None]


def methods_for(problem: Problem) -> list[str]:
    """The names of the methods that support a problem."""
    return [name for name, placer in all_placers().items() if placer.supports(problem) is None]


def zoo_models() -> list[dict[str, Any]]:
    """The models of the zoo, and whether :func:`write_zoo_model` writes them."""
    from loadmaster import zoo

    return [
        {
            "name": name,
            "ops": model.graph.n,
            "parameters": model.parameters,
            "macs": model.macs,
            "runs": name in zoo.EXPORTABLE,
        }
        for name, model in ((name, zoo.model(name)) for name in zoo.names())
    ]


def write_zoo_model(name: str, path: str | Path, *, seed: int = 0) -> dict[str, Any]:
    """Write a model of the zoo as an OpenVINO IR that runs, with random weights; what it holds."""
    from loadmaster import zoo

    zoo.export_model(name, path, seed=seed)
    layers, ops = load_openvino(path, counting="layers").graph, load_openvino(path).graph
    return {
        "model": name,
        "file": str(path),
        "layers": layers.n,
        "layer_edges": len(layers.arcs[0]),
        "ops": ops.n,
        "edges": len(ops.arcs[0]),
        "hash": ops.digest,
    }


# -- training the policy of gdp ------------------------------------------------------------------------------

__all__ += ["finetune", "pretrain"]


def pretrain(
    out: str | Path,
    *,
    minutes: float | None = None,
    generations: int | None = None,
    seed: int = 0,
    left_out: Sequence[str] = (),
    resume: bool = False,
    context: bool = True,
    log_dir: str = "",
    workers: int | None = None,
    on_report: Callable[[Report], None] = lambda report: None,
) -> dict[str, Any]:
    """Train the policy of ``gdp`` on random graphs and the zoo's families; how the weights in ``out`` were made.

    The state of the run is in ``out.state`` while it lasts; ``resume`` goes on from there.
    """
    from loadmaster.placers.learned.gdp import pretraining, save_weights

    state = f"{out}.state"
    check_writable(out)
    check_writable(state)
    weights = pretraining.pretrain(
        minutes=minutes,
        generations=generations,
        seed=seed,
        settings=pretraining.Evolution(context=context),
        left_out=left_out,
        state=state,
        resume=resume,
        log_dir=log_dir,
        workers=workers,
        on_report=on_report,
    )
    save_weights(out, weights)
    return {"weights": str(out), "sha256": weights.digest, **weights.recipe}


def finetune(
    problem: Problem,
    out: str | Path,
    *,
    weights: str = "",
    steps: int = 50,
    seed: int = 0,
    workers: int | None = None,
    on_report: Callable[[Report], None] = lambda report: None,
) -> dict[str, Any]:
    """Fine-tune the policy of ``gdp`` on one problem; the costs before and after. The weights go to ``out``."""
    from loadmaster.placers.learned.gdp import Gdp, pretraining, save_weights

    before = Gdp(weights=weights, samples=0, guard=False)
    first = before.place(problem, budget=Budget())
    tuned, cost = pretraining.finetune(
        problem, before.read(), steps=steps, seed=seed, workers=workers, on_report=on_report
    )
    save_weights(out, tuned)
    return {"weights": str(out), "sha256": tuned.digest, "zero_shot": first.cost, "cost": cost}


# -- plans for other programs, and runs for real -------------------------------------------------------------

__all__ += ["annotate_onnx", "cache", "devices", "export", "lint"]
__all__ += ["one_device_per_core", "open_plan", "parse_devices", "profile", "run", "write_openvino"]


def export(plan: Plan, format: str, model: Any = None) -> str:
    """The plan in another program's format (:data:`loadmaster.export.EXPORTERS`), as text."""
    from loadmaster import export as exporters

    return exporters.export(plan, format, model)


def annotate_onnx(plan: Plan, model: str | Path, output: str | Path) -> int:
    """Copy an ONNX model with the plan written into its nodes, for ONNX Runtime; how many nodes have a device."""
    from loadmaster import export as exporters

    return exporters.write_annotated(plan, model, output)


def write_openvino(plan: Plan, model: Any, output: str | Path, shapes: Shapes = ()) -> int:
    """Write a model as OpenVINO's IR with the device of every node beside it, for HETERO; how many nodes."""
    from loadmaster import export as exporters

    return exporters.write_openvino(plan, model, output, shapes)


def parse_devices(texts: Iterable[str] = ()) -> tuple[DeviceSpec, ...]:
    """Devices to run on, from texts such as ``"B=cpu:core=1,precision=bf16"`` or TOML files."""
    from loadmaster.runtime import openvino

    return openvino.parse_devices(texts)


def one_device_per_core() -> tuple[DeviceSpec, ...]:
    """Devices to run on where none are named."""
    from loadmaster.runtime import openvino

    return openvino.one_per_core()


def devices(texts: Iterable[str] = ()) -> dict[str, Any]:
    """What models can run on here, and the devices that ``texts`` describe, checked."""
    from loadmaster.runtime import openvino

    given, found = tuple(texts), openvino.available()
    virtual = openvino.Devices(openvino.parse_devices(given)).document() if given else []
    return {"available": found, "virtual": virtual}


def cache(path: str | Path | None = None) -> Cache:
    """What was measured before, in a file or in the user's cache folder."""
    from loadmaster.runtime import Cache

    return Cache(path)


def profile(
    model: str | Path,
    devices: Sequence[DeviceSpec],
    shapes: Shapes = (),
    *,
    values: Values = (),
    cache: Cache | None = None,
    refresh: bool = False,
    clock: str = "wall",
    runtime: str = "openvino",
) -> ModelProfile:
    """Measure what every op takes on every device, and what a cut costs; ``problem()`` of it is to be placed."""
    from loadmaster.runtime import engine

    given = Given(shapes, values)
    found: ModelProfile = engine(runtime).profile_model(
        model, devices, given, cache=cache, refresh=refresh, clock=clock
    )
    return found


def run(
    model: str | Path,
    plan: Plan,
    devices: Sequence[DeviceSpec] | None = None,
    shapes: Shapes = (),
    *,
    values: Values = (),
    samples: int = 30,
    baselines: bool = True,
    clock: str = "wall",
    runtime: str = "openvino",
    tolerance: str | None = None,
) -> PlanRun:
    """Run a plan: check its outputs against the unplaced model, then measure it beside its baselines.

    ``tolerance`` is how far a plan of lower precision may be from the f32 model: ``"3%"``, ``"cosine=0.999"``,
    ``"top1=0.99"`` (:class:`~loadmaster.runtime.Tolerance`); by default what the plan says, or what its precision
    itself changes.
    """
    from loadmaster.runtime import engine

    found: PlanRun = engine(runtime).run_plan(
        model,
        plan,
        devices,
        Given(shapes, values or plan.values),
        samples=samples,
        baselines=baselines,
        clock=clock,
        tolerance=tolerance,
    )
    return found


def open_plan(
    model: str | Path,
    plan: str | Path | Plan,
    devices: Sequence[DeviceSpec] | None = None,
    shapes: Shapes = (),
    *,
    values: Values = (),
    runtime: str | None = None,
) -> Net:
    """A model ready to run by a plan: ``with loadmaster.open(model, plan) as net: y = net(x)``.

    ``runtime`` is ``openvino`` or ``onnxruntime``; by default the one that the plan was measured with.
    """
    from loadmaster.runtime import engine

    loaded = plan if isinstance(plan, Plan) else Plan.load(plan)
    if runtime is None:
        made_by = loaded.problem().cluster.devices[0].model.partition(" ")[0]
        runtime = "onnxruntime" if made_by == "onnxruntime" else "openvino"
    found: Net = engine(runtime).open_plan(model, loaded, devices, Given(shapes, values or loaded.values))
    return found


def lint(
    plan: Plan, model: str | Path | None = None, shapes: Shapes = (), *, values: Values = ()
) -> list[Finding]:
    """What is wrong or foolish about a plan, and whether it fits a model."""
    from loadmaster import runtime

    network = None
    if model is not None:
        counting = "layers" if "Constant" in plan.problem().graph.op_types else "ops"
        network = load_openvino(model, shapes or plan.shapes, values=values or plan.values, counting=counting)
        if network.graph.digest != plan.graph_hash:
            from loadmaster.runtime.openvino import fitted

            with suppress(InputError):  # a plan for another model, which is a finding
                network, plan = fitted(model, plan, Given(shapes, values or plan.values))
    return runtime.lint(plan.problem(), plan.placement(), network)
