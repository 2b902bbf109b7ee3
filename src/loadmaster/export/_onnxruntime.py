"""Plans for ONNX Runtime: annotations of nodes, and the session option that maps them to execution providers."""

from __future__ import annotations

import filecmp
import json
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

from loadmaster.errors import InputError
from loadmaster.plan import Plan
from loadmaster.problem import Problem

if TYPE_CHECKING:
    import onnx

__all__ = ["OPTION", "annotate", "layer_assignment", "write_annotated"]

OPTION = "session.layer_assignment_settings"
"""The session option (``SessionOptions.add_session_config_entry``)."""
KEY = "layer_ann"
"""The key of a node's metadata that the option's rules are matched against."""


def layer_assignment(plan: Plan, model: Any = None) -> str:
    """The value of the session option, and the annotation of every node, as JSON.

    ONNX Runtime treats an assignment as a hint: a node that the provider has no kernel for goes elsewhere, and one
    session uses one GPU of a kind.
    """
    problem = plan.problem()
    document = {OPTION: settings(problem), KEY: labels(plan)}
    return json.dumps(document, indent=1, ensure_ascii=False) + "\n"


def settings(problem: Problem) -> str:
    """``gpu(=device1); cpu(=device0)``: accelerators before CPUs."""
    kinds = [device.kind for device in problem.cluster.devices]
    rules = []
    for d, kind in enumerate(kinds):
        known = kind if kind in ("cpu", "gpu", "npu", "fpga") else "accelerator"
        same = [i for i, other in enumerate(kinds) if other == kind]
        many = known == "gpu" and len(same) > 1
        rules.append(f"{known}:{same.index(d)}(={_label(d)})" if many else f"{known}(={_label(d)})")
    return "; ".join(sorted(rules, key=lambda rule: rule.startswith("cpu")))


def labels(plan: Plan) -> dict[str, str]:
    """Op -> annotation."""
    problem, device = plan.problem(), plan.placement().device.tolist()
    return {name: _label(device[v]) for v, name in enumerate(problem.graph.names)}


def _label(d: int) -> str:
    return f"device{d}"


def annotate(plan: Plan, model: onnx.ModelProto) -> int:
    """Write the annotations into the nodes of a model; how many nodes were annotated.

    Nodes that the plan does not know, such as folded constants, are left to ONNX Runtime.

    Raises
    ------
    InputError : no node of the model is in the plan.
    """
    label = labels(plan)
    found = 0
    for node in model.graph.node:
        name = node.name if node.name in label else next(iter(node.output), "")
        if name not in label:
            continue
        kept = [prop for prop in node.metadata_props if prop.key != KEY]
        del node.metadata_props[:]
        node.metadata_props.extend(kept)
        node.metadata_props.add(key=KEY, value=label[name])
        found += 1
    if not found:
        raise InputError(f"{plan.source}: is a plan for a different model: it names none of the nodes")
    return found


def write_annotated(plan: Plan, source: str | Path, target: str | Path) -> int:
    """Copy an ONNX file with the annotations in it, and the files beside it that hold its weights.

    Raises
    ------
    InputError : the target is the model itself, or there are other weights where its weights would be copied to.
    """
    import onnx

    from loadmaster.files import check_regular, write_atomically

    source, target = Path(source), Path(target)
    if source.resolve() == target.resolve():
        raise InputError(f"{target}: is the model itself: give another file as --output")
    check_regular(source, "model")
    try:
        model: Any = onnx.load(str(source), load_external_data=False)
    except Exception as error:
        raise InputError(f"{source}: cannot be read as ONNX ({error})") from None
    found = annotate(plan, model)
    _copy_weights(_locations(model), source, target)
    write_atomically(target, model.SerializeToString())
    return found


def _locations(model: onnx.ModelProto) -> list[str]:
    """Files of weights, relative to the model."""
    from onnx.external_data_helper import _get_all_tensors, uses_external_data

    return sorted(
        {
            entry.value
            for tensor in _get_all_tensors(model)
            if uses_external_data(tensor)
            for entry in tensor.external_data
            if entry.key == "location"
        }
    )


def _copy_weights(locations: list[str], source: Path, target: Path) -> None:
    """A file of weights is looked for beside the model that names it."""
    for location in locations:
        here, there = source.parent / location, target.parent / location
        if not here.is_file():
            raise InputError(f"{source}: its weights in {location!r} are missing: put them beside it")
        if here.resolve() == there.resolve():
            continue
        if there.resolve() == target.resolve():
            raise InputError(f"{target}: would overwrite the weights in it: give another name as --output")
        if there.exists() and not filecmp.cmp(here, there, shallow=False):
            raise InputError(
                f"{there}: is there already, with other weights than {here}: give another folder as --output"
            )
        if not there.exists():
            there.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(here, there)
