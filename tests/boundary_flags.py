"""Problems with random boundary ops, and the same problems without those ops."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from hypothesis import strategies as st
from strategies import problems

from loadmaster.graph import GraphBuilder
from loadmaster.problem import Problem


def flagged(problem: Problem, boundary) -> Problem:
    """The problem with these ops as boundary ops, and no others."""
    return replace(problem, graph=replace(problem.graph, boundary=np.array(boundary, np.bool_)))


@st.composite
def boundary_problems(draw, model, **limits) -> Problem:
    """Random problems; mostly some sources and sinks are boundary ops, sometimes any ops; perhaps pinned."""
    problem = draw(problems(model, **limits))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    ends = np.ones(problem.n, np.bool_)
    tail, head = problem.graph.arcs
    inner = np.zeros((2, problem.n), np.bool_)
    inner[0, tail], inner[1, head] = True, True
    ends = ~(inner[0] & inner[1]) if draw(st.sampled_from([True, True, False])) else ends
    found = flagged(problem, ends & (rng.random(problem.n) < 0.7))
    if draw(st.booleans()):  # as for imported models, inputs and outputs are where the user is
        there = found.graph.boundary & (found.pin < 0) & found.allowed[:, 0]
        found = replace(found, pin=np.where(there, 0, found.pin).astype(np.int32))
    return found


def without_boundary(problem: Problem) -> tuple[Problem, np.ndarray]:
    """The problem of the other ops alone, and which ops they are."""
    graph = problem.graph
    kept = np.flatnonzero(~graph.boundary)
    number = {int(v): i for i, v in enumerate(kept)}
    builder = GraphBuilder("rest")
    for v in kept.tolist():
        builder.op(graph.names[v], backward=bool(graph.backward[v]))
    for t in range(graph.tensors):
        producer = int(graph.tensor_producer[t])
        readers = [number[v] for v in graph.consumers(t).tolist() if v in number]
        if producer in number:
            builder.tensor(number[producer], bytes=1.0, consumers=readers)
    classes: dict[int, list[int]] = {}
    for v in kept.tolist():
        classes.setdefault(int(problem.class_of[v]), []).append(number[v])
    rest = Problem.make(
        builder.build(),
        problem.cluster,
        problem.model,
        time=np.zeros((len(kept), problem.devices)),
        colocation=[group for group in classes.values() if len(group) > 1],
    )
    return rest, kept
