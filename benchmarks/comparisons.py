"""What ``benchmarks.methods`` compares: problems, methods with their budgets, and how the table is read."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from loadmaster import api, zoo
from loadmaster.errors import InputError
from loadmaster.placers import PLACERS
from loadmaster.problem import Problem
from loadmaster.problem.coarsening import coarsen
from loadmaster.studies import Scope
from loadmaster.studies.hsdag.problems import MODELS as STUDIED
from loadmaster.studies.hsdag.problems import kernel_network, machine, study_problem
from loadmaster.studies.hsdag.variants import PAPER_VARIANTS, VARIANTS

__all__ = ["COMPARISONS", "ZOO", "Comparison", "Entry", "Given"]


@dataclass(frozen=True)
class Given:
    """A problem: its name, and how it is made. Means are taken over groups of problems."""

    name: str
    make: Callable[[], Problem]
    group: str = ""


@dataclass(frozen=True)
class Entry:
    """A method with its settings and its budget."""

    name: str
    method: str = ""
    settings: Mapping[str, Any] = field(default_factory=dict)
    seconds: float | None = None
    evaluations: int | None = None
    simulated: int | None = None
    """At most so many ops: large graphs get fewer evaluations."""
    seeds: int = 1


@dataclass(frozen=True)
class Comparison:
    """``show``: ``ms``, ``ratio`` (to the best of the problem) or ``gap`` (per cent above it)."""

    problems: Sequence[Given]
    entries: Sequence[Entry]
    show: str = "ms"
    transposed: bool = False
    """Methods are rows and problems columns."""
    bounds: float | None = None
    """Seconds for each of the other bounds of ``concurrent``."""


def on(name: str, cluster: str, model: str = "concurrent") -> Given:
    """A model of the zoo."""
    return Given(f"{name} on {cluster}, {model}", partial(api.problem, f"zoo:{name}", cluster, model), model)


def few(*names: str) -> Iterator[Entry]:
    """Rules: they need a handful of evaluations."""
    for name in names:
        yield Entry(name, evaluations=1000)


# -- random graphs and the zoo -------------------------------------------------------------------------------


def layered(scope: Scope) -> Comparison:
    """Search against HEFT on random layered graphs, at equal seconds."""
    seconds = scope["budget"] or 4.0
    problems = [
        on(f"layered-{n}?width={width}&seed={n}", f"{k}acc+1cpu")
        for n in (100, 300, 1000)
        for k in (2, 4)
        for width in (4, 16)
    ]
    entries = [
        Entry("heft", seconds=seconds),
        Entry("random", seconds=seconds),
        Entry("local-search, random starts", "local-search", {"constructed": False}, seconds),
        Entry("local-search", seconds=seconds),
        Entry("annealing", seconds=seconds),
    ]
    return Comparison(problems, entries)


CONCURRENT = (
    ("layered-20?width=4", "2acc+1cpu"), ("layered-40?width=4", "2acc+1cpu"), ("layered-300", "2acc+1cpu"),
    ("layered-2000", "2acc+1cpu"), ("resnet-50", "hsdag"), ("inception-v3", "hsdag"), ("bert-base?seq=8", "hsdag"),
    ("transformer-xl-4", "p100-4"), ("wavenet-18", "p100-2"), ("rnnlm-2", "p100-2"), ("gnmt-2", "p100-2"),
)  # fmt: skip


def concurrent(scope: Scope) -> Comparison:
    """Every placer under ``concurrent`` at equal seconds, and every bound."""
    seconds = scope["budget"] or 5.0
    problems = [on(*case) for case in CONCURRENT]
    return Comparison(problems, [Entry(n, seconds=seconds) for n in PLACERS], "ratio", True, bounds=seconds)


ZOO = (
    ("inception-v3", "hsdag"), ("resnet-50", "hsdag"), ("bert-base?seq=8", "hsdag"), ("rnnlm-2", "p100-2"),
    ("rnnlm-4", "p100-4"), ("rnnlm-8", "p100-8"), ("gnmt-2", "p100-2"), ("gnmt-4", "p100-4"), ("gnmt-8", "p100-8"),
    ("transformer-xl-2", "p100-2"), ("transformer-xl-4", "p100-4"), ("transformer-xl-8", "p100-8"),
    ("inception-v3?batch=32&training=1", "p100-2"), ("inception-v3?batch=64&training=1", "p100-2"),
    ("amoebanet", "p100-4"), ("wavenet-18", "p100-2"), ("wavenet-36", "p100-4"),
    ("resnet-101?batch=32&training=1", "p100-2"), ("bert-large?batch=8&seq=384&training=1", "p100-4"),
    ("gpt2?batch=4&training=1", "p100-4"), ("gpt2", "p100-2"), ("gpt2-decode", "p100-2"),
    ("unet?batch=4&training=1", "p100-2"), ("switch-base-8?training=1", "p100-4"),
)  # fmt: skip
"""Model and cluster: first those of HSDAG, then those of GDP and GO, then all else."""
OPS_SIMULATED = 50_000_000


def zoo_models(scope: Scope) -> Comparison:
    """The zoo on its clusters, at equal evaluations: the table repeats exactly."""
    limit = scope["evaluations"] or 20_000
    methods = ("single", "expert", "heft", "local-search")
    entries = [Entry(name, evaluations=limit, simulated=OPS_SIMULATED) for name in methods]
    return Comparison([on(*case) for case in ZOO], entries)


SERIAL = (
    "inception-v3", "resnet-50", "resnet-101", "bert-base", "bert-base?seq=8", "bert-large", "gpt2", "gpt2-decode",
    "amoebanet", "unet", "wavenet-18", "switch-base-8", "resnet-50?batch=32&training=1", "bert-base?training=1",
    "gpt2?training=1",
)  # fmt: skip


def serial(scope: Scope) -> Comparison:
    """How tight ``min-cut`` is with three devices."""
    problems = [on(name, "hsdag", "serial") for name in SERIAL]
    return Comparison(problems, [*few("single"), Entry("min-cut", seconds=scope["budget"] or 30.0)])


def large(scope: Scope) -> Comparison:
    """Training steps of up to 51,417 ops on up to eight devices; annealing and hsdag with equal seconds."""
    seconds = scope["budget"] or 60.0
    problems = [
        on("gnmt-8", "p100-8"),
        on("gnmt-8", "p100-8", "pipeline"),
        on("gnmt-4", "p100-4"),
        on("transformer-xl-4", "p100-4"),
    ]
    entries = [
        *few("single", "metis", "expert", "heft", "gdp"),
        Entry("gdp, zero-shot", "gdp", {"samples": 0, "guard": False}, evaluations=1000),
        Entry("annealing", seconds=seconds),
        Entry("hsdag", settings={"colocate": "matching:1000", "batch": 16}, seconds=seconds),
    ]
    return Comparison(problems, entries)


def unseen(scope: Scope) -> Comparison:
    """``gdp`` on the published workloads: neither their graphs nor their costs were ever trained on."""
    if scope.workloads is None:
        raise InputError("unseen needs the published workloads: give their folder with --workloads")
    problems = [
        Given(f"{path.parent.name}/{path.stem}, {model}", partial(_workload, path, model), model)
        for path in sorted(scope.workloads.glob("msr/throughput/*/*.json"))
        for model in ("concurrent", "pipeline")
    ]
    entries = [
        *few("single", "metis", "expert", "heft", "gdp"),
        Entry("gdp, zero-shot", "gdp", {"samples": 0, "guard": False}, evaluations=1000),
        Entry("auto", seconds=scope["budget"] or 10.0),
    ]
    return Comparison(problems, entries, "ratio")


def _workload(path: Path, model: str) -> Problem:
    return api.problem(path, model=model)


# -- HSDAG ---------------------------------------------------------------------------------------------------


def _studied(level: str, model: str, *, igpu: bool = False) -> list[Given]:
    return [
        Given(f"{name}, {level}", partial(study_problem, name, level=level, igpu=igpu, model=model), level)
        for name in STUDIED
    ]


def hsdag(scope: Scope) -> Comparison:
    """HSDAG on the modelled machine of its paper, serial, beside the proven optimum."""
    evaluations = scope["evaluations"] or 20_000
    problems = [
        given
        for level in (scope["level"] or "kchain,kernels,ops").split(",")
        for given in _studied(level, "serial")
    ]
    methods = ("hsdag", "hsdag+polish", "random", "local-search")
    searches = [Entry(name, evaluations=evaluations, seeds=scope.seeds) for name in methods]
    return Comparison(problems, [Entry("min-cut", seconds=20.0), *few("single"), *searches], "gap")


def hsdag_concurrent(scope: Scope) -> Comparison:
    """The same with an iGPU and all devices at once; several runs of HSDAG against annealing."""
    evaluations, runs = scope["evaluations"] or 20_000, {"runs": scope["runs"]}
    entries = [
        *few("single", "heft"),
        Entry("annealing", seconds=scope["budget"] or 30.0),
        Entry("hsdag", settings=runs, evaluations=evaluations, seeds=scope.seeds),
        Entry("hsdag+polish", settings=runs, evaluations=evaluations),
    ]
    return Comparison(_studied(scope["level"] or "kernels", "concurrent", igpu=True), entries)


def ablations(scope: Scope) -> Comparison:
    """What each part of HSDAG is worth on finer graphs than the reproduction's."""
    paper = bool(scope["paper"])
    variants, method, usual = (PAPER_VARIANTS, "hsdag-paper", 500) if paper else (VARIANTS, "hsdag", 4000)
    evaluations = scope["evaluations"] or usual
    entries = [
        Entry(variant, method, change, evaluations=evaluations, seeds=scope.seeds)
        for variant, change in variants.items()
    ]
    model = str(scope["model"] or "serial")
    if model == "serial":
        entries.append(Entry("min-cut", seconds=20.0))
    problems = _studied(scope["level"] or "kernels", model, igpu=model == "concurrent")
    return Comparison(problems, entries, "gap", True)


SETTINGS = (
    "amoebanet?layers=6&training=0", "two-tower", "gpt2?layers=4", "transformer-xl-2?training=0", "resnet-101", "unet",
    "layered-100?width=6&seed=5", "wavenet-18?training=0",
)  # fmt: skip


def settings(scope: Scope) -> Comparison:
    """Settings of HSDAG on graphs that are none of the paper's, the GPU 1.1 and 2.2 times as fast as the CPU."""
    evaluations = scope["evaluations"] or 2000
    problems = [
        Given(f"{graph} {ratio}, {model}", partial(_scaled, graph, model, ratio), model)
        for graph in SETTINGS
        for model in ("concurrent", "serial")
        for ratio in (1.1, 2.2)
    ]
    entries = [Entry("auto", seconds=scope["budget"] or 3.0)]
    for text in scope["settings"]:
        pairs = dict(pair.split("=") for pair in text.split(",") if "=" in pair)
        method = pairs.pop("method", "hsdag")
        entries.append(Entry(text, method, pairs, evaluations=evaluations, seeds=scope.seeds))
    return Comparison(problems, entries, "gap", True)


def _scaled(graph: str, model: str, ratio: float) -> Problem:
    found = zoo.model(graph)
    network = found if graph.startswith("layered") else kernel_network(found)
    scale = {"cpu": 0.01 * ratio, "gpu": 0.01}
    return coarsen(api.problem(network, machine("cpu", "gpu"), model, scale_to=scale), "chain").coarse


COMPARISONS: dict[str, Callable[[Scope], Comparison]] = {
    "layered": layered,
    "concurrent": concurrent,
    "zoo": zoo_models,
    "serial": serial,
    "large": large,
    "unseen": unseen,
    "hsdag": hsdag,
    "hsdag-concurrent": hsdag_concurrent,
    "ablations": ablations,
    "settings": settings,
}
