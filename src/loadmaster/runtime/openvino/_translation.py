"""Plans for what our own reader makes of an ONNX file, in the names of what OpenVINO makes of it.

Both readers know the tensors of the file by name: a node of OpenVINO's goes where the op goes that makes the same
tensor. Nodes that have no counterpart, because OpenVINO makes several of one op or computes what our reader takes to
be constant, go with what reads them, or else with what they read.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from loadmaster.graph import Network
from loadmaster.graph.openvino import canonical_order
from loadmaster.plan import Plan
from loadmaster.problem import Placement, Problem

__all__ = ["translated"]


def translated(plan: Plan, ours: Network, theirs: Network, model: Any) -> Plan:
    """The plan for ``theirs``, the graph of the OpenVINO model, of a plan for ``ours``.

    The times of ops are those of the plan, each with the node that makes the tensor of the op.
    """
    old, placement = plan.problem(), plan.placement()
    graph = theirs.graph
    partner = _partners(ours, theirs, model)
    device = _spread(theirs, np.where(partner >= 0, placement.device[partner], -1))
    time = np.zeros((graph.n, old.devices))
    unsupported = np.isinf(old.time)
    first = np.unique(partner, return_index=True)
    for v, at in zip(first[0].tolist(), first[1].tolist(), strict=True):
        if v >= 0:
            time[at] = np.where(unsupported[v], 0.0, old.time[v])
    problem = Problem.make(
        graph,
        old.cluster,
        old.model,
        time=time,
        size=graph.tensor_bytes,
        latency=old.latency,
        rate=old.rate,
        send_latency=old.send_latency,
        send_rate=old.send_rate,
        recv_latency=old.recv_latency,
        recv_rate=old.recv_rate,
        capacity=np.full(old.devices, np.inf),  # that it fits was checked in the counting of the plan
        provenance=old.provenance,
    )
    at = Placement(device)
    document = {
        **plan.document,
        "placement": at.to_names(problem),
        "graph": {**plan.document["graph"], "hash": graph.digest},
        "problem": {},
    }
    for key in ("order", "call", "pieces"):
        document.pop(key, None)
    return TranslatedPlan(document, plan.source, problem, at)


class TranslatedPlan(Plan):
    """A plan that has its problem at hand: it is run, not saved."""

    def __init__(self, document: dict[str, Any], source: str, problem: Problem, placement: Placement) -> None:
        super().__init__(document, source)
        self._known = problem, placement

    def problem(self) -> Problem:
        """The problem of the translated ops."""
        return self._known[0]

    def placement(self) -> Placement:
        """Where the translated ops go."""
        return self._known[1]


def _partners(ours: Network, theirs: Network, model: Any) -> Any:
    """(ops of theirs,) the op of ours that makes the same tensor; -1 where there is none."""
    found = np.full(theirs.graph.n, -1, np.int64)
    outputs = {ours.graph.names[v]: v for v in ours.outputs}
    for node in canonical_order(model):
        name, kind = node.get_friendly_name(), node.get_type_name()
        v = theirs.graph.index.get(name)
        if v is None:
            continue
        tensors = sorted(tensor for output in node.outputs() for tensor in output.get_names())
        if kind == "Result":
            made = [outputs[tensor] for tensor in tensors if tensor in outputs]
        else:
            made = [ours.tensors[tensor] for tensor in tensors if tensor in ours.tensors]
            if not made and name in ours.graph.index:
                made = [ours.graph.index[name]]
        if made:
            found[v] = made[0]
    return found


def _spread(theirs: Network, known: Any) -> Any:
    """(ops,) the devices, for those without (-1) that of their first reader, or else of what they read."""
    graph, device = theirs.graph, known.astype(np.int32)
    order = graph.topological_order.tolist()
    for ptr, near in (graph.successors, graph.predecessors):
        for v in reversed(order) if near is graph.successors[1] else order:
            if device[v] < 0:
                beside = [device[u] for u in near[ptr[v] : ptr[v + 1]].tolist() if device[u] >= 0]
                device[v] = beside[0] if beside else -1
    default = device[device >= 0]
    return np.where(device < 0, default[0] if len(default) else 0, device).astype(np.int32)
