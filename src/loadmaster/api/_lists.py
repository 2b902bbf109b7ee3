"""What there is to choose from: clusters, rules for groups, methods, and models of the zoo."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from loadmaster.api._models import problem
from loadmaster.graph import load_openvino
from loadmaster.hardware import Cluster, load_cluster, preset, preset_names
from loadmaster.placers import PLACERS, all_placers, installed_placers
from loadmaster.placers import parameters as parameters_of
from loadmaster.placers.frame.placer import Placer
from loadmaster.problem import MODELS, Problem
from loadmaster.problem.coarsening import Coarsening
from loadmaster.problem.coarsening import coarsen as make_groups


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
