"""A problem under ``pipeline`` with microbatches, as the kernels need it: who is in a stage, and what is carried."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from loadmaster.arrays import FloatArray, IntArray
from loadmaster.graph.order import csr_from_pairs
from loadmaster.problem._model import Pipeline
from loadmaster.problem._problem import Problem
from loadmaster.problem.contiguity import chain_arcs
from loadmaster.problem.step._program import program_of, refusal

__all__ = ["IGNORED", "INPUT", "OUTPUT", "WORK", "StepTables", "step_tables"]

WORK, INPUT, OUTPUT, IGNORED = range(4)
"""The role of an op: work of a stage; an input of the model, which is at the first stage; an output of the model, which
is wanted at the last stage; a boundary op of the backward pass, which takes no part."""


class StepTables(NamedTuple):
    """n ops, m tensors, D devices, T ties; the programs for 1 to P ranks one after another."""

    settings: IntArray
    """(4,) microbatches, stages per rank, 1 for training, 1 for checkpoints where needed."""
    tail: IntArray
    head: IntArray
    """Arcs between the first members of classes, which must not lead back to an earlier stage."""
    first: IntArray
    """(n,) the first op of the same class that is work."""
    role: IntArray
    """(n, 2) role, and 1 for the backward pass."""
    time: FloatArray
    """(n, D) seconds."""
    held: FloatArray
    """(2, n) bytes held throughout, and per microbatch in flight."""
    tensor: IntArray
    """(m, 3) producer, and where its readers begin and end."""
    reader: IntArray
    weight: FloatArray
    """(2, m) size, bytes."""
    link: FloatArray
    """(2, D, D) latency, rate."""
    capacity: FloatArray
    """(D,) bytes."""
    tie_ptr: IntArray
    tie_op: IntArray
    tie_weight: FloatArray
    """(2, T) size, memory."""
    program: IntArray
    """(P + 1, 4) where the code begins and ends, where ``before`` begins, 0 where there is no such schedule; row =
    number of ranks."""
    code: IntArray
    before: IntArray


def step_tables(problem: Problem) -> StepTables:
    """The tables of a problem, kept on it."""
    return problem.derived(_tables)


def _tables(problem: Problem) -> StepTables:
    graph, model = problem.graph, problem.model
    assert isinstance(model, Pipeline)
    assert model.microbatches
    training = bool(graph.backward.any())
    role = np.zeros((problem.n, 2), np.int32)
    reads = np.diff(graph.inputs[0]) > 0
    role[graph.boundary, 0] = np.where(reads, OUTPUT, INPUT)[graph.boundary]
    role[graph.boundary & graph.backward, 0] = IGNORED
    role[:, 1] = graph.backward
    tail, head = chain_arcs(problem)
    first = np.full(problem.classes, -1, np.int32)
    for v in range(problem.n - 1, -1, -1):
        c = problem.class_of[v]
        if first[c] < 0 or role[v, 0] == WORK:
            first[c] = v
    codes, befores, rows, at, message = [], [], [(0, 0, 0, 0)], 0, 0
    for ranks in range(1, problem.devices + 1):
        program = None
        if refusal(model.schedule, model.microbatches, ranks, model.stages_per_rank) is None:
            program = program_of(model.schedule, model.microbatches, ranks, model.stages_per_rank, training)
        if program is None:
            rows.append((0, 0, 0, 0))
            continue
        rows.append((at, at + len(program.code), message, 1))
        codes.append(program.code)
        befores.append(program.before)
        at, message = at + len(program.code), message + len(program.before)
    pairs = [(i, v) for i, tie in enumerate(problem.ties) for v in tie.ops]
    ties = np.array(pairs, np.int32).reshape(-1, 2)
    tie_ptr, tie_op = csr_from_pairs(ties[:, 0], ties[:, 1], len(problem.ties))
    kept = np.zeros(problem.n) if problem.kept is None or not training else problem.kept
    return StepTables(
        settings=np.array(
            [model.microbatches, model.stages_per_rank, training, training and model.checkpoint == "auto"],
            np.int32,
        ),
        tail=np.ascontiguousarray(first[tail], np.int32),
        head=np.ascontiguousarray(first[head], np.int32),
        first=first[problem.class_of],
        role=role,
        time=problem.time,
        held=np.stack([problem.memory, kept]),
        tensor=np.stack(
            [graph.tensor_producer, graph.consumer_ptr[:-1], graph.consumer_ptr[1:]], axis=1
        ).astype(np.int32),
        reader=graph.consumer_op,
        weight=np.stack([problem.size, graph.tensor_bytes]),
        link=np.stack([problem.latency, problem.rate]),
        capacity=problem.capacity,
        tie_ptr=tie_ptr,
        tie_op=tie_op,
        tie_weight=np.array(
            [[tie.size for tie in problem.ties], [tie.memory for tie in problem.ties]]
        ).reshape(2, -1),
        program=np.array(rows, np.int32),
        code=np.concatenate(codes) if codes else np.zeros((0, 3), np.int32),
        before=np.concatenate(befores) if befores else np.zeros(0, np.int32),
    )
