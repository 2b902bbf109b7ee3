"""What Loadmaster does, as functions; the command line is a thin layer over them.

>>> # problem = api.problem("zoo:layered-300", "2acc+1cpu", model="pipeline")
>>> # solution = api.place(problem, "local-search", budget=10.0)
>>> # solution.cost, solution.bound, solution.gap
"""

from __future__ import annotations

from loadmaster.api._lists import (
    broken_methods,
    cluster,
    clusters,
    coarsened,
    methods,
    methods_for,
    write_zoo_model,
    zoo_models,
)
from loadmaster.api._machines import machines
from loadmaster.api._models import DEFAULT_CLUSTER, Model, Shapes, Values, load, problem
from loadmaster.api._placements import read_placement
from loadmaster.api._placing import DEFAULT_METHOD, DEFAULT_SECONDS, Warmed, compare, configured, place, warm
from loadmaster.api._plans import (
    annotate_onnx,
    cache,
    devices,
    export,
    lint,
    one_device_per_core,
    open_plan,
    parse_devices,
    profile,
    run,
    write_openvino,
)
from loadmaster.api._training import finetune, pretrain, pretrain_hsdag
from loadmaster.api._watching import watch
from loadmaster.problem import evaluate

__all__ = [
    "DEFAULT_CLUSTER",
    "DEFAULT_METHOD",
    "DEFAULT_SECONDS",
    "Model",
    "Shapes",
    "Values",
    "Warmed",
    "annotate_onnx",
    "broken_methods",
    "cache",
    "cluster",
    "clusters",
    "coarsened",
    "compare",
    "configured",
    "devices",
    "evaluate",
    "export",
    "finetune",
    "lint",
    "load",
    "machines",
    "methods",
    "methods_for",
    "one_device_per_core",
    "open_plan",
    "parse_devices",
    "place",
    "pretrain",
    "pretrain_hsdag",
    "problem",
    "profile",
    "read_placement",
    "run",
    "warm",
    "watch",
    "write_openvino",
    "write_zoo_model",
    "zoo_models",
]
