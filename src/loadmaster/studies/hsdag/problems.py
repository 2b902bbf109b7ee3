"""The modelled machine and the graphs of our study of the HSDAG paper.

The networks are those of the zoo. What OpenVINO runs as one kernel is one op here (``kernels``): batch norm is
folded into the convolution before it, activations and residual sums are fused into what comes before, biases
and activations into matrix products, scale, mask and softmax of attention into one. ``kchain`` contracts chains
of those (the co-location rule of the paper). Op times follow from the preset ``hsdag-study`` and are scaled so
that CPU-only and GPU-only take what the paper's table 2 says, less a fixed time per request.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from loadmaster import api, zoo
from loadmaster.arrays import IntArray
from loadmaster.graph import Graph, Network
from loadmaster.hardware import Cluster, load_cluster
from loadmaster.problem import Placement, Problem, Serial
from loadmaster.problem.coarsening import coarsen, contract

__all__ = ["MODELS", "everything_on", "kernel_network", "machine", "study_problem"]


MODELS = {
    "inception-v3": ("inception-v3", 0.0128, 0.0120, 150e-6),
    "resnet-50": ("resnet-50", 0.0160, 0.00781, 150e-6),
    "bert-base": ("bert-base?seq=8", 0.00638, 0.00277, 75e-6),
}
"""Name -> zoo model, seconds of CPU-only and GPU-only in the paper's table 2, fixed seconds per request."""

FUSED = {
    "BatchNormalization": ("Conv",),
    "Relu": ("Conv", "BatchNormalization", "Add"),
    "Gelu": ("Add",),
    "Tanh": ("Add",),
    "Add": ("MatMul", "BatchNormalization", "Mul"),
    "Softmax": ("Add",),
}
"""Ops that are fused into an op of these types which they read and nobody else does."""


def machine(*devices: str) -> Cluster:
    """The preset ``hsdag-study`` with these devices only."""
    whole = load_cluster("hsdag-study")
    keep = [whole.index[name] for name in devices]
    return replace(
        whole,
        devices=tuple(whole.devices[d] for d in keep),
        links=tuple(tuple(whole.links[d][e] for e in keep) for d in keep),
        host=keep.index(whole.host),
    )


def study_problem(
    name: str, *, level: str = "kchain", igpu: bool = False, model: str = "serial", whole: bool = False
) -> Problem:
    """One of :data:`MODELS` as ``ops``, ``kernels`` or ``kchain`` on CPU and dGPU, and the iGPU if asked for.

    The op times on a device add up to its time in the paper, less the fixed time; with ``whole`` it is the cost of
    placing everything there that is that, bringing the input over and the output back included.
    """
    source, cpu, gpu, base = MODELS[name]
    found = zoo.model(source)
    network = found if level == "ops" else kernel_network(found)
    cluster = machine("cpu", "igpu", "gpu") if igpu else machine("cpu", "gpu")
    wanted = {"cpu": cpu - base, "gpu": gpu - base}
    scale = dict(wanted)
    for _ in range(3 if whole else 0):  # under ``concurrent`` transfers may overlap a little
        problem = _coarsened(api.problem(network, cluster, model, scale_to=scale), level)
        for device, seconds in wanted.items():
            scale[device] += seconds - everything_on(problem, device)
    return _coarsened(api.problem(network, cluster, model, scale_to=scale), level)


def everything_on(problem: Problem, device: str) -> float:
    """The cost of placing everything on a device but what is pinned elsewhere."""
    at = np.where(problem.pin >= 0, problem.pin, problem.cluster.index[device]).astype(np.int32)
    return api.evaluate(problem, Placement(at)).cost


def _coarsened(problem: Problem, level: str) -> Problem:
    return coarsen(problem, "chain").coarse if level == "kchain" else problem


def kernel_network(network: Network) -> Network:
    """The network whose ops are the kernels that a runtime makes of its ops.

    A kernel reads and writes only what enters and leaves it; its type is that of its main op.
    """
    graph = network.graph
    cluster = load_cluster("2acc+1cpu")
    bare = Problem.make(graph, cluster, Serial(), time=np.ones((graph.n, len(cluster))))
    step = contract(bare, _kernels(graph))
    fused, group = step.coarse.graph, step.group_of
    inside = group[graph.tensor_producer[graph.edge_tensor]] == group[graph.consumer_op]
    size = graph.tensor_bytes[graph.edge_tensor]
    read = np.bincount(group[graph.consumer_op[inside]], size[inside], fused.n)
    kept = np.ones(graph.tensors, np.bool_)  # a tensor that only its own kernel reads is never written
    kept[graph.edge_tensor[inside]] = False
    kept[graph.edge_tensor[~inside]] = True
    gone = graph.tensor_producer[~kept]
    written = np.bincount(group[gone], graph.tensor_bytes[~kept], fused.n)
    main = {int(g): graph.op_types[v] for v, g in reversed(list(enumerate(group))) if graph.flops[v] > 0}
    for v, g in enumerate(group.tolist()):
        if graph.op_types[v] in ("Conv", "MatMul"):
            main[g] = graph.op_types[v]
    fused = replace(
        fused,
        op_types=tuple(main.get(g, fused.op_types[g]) for g in range(fused.n)),
        bytes_read=np.maximum(fused.bytes_read - read, 0.0),
        bytes_written=np.maximum(fused.bytes_written - written, 0.0),
    )
    colocation = {tuple(sorted({int(group[v]) for v in ops})) for ops in network.colocation}
    return Network(
        fused,
        colocation=tuple(sorted(ops for ops in colocation if len(ops) > 1)),
        inputs=tuple(int(group[v]) for v in network.inputs),
        outputs=tuple(int(group[v]) for v in network.outputs),
        notes=network.notes,
    )


def _kernels(graph: Graph) -> IntArray:
    """A representative per op: the op that its kernel begins with (constants: their first reader)."""
    into = np.arange(graph.n, dtype=np.int32)
    ptr, reader = graph.successors
    back, parent = graph.predecessors
    for v in graph.topological_order.tolist():
        inputs = parent[back[v] : back[v + 1]].tolist()
        own = [
            u
            for u in inputs
            if ptr[u + 1] - ptr[u] == 1 and graph.op_types[u] in FUSED.get(graph.op_types[v], ())
        ]
        if own:
            into[v] = into[max(own, key=lambda u: int(graph.position[u]))]
    for v in np.flatnonzero(np.array(graph.op_types) == "Constant").tolist():
        into[v] = into[min(reader[ptr[v] : ptr[v + 1]].tolist(), key=lambda u: int(graph.position[u]))]
    return into
