"""What every rank of a pipeline does in one step, in order: the schedules of ``torch.distributed.pipelining``.

A schedule depends on the number of stages, ranks and microbatches, never on how long anything takes. So the lists of
all ranks are merged once into one :class:`Program`, an order in which they can be worked off whatever the times, and
a step is simulated by walking through it once.

References
----------
Y. Huang et al., "GPipe: efficient training of giant neural networks using pipeline parallelism", NeurIPS 2019.
D. Narayanan et al., "Efficient large-scale language model training on GPU clusters using Megatron-LM", SC 2021.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from loadmaster.arrays import IntArray

__all__ = ["BACKWARD", "FORWARD", "MOVE", "RECV", "SEND", "WAIT", "Program", "program_of", "refusal"]

FORWARD, BACKWARD, SEND, RECV, WAIT, MOVE = range(6)
"""Compute, forward and backward; announce that one is ready to send or to receive a message; wait until it has
arrived; and, in a program only, the transfer itself."""

Entry = tuple[int, int]
"""(one of the above, a stage * microbatches + microbatch, or a message)"""


class Program(NamedTuple):
    """The lists of all ranks, merged: R ranks, S stages, M microbatches.

    Message ``(side * (S - 1) + b) * M + m`` is what crosses the boundary after stage b for microbatch m: activations
    (side 0) from stage b to b + 1, gradients (side 1) back.
    """

    code: IntArray
    """(k, 3) what, rank, and the stage * M + microbatch or the message."""
    before: IntArray
    """(messages,) the message that the same two ranks exchange before it in the same direction; -1 for the first."""
    stages: int
    ranks: int


def refusal(schedule: str, microbatches: int, ranks: int, per_rank: int) -> str | None:
    """Why the engine has no such schedule, in words, or None."""
    if ranks == 1:
        return None
    if per_rank > 1:
        rounds = max(1, microbatches // ranks)
        if microbatches % rounds:
            return (
                f"interleaved stages on {ranks} ranks run in {rounds} rounds, and {microbatches} microbatches are no "
                "multiple of that"
            )
        return None
    if schedule == "1f1b" and microbatches < ranks:
        return f"1f1b needs at least as many microbatches as stages, but {microbatches} are less than {ranks}"
    return None


@lru_cache(maxsize=256)
def program_of(schedule: str, microbatches: int, ranks: int, per_rank: int, training: bool) -> Program | None:
    """The program of a step; None if the ranks would wait for each other for ever. One rank has one stage."""
    per_rank = per_rank if ranks > 1 else 1
    stages = ranks * per_rank
    book = _Book(stages, microbatches, training)
    if per_rank > 1:
        lists = _interleaved(book, ranks, per_rank)
    else:
        make: Callable[[_Book, int], list[Entry]] = _gpipe if schedule == "gpipe" else _one_f_one_b
        lists = [make(book, s) for s in range(stages)]
    return _merged(lists, stages, microbatches)


class _Book:
    """Entries by what they mean; those that have no meaning (before the first stage, in inference) are none."""

    def __init__(self, stages: int, microbatches: int, training: bool) -> None:
        self.stages, self.microbatches, self.training = stages, microbatches, training

    def forward(self, stage: int, m: int) -> list[Entry]:
        return [(FORWARD, stage * self.microbatches + m)]

    def backward(self, stage: int, m: int) -> list[Entry]:
        return [(BACKWARD, stage * self.microbatches + m)] if self.training else []

    def activations(self, what: int, boundary: int, m: int) -> list[Entry]:
        there = 0 <= boundary < self.stages - 1
        return [(what, boundary * self.microbatches + m)] if there else []

    def gradients(self, what: int, boundary: int, m: int) -> list[Entry]:
        there = self.training and 0 <= boundary < self.stages - 1
        return [(what, (self.stages - 1 + boundary) * self.microbatches + m)] if there else []


def _gpipe(book: _Book, s: int) -> list[Entry]:
    """All forward, then all backward; sends are waited for only at the end of either half."""
    done: list[Entry] = []
    count = range(book.microbatches)
    for m in count:
        done += book.activations(RECV, s - 1, m) + book.activations(WAIT, s - 1, m)
        done += book.forward(s, m) + book.activations(SEND, s, m)
    for m in count:
        done += book.activations(WAIT, s, m)
    for m in count:
        done += book.gradients(RECV, s, m) + book.gradients(WAIT, s, m)
        done += book.backward(s, m) + book.gradients(SEND, s - 1, m)
    for m in count:
        done += book.gradients(WAIT, s - 1, m)
    return done


def _one_f_one_b(book: _Book, s: int) -> list[Entry]:
    """Some forwards first (one at the last stage, one more at each stage before), then backward and forward in turn.

    In between a rank sends and receives at once and waits for both: a send holds it up until the other side takes it.
    """
    every = book.microbatches
    first = min(every, book.stages - s)
    done: list[Entry] = []
    for m in range(first):
        done += book.activations(RECV, s - 1, m) + book.activations(WAIT, s - 1, m) + book.forward(s, m)
        if m > 0:
            done += book.activations(WAIT, s, m - 1)
        if m < first - 1:
            done += book.activations(SEND, s, m)
    f, b = first, 0
    while True:
        done += book.activations(SEND, s, f - 1) + book.gradients(RECV, s, b)
        done += book.activations(WAIT, s, f - 1) + book.gradients(WAIT, s, b)
        done += book.backward(s, b)
        b += 1
        if f == every:
            break
        done += book.gradients(SEND, s - 1, b - 1) + book.activations(RECV, s - 1, f)
        done += book.gradients(WAIT, s - 1, b - 1) + book.activations(WAIT, s - 1, f)
        done += book.forward(s, f)
        f += 1
    done += book.gradients(SEND, s - 1, b - 1)
    while b < every:
        done += book.gradients(RECV, s, b) + book.gradients(WAIT, s, b) + book.backward(s, b)
        done += book.gradients(WAIT, s - 1, b - 1) + book.gradients(SEND, s - 1, b)
        b += 1
    return done + book.gradients(WAIT, s - 1, every - 1)


Step = tuple[str, int, int]
"""("F", "B" or "-", stage, microbatch)"""


def interleaved_orders(ranks: int, per_rank: int, microbatches: int) -> list[list[Step]]:
    """What each rank computes, in order, with interleaved stages: stage s is on rank s modulo the ranks."""
    rounds = max(1, microbatches // ranks)
    together = microbatches // rounds
    orders = []
    for r in range(ranks):
        warm = min((per_rank - 1) * together + 2 * (ranks - 1 - r), microbatches * per_rank)
        total = per_rank * microbatches
        forwards: dict[int, int] = defaultdict(int)
        backwards: dict[int, int] = defaultdict(int)
        order: list[Step] = []

        def step(kind: str, local: int, seen: dict[int, int], rank: int, order: list[Step]) -> None:
            stage = local * ranks + rank
            order.append((kind, stage, seen[stage]))
            seen[stage] += 1

        for op in range(total + warm):
            if op < total:
                step("F", op // together % per_rank, forwards, r, order)
            if op >= warm:
                step("B", per_rank - 1 - (op - warm) // together % per_rank, backwards, r, order)
        orders.append(order)
    return orders


def _with_pauses(order: list[Step]) -> list[Step]:
    """The order with the steps at which sharded weights would be gathered and dropped.

    They do nothing here, but the engine has them in the lists that it merges, where they decide which receive is
    announced before which computation.
    """
    most = 3
    active: list[int] = []
    done: list[Step] = []
    for i, (kind, stage, m) in enumerate(order):
        upcoming: list[int] = []
        for _, other, _ in order[i:]:
            if other not in upcoming:
                upcoming.append(other)
                if len(upcoming) == most:
                    break
        dropped = [other for other in active if other not in upcoming]
        fetched = [other for other in upcoming if other not in active]
        done += [("-", other, -1) for other in dropped + fetched]
        active = [other for other in active if other in upcoming] + fetched
        done.append((kind, stage, m))
    done += [("-", other, -1) for other in active]
    # After the last backward of a stage its gradients are reduced.
    last = {stage: i for i, (kind, stage, _) in enumerate(done) if kind == "B"}
    return [
        entry
        for i, step in enumerate(done)
        for entry in ([step, ("-", step[1], -1)] if last.get(step[1]) == i else [step])
    ]


def _interleaved(book: _Book, ranks: int, per_rank: int) -> list[list[Entry]]:
    """Interleaved 1F1B: receives are announced as soon as the sender has its turn, sends are waited for at the end.

    The ranks take one step each in turn; a computation whose input has not been sent waits for the next round. The
    receiver announces a message at the place in its own list that it has reached when the sender sends it.
    """
    every = book.microbatches
    left = [_with_pauses(order) for order in interleaved_orders(ranks, per_rank, every)]
    at = [0] * ranks
    lists: list[list[Entry]] = [[] for _ in range(ranks)]
    sends: list[list[Entry]] = [[] for _ in range(ranks)]
    sent: set[tuple[str, int, int]] = set()
    moving = True
    while moving:
        moving = False
        for r in range(ranks):
            if at[r] == len(left[r]):
                continue
            kind, stage, m = left[r][at[r]]
            source = stage - 1 if kind == "F" else stage + 1
            inside = 0 <= source < book.stages
            if kind != "-" and inside and (kind, source, m) not in sent:
                continue
            at[r] += 1
            moving = True
            if kind == "F":
                lists[r] += book.activations(WAIT, stage - 1, m) + book.forward(stage, m)
                message, peer = book.activations(SEND, stage, m), (stage + 1) % ranks
            elif kind == "B":
                lists[r] += book.gradients(WAIT, stage, m) + book.backward(stage, m)
                message, peer = book.gradients(SEND, stage - 1, m), (stage - 1) % ranks
            else:
                continue
            sent.add((kind, stage, m))
            lists[r] += message
            sends[r] += message
            lists[peer] += [(RECV, number) for _, number in message]
    return [
        done + [(WAIT, number) for _, number in reversed(waits)]
        for done, waits in zip(lists, sends, strict=True)
    ]


def _merged(lists: list[list[Entry]], stages: int, microbatches: int) -> Program | None:
    ranks = len(lists)
    before = np.full(2 * (stages - 1) * microbatches, -1, np.int32)
    after: dict[int, int] = {}
    for entries in lists:
        last: dict[int, int] = {}
        for what, number in entries:
            if what == SEND:
                boundary = number // microbatches
                target = boundary + 1 if boundary < stages - 1 else boundary - (stages - 1)
                peer = target % ranks
                if peer in last:
                    before[number], after[last[peer]] = last[peer], number
                last[peer] = number
    code: list[tuple[int, int, int]] = []
    announced: dict[int, int] = defaultdict(int)
    moved: set[int] = set()
    at = [0] * ranks
    progress = True
    while progress:
        progress = False
        for r, entries in enumerate(lists):
            while at[r] < len(entries):
                what, number = entries[at[r]]
                if what == WAIT and number not in moved:
                    break
                at[r] += 1
                progress = True
                code.append((what, r, number))
                if what in (SEND, RECV):
                    announced[number] += 1
                    follow: int | None = number
                    while (
                        follow is not None
                        and announced[follow] == 2
                        and (before[follow] < 0 or int(before[follow]) in moved)
                    ):
                        code.append((MOVE, r, follow))
                        moved.add(follow)
                        follow = after.get(follow)
    if any(at[r] < len(entries) for r, entries in enumerate(lists)):
        return None
    return Program(np.array(code, np.int32).reshape(-1, 3), before, stages, ranks)
