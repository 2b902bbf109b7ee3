"""What is done with a plan: exported, run, served and checked; and the devices it runs on."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from loadmaster.api._machines import machines
from loadmaster.api._models import Shapes, Values
from loadmaster.api._replanning import make_ready, place_again
from loadmaster.errors import InputError
from loadmaster.graph import Given, load_openvino
from loadmaster.plan import Plan

if TYPE_CHECKING:
    from loadmaster.runtime import Cache, Finding, PlanRun
    from loadmaster.runtime.openvino import DeviceSpec, ModelProfile, Net


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


def devices(texts: Iterable[str] = (), *, on: str | None = None) -> dict[str, Any]:
    """What models can run on here, and the devices that ``texts`` describe, checked.

    ``on`` is a Ray cluster: then it is what every node of it has, under names such as ``left/cpu``.
    """
    from loadmaster.runtime import openvino

    given = tuple(texts)
    if on is not None:
        from loadmaster.runtime import ray

        with ray.connected(on) as nodes:
            specs, seen = openvino.parse_devices(given) if given else (), ray.see(nodes)
            with ray.Actors(nodes, specs):
                return {**ray.devices_of_nodes(seen), "virtual": [asdict(spec) for spec in specs]}
    found = openvino.available()
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
    on: str | None = None,
) -> ModelProfile:
    """Measure what every op takes on every device, and what a cut costs; ``problem()`` of it is to be placed.

    ``on`` is the Ray cluster that the devices are in (:func:`machines`).
    """
    given = Given(shapes, values)
    with machines(on, runtime) as by:
        found: ModelProfile = by.profile_model(
            model, devices, given, cache=cache, refresh=refresh, clock=clock
        )
    return found


def run(
    model: Any,
    plan: Plan,
    devices: Sequence[DeviceSpec] | None = None,
    shapes: Shapes = (),
    *,
    values: Values = (),
    samples: int = 30,
    baselines: bool = True,
    clock: str = "auto",
    runtime: str = "openvino",
    tolerance: str | None = None,
    budget: float = 60.0,
    example: Any = None,
    on: str | None = None,
    say: Callable[[str], None] = lambda _: None,
    replan: bool = False,
) -> PlanRun:
    """Run a plan: check its outputs against the unplaced model, then measure it beside its baselines.

    ``tolerance`` is how far a plan of lower precision may be from the f32 model: ``"3%"``, ``"cosine=0.999"``,
    ``"top1=0.99"`` (:class:`~loadmaster.runtime.Tolerance`); by default what the plan says, or what its precision
    itself changes. ``model`` is a file, or a model in memory as :func:`load` takes it (``example``: of the inputs of a
    ``torch.nn.Module``). ``on`` is the Ray cluster that the plan's devices are in (:func:`machines`): there a slow node
    is reported with the plan that would be better, and with ``replan`` the model is placed anew on what is left when a
    node dies. After ``budget`` seconds three clean samples of each are enough; ``say`` is told what is being done.
    ``clock`` is ``wall``, ``core``, or ``auto``: ``core`` where the machine is too busy for ``wall``.
    """
    from loadmaster.graph.openvino import model_file

    more = _replanning(on, replan)
    if replan:
        say("making ready to place the model anew")
        make_ready(plan.problem())
    with model_file(model, plan.given(shapes, values), example) as (file, given), machines(on, runtime) as by:
        found: PlanRun = by.run_plan(
            file,
            plan,
            devices,
            given,
            samples=samples,
            baselines=baselines,
            clock=clock,
            tolerance=tolerance,
            budget=budget,
            say=say,
            **more,
        )
    return found


def _replanning(on: str | None, replan: bool) -> dict[str, Any]:
    if on is not None:
        return {"place": place_again, "replan": replan}
    if replan:
        raise InputError("a plan is placed anew where machines fail: name their Ray cluster", option="--on")
    return {}


def open_plan(
    model: Any,
    plan: str | Path | Plan,
    devices: Sequence[DeviceSpec] | None = None,
    shapes: Shapes = (),
    *,
    values: Values = (),
    runtime: str | None = None,
    example: Any = None,
    on: str | None = None,
    replan: bool = False,
    slots: int | None = None,
) -> Net:
    """A model ready to run by a plan: ``with loadmaster.open(model, plan) as net: y = net(x)``.

    ``model`` is a file, or a model in memory as :func:`load` takes it (``example``: of the inputs of a
    ``torch.nn.Module``). ``runtime`` is ``openvino`` or ``onnxruntime``; by default the one that the plan was measured
    with. ``on`` is the Ray cluster that the plan's devices are in (:func:`machines`); with ``replan`` the model is
    placed anew on what is left when a node dies, and what was in flight is run again; ``net.replan(["node3/cpu"])``
    uses a node that has joined. ``slots`` requests may be in flight; by default one more than there are devices.
    """
    from loadmaster.graph.openvino import model_file
    from loadmaster.runtime import engine

    loaded = plan if isinstance(plan, Plan) else Plan.load(plan)
    _replanning(on, replan)
    if replan:
        make_ready(loaded.problem())
    if on is not None:
        with ExitStack() as opened:
            by = opened.enter_context(machines(on))
            file, given = opened.enter_context(model_file(model, loaded.given(shapes, values), example))
            spread: Net = by.open_plan(
                file,
                loaded,
                devices,
                given,
                place=place_again if replan else None,
                cache=cache() if replan else None,
                slots=slots,
            )
            spread.also_close(opened.pop_all().close)
            return spread
    if runtime is None:
        made_by = loaded.problem().cluster.devices[0].model.partition(" ")[0]
        runtime = "onnxruntime" if made_by == "onnxruntime" else "openvino"
    with model_file(model, loaded.given(shapes, values), example) as (file, given):
        found: Net = engine(runtime).open_plan(file, loaded, devices, given, slots=slots)
    return found


def lint(
    plan: Plan, model: str | Path | None = None, shapes: Shapes = (), *, values: Values = ()
) -> list[Finding]:
    """What is wrong or foolish about a plan, and whether it fits a model."""
    from loadmaster import runtime

    network = None
    if model is not None:
        counting = "layers" if "Constant" in plan.problem().graph.op_types else "ops"
        given = plan.given(shapes, values)
        network = load_openvino(model, given, counting=counting)
        if network.graph.digest != plan.graph_hash:
            from loadmaster.runtime.openvino import fitted

            with suppress(InputError):  # a plan for another model, which is a finding
                network, plan = fitted(model, plan, given)
    return runtime.lint(plan.problem(), plan.placement(), network)
