"""Training ``gdp`` by evolution strategies: weights that make greedy decoding better on many problems at once.

Every generation draws a few problems and pairs of opposite noise, decodes every problem with every disturbed
set of weights, ranks the costs problem by problem, and steps along the noise weighted by rank. Only costs of whole
placements are asked for, so that the rule in the decoder need not be smooth; ranks make problems of any size and
difficulty count alike. Everything but the clock is a function of the seed and the generation, so that a run that
was killed goes on from its state exactly as if nothing had been.

References
----------
T. Salimans et al., "Evolution strategies as a scalable alternative to reinforcement learning", 2017. D. Kingma,
J. Ba, "Adam: a method for stochastic optimization", ICLR 2015, for the step.
"""

from __future__ import annotations

import io
import json
import math
import os
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from functools import lru_cache
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from loadmaster.arrays import FloatArray
from loadmaster.errors import InputError
from loadmaster.files import read_arrays, write_atomically
from loadmaster.placers.learned.gdp._tracks import LoadTracks, TimeTracks, tracks_of
from loadmaster.placers.learned.gdp._training_problems import FAMILIES, training_problem
from loadmaster.placers.learned.gdp._weights import KINDS, PARTS, Weights, new_weights, span_of
from loadmaster.problem import Concurrent, Offload, Problem, SimulatedEvaluator

__all__ = [
    "Drawn",
    "Evolution",
    "Map",
    "Report",
    "Task",
    "Trainer",
    "cost_table",
    "ends_of",
    "pretrain_tasks",
    "threads",
]


@dataclass(frozen=True)
class Evolution:
    """The settings of a training run."""

    pairs: int = 12
    """Pairs of opposite noise in a generation."""
    problems: int = 6
    """Problems of each kind in a generation."""
    noise: float = 0.05
    """Standard deviation of the noise."""
    rate: float = 0.01
    """Step of Adam."""
    momentum: tuple[float, float] = (0.9, 0.99)
    """Decays of Adam's averages."""
    average: float = 0.98
    """Decay of the running average of the weights, which is the result."""
    pool: int = 40
    """Problems of each kind that are kept; one of them is replaced in every generation."""
    passes: int = 2
    """Passes of each track while training."""
    context: bool = True
    """Train the context (messages along the graph and attention to its stretches) too."""


class Task:
    """One problem to train on, and what a set of weights costs there."""

    def __init__(self, problem: Problem, passes: int) -> None:
        self.problem = problem
        # A round of sweeps is ten passes, so that one round is enough to learn from.
        self.tracks = tracks_of(problem, passes if isinstance(problem.model, Concurrent | Offload) else 1)
        self.kind = "time" if isinstance(self.tracks, TimeTracks) else "load"
        self._check = SimulatedEvaluator(problem)

    def cost(self, vector: FloatArray, turn: int) -> float:
        """Mean of :meth:`costs`."""
        found = self.costs(vector, turn)
        return float(np.mean(found)) if found else 0.0

    def costs(self, vector: FloatArray, turn: int) -> list[float]:
        """Logarithm of the best cost of each of some tracks; the turn chooses them."""
        found: list[float] = []
        if isinstance(self.tracks, LoadTracks):
            number = len(self.tracks.starts)
            for device, cost in self.tracks.costed(vector, (turn % number,) if number else ()):
                feasible = self._check.evaluate_batch(device)[1][0]
                found.append(math.log(max(cost, 1e-300)) if feasible else 700.0)
        else:
            matched = [name for name in self.tracks.names if name.startswith("matching")]
            names = ["ops", "chain" if turn % 2 == 0 or not matched else matched[turn // 2 % len(matched)]]
            for name in names:
                best = min(
                    (self._check.evaluate(p).value for p in self.tracks.track(vector, name)), default=math.inf
                )
                found.append(math.log(max(best, 1e-300)) if best < math.inf else 700.0)
        return found


@dataclass(frozen=True)
class Report:
    """Where a training run stands."""

    generation: int
    seconds: float
    gain: dict[str, float]
    """Kind -> mean logarithm of the cost with the weights so far against the weights at the beginning, on this
    generation's problems; below 0 is better."""
    evaluations: int


class Costing(Protocol):
    """Something to train on: what a set of weights costs there."""

    def cost(self, vector: FloatArray, turn: int) -> float:
        """A logarithm; the same for the same arguments, in whatever process."""
        ...


Source = Callable[[int, int], Sequence[Costing]]
"""(generation, kind's number) -> the tasks of a generation."""

Map = Callable[..., Sequence[Any]]
"""``map(function, arguments, shared=())``: ``function(*shared, *arguments[i])`` for each i, in their order; elsewhere,
perhaps, so that all of them must be picklable."""

PARTS_EACH = 4
"""Parts of a generation for each worker, so that none waits long for the last,"""
MOST_PARTS = 72
"""but no more than these: to give out more takes longer than it saves (``benchmarks/scaling.py``)."""


class Drawn(NamedTuple):
    """A task that follows from these few values, wherever it is needed."""

    seed: tuple[int, ...]
    kind: str
    families: tuple[str, ...]
    passes: int

    def cost(self, vector: FloatArray, turn: int) -> float:
        """See :class:`Task`."""
        with _making:  # several threads ask for the same at once
            task = _made(self)
        return task.cost(vector, turn)


_making = threading.Lock()


@lru_cache(maxsize=96)  # both pools
def _made(drawn: Drawn) -> Task:
    return Task(training_problem(list(drawn.seed), drawn.kind, drawn.families), drawn.passes)


def pretrain_tasks(seed: int, settings: Evolution, families: Sequence[str]) -> Source:
    """Tasks from a pool of random problems that changes slowly.

    Problem i of a kind depends on the seed and i alone. In generation g the pool holds problems g to g + ``pool``,
    so that a run that goes on from a state sees what it would have seen.
    """

    def tasks(generation: int, kind: int) -> Sequence[Drawn]:
        rng = np.random.default_rng([seed, 3, kind, generation])
        chosen = generation + rng.choice(settings.pool, settings.problems, replace=False)
        return [
            Drawn((seed, 5, kind, i), KINDS[kind], tuple(families), settings.passes) for i in chosen.tolist()
        ]

    return tasks


def cost_table(
    tasks: Sequence[tuple[Costing, int]], vectors: FloatArray, run: Map, workers: int
) -> FloatArray:
    """(tasks, vectors) what each set of weights costs on each task in its turn, by as many workers as there are.

    Each entry is computed by itself, so that the table does not depend on who computes what.
    """
    ends = ends_of(len(tasks), len(vectors), workers)
    jobs = [(task, turn, first, last) for task, turn in tasks for first, last in pairwise(ends)]
    found = run(_costs, jobs, shared=(vectors,))
    return np.concatenate(found).reshape(len(tasks), len(vectors))


def ends_of(tasks: int, vectors: int, workers: int) -> list[int]:
    """Where the parts begin and end into which the sets of weights of every task are cut.

    >>> ends_of(12, 26, 2), ends_of(12, 26, 8)
    ([0, 26], [0, 8, 17, 26])
    """
    most = min(PARTS_EACH * workers, MOST_PARTS)
    parts = min(max(-(-most // max(tasks, 1)), 1), vectors)
    return [vectors * part // parts for part in range(parts + 1)]


def _costs(vectors: FloatArray, task: Costing, turn: int, first: int, last: int) -> FloatArray:
    return np.array([task.cost(vector, turn) for vector in vectors[first:last]], np.float64)


def threads(workers: int) -> Map:
    """A map over threads of this process."""

    def run(
        function: Callable[..., Any], arguments: Sequence[Sequence[Any]], *, shared: Sequence[Any] = ()
    ) -> Any:
        with ThreadPoolExecutor(workers) as pool:
            return list(pool.map(lambda given: function(*shared, *given), arguments))

    return run


class Trainer:
    """The state of a run: weights, Adam's averages, the average of the weights, and the generation."""

    def __init__(
        self,
        source: Source,
        settings: Evolution,
        seed: int,
        start: FloatArray | None = None,
        *,
        kinds: Sequence[str] = KINDS,
        workers: int | None = None,
        run: Map | None = None,
    ) -> None:
        """``workers`` are threads, or those who work for ``run``; nothing but the time depends on either."""
        self.source, self.settings, self.seed = source, settings, seed
        self.kinds = tuple(kinds)
        self.workers = workers or os.cpu_count() or 1
        self.run: Map = threads(self.workers) if run is None else run
        self.start = new_weights(seed) if start is None else start.copy()
        self.vector = self.start.copy()
        self.average = self.vector.copy()
        self._first, self._second = np.zeros_like(self.vector), np.zeros_like(self.vector)
        self.generation, self.seconds, self.evaluations = 0, 0.0, 0
        self._frozen = np.zeros(len(self.vector), np.bool_) if settings.context else _context_mask()

    # -- one generation --------------------------------------------------------------------------------------

    def step(self) -> Report:
        """One generation."""
        began = time.perf_counter()
        settings, g = self.settings, self.generation
        rng = np.random.default_rng([self.seed, 7, g])
        noise = rng.standard_normal((settings.pairs, len(self.vector)))
        noise[:, self._frozen] = 0.0
        disturbed = [self.vector + settings.noise * (sign * row) for row in noise for sign in (1.0, -1.0)]
        vectors = np.stack([*disturbed, self.average, self.start])
        drawn = [(kind, task) for kind in self.kinds for task in self.source(g, KINDS.index(kind))]
        costs = cost_table([(task, g) for _, task in drawn], vectors, self.run, self.workers)
        gradient, gain = np.zeros_like(self.vector), {}
        for kind in self.kinds:
            table = costs[[kind == of for of, _ in drawn]]
            weight = np.mean([centred_ranks(row[:-2]) for row in table], axis=0)
            along = (weight[0::2] - weight[1::2]) @ noise
            span = span_of(kind)
            gradient[span] = along[span] / (2 * settings.pairs)
            gain[kind] = float(np.mean(table[:, -2] - table[:, -1]))
            self.evaluations += len(table) * len(disturbed)
        self._move(gradient)
        self.generation += 1
        self.seconds += time.perf_counter() - began
        return Report(self.generation, self.seconds, gain, self.evaluations)

    def _move(self, gradient: FloatArray) -> None:
        """Adam, downhill: costs are ranked upwards."""
        settings, g = self.settings, self.generation + 1
        a, b = settings.momentum
        self._first = a * self._first + (1 - a) * gradient
        self._second = b * self._second + (1 - b) * gradient**2
        mean, spread = self._first / (1 - a**g), self._second / (1 - b**g)
        self.vector = self.vector - settings.rate * mean / (np.sqrt(spread) + 1e-12)
        decay = min(settings.average, g / (g + 10.0))
        self.average = decay * self.average + (1 - decay) * self.vector

    # -- saving ----------------------------------------------------------------------------------------------

    @property
    def _origin(self) -> str:
        return json.dumps([asdict(self.settings), self.seed, self.kinds, Weights(self.start, {}).digest])

    def save(self, path: str | Path, families: Sequence[str]) -> None:
        """Everything that the next generation depends on, in one file that is replaced as a whole."""
        content = io.BytesIO()
        origin = np.frombuffer(json.dumps([self._origin, list(families)]).encode(), np.uint8)
        np.savez(
            content, origin=origin, vector=self.vector, average=self.average, first=self._first,
            second=self._second, numbers=np.array([self.generation, self.seconds, self.evaluations]),
        )  # fmt: skip
        write_atomically(path, content.getvalue())

    def resume(self, path: str | Path, families: Sequence[str]) -> None:
        """Go on from a state.

        Raises
        ------
        InputError : the file is no such state, or one of another run.
        """
        found = read_arrays(path, "the state of a training run")
        try:
            origin = json.loads(found["origin"].tobytes())
            arrays = {key: found[key] for key in ("vector", "average", "first", "second")}
            numbers = [float(number) for number in found["numbers"]]
            whole = [int(numbers[0]), int(numbers[2])]
            if any(a.dtype != np.float64 or a.shape != self.vector.shape for a in arrays.values()):
                raise ValueError("its arrays have a different length")
        except Exception as error:  # numpy raises many kinds
            raise InputError(f"{path}: is not the state of a training run ({error})") from None
        if origin != [self._origin, list(families)]:
            raise InputError(
                f"{path}: is the state of a run with a different seed, settings or families: give another file"
            )
        self.vector, self.average = arrays["vector"], arrays["average"]
        self._first, self._second = arrays["first"], arrays["second"]
        self.generation, self.evaluations = whole
        self.seconds = numbers[1]


def centred_ranks(cost: FloatArray) -> FloatArray:
    """Ranks from -0.5 (least) to 0.5, ties sharing their mean.

    >>> centred_ranks(np.array([3.0, 1.0, 3.0])).tolist()
    [0.25, -0.5, 0.25]
    """
    _, place, count = np.unique(cost, return_inverse=True, return_counts=True)
    if len(count) == 1:
        return np.zeros(len(cost))
    first = np.cumsum(count) - count
    return ((first + (count - 1) / 2.0) / (len(cost) - 1) - 0.5)[place]


def _context_mask() -> npt.NDArray[np.bool_]:
    """Where in the vector the weights of the context are."""
    wanted = ("enter", "down", "up", "query", "key", "value", "context")
    parts = [
        np.full(math.prod(shape), name.split("/")[1] in wanted, np.bool_) for name, shape in PARTS.items()
    ]
    return np.concatenate(parts)


def families_without(left_out: Sequence[str]) -> tuple[str, ...]:
    """The families to train on.

    Raises
    ------
    InputError : a family is unknown, or none is left.
    """
    for family in left_out:
        if family not in FAMILIES:
            raise InputError(f"there is no family {family!r} to leave out: choose from {', '.join(FAMILIES)}")
    left = tuple(family for family in FAMILIES if family not in left_out)
    if not left:
        raise InputError("every family is left out: there is nothing to train on")
    return left
