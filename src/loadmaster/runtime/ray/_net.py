"""A plan on several machines as something to call, which goes on where a machine fails."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy.typing as npt

from loadmaster.errors import InputError, UnsupportedError, WorkerError
from loadmaster.graph.openvino import openvino_model
from loadmaster.plan import Plan
from loadmaster.problem import Concurrent, Pipeline, Problem
from loadmaster.runtime._cache import Cache
from loadmaster.runtime._host import Arrays, Span
from loadmaster.runtime._pieces import Piece, cut
from loadmaster.runtime._plan_runs import Change, pieces_of
from loadmaster.runtime.openvino import DeviceSpec, Net, devices_of, fitted, parse_devices
from loadmaster.runtime.ray._actors import Actors
from loadmaster.runtime.ray._connection import current
from loadmaster.runtime.ray._links import measure_links
from loadmaster.runtime.ray._plans import profile_model
from loadmaster.runtime.ray._replanning import Placing, place_on, slowed, widened
from loadmaster.runtime.ray._slow import slow_factors
from loadmaster.runtime.ray._spread import Flight, Spread

__all__ = ["Lasting", "open_plan"]

REMEMBERED = 2000
"""Runs of submodels by which the pace of devices is known."""
ANSWER = 5.0
"""Seconds for a device to say what it did; one that does not is asked again later."""


class Lasting:
    """A :class:`Spread` that outlives its nodes: what was in flight is run again on what is left.

    Without ``place`` a request fails with an error that names the node. A request is answered once, by one run from
    its inputs to its outputs: nothing of a run that failed is used.
    """

    def __init__(
        self,
        model: Any,
        actors: Actors,
        problem: Problem,
        pieces: Sequence[Piece],
        *,
        place: Placing | None = None,
        file: str | Path = "",
        shapes: Any = (),
        cache: Cache | None = None,
        slots: int | None = None,
    ) -> None:
        self._model, self._actors, self._problem, self._place = model, actors, problem, place
        self._file, self._shapes, self._cache, self._slots = file, shapes, cache, slots
        self._known = dict(actors.specs)
        """All devices that there were."""
        self._running = self._spread(pieces)
        self.submodels = self._running.submodels
        self.changes: list[Change] = []
        self._paced: set[str] = set()
        """Devices that were found slow; their pace is measured again whenever the model is placed anew."""
        self._spans: deque[Span] = deque(maxlen=REMEMBERED)

    def _spread(self, pieces: Sequence[Piece]) -> Spread:
        slots = self._slots or len({piece.device for piece in pieces}) + 1
        return Spread(self._model, self._actors, pieces, slots=slots)

    @property
    def lost(self) -> list[str]:
        """Devices that died, in their order."""
        return [name for change in self.changes for name in change.lost]

    @property
    def replanned(self) -> list[float]:
        """Seconds that each change of the plan took, from noticing to going on."""
        return [change.seconds for change in self.changes]

    @property
    def pieces(self) -> list[Piece]:
        """Of the plan that runs now."""
        return self._running.pieces

    @property
    def problem(self) -> Problem:
        """What was placed last."""
        return self._problem

    @property
    def running(self) -> Spread:
        """What runs now."""
        return self._running

    def run(self, inputs: Arrays) -> list[npt.NDArray[Any]]:
        """The outputs of one request."""
        return next(self.stream([inputs]))

    def stream(self, requests: Iterable[Arrays]) -> Iterator[list[npt.NDArray[Any]]]:
        """The outputs of many requests, in order."""
        flying: deque[tuple[Spread, Flight]] = deque()
        for inputs in requests:
            while len(flying) >= self._running.slots:
                yield self._take(flying)
            flying.append((self._running, self._running.submit(inputs)))
        while flying:
            yield self._take(flying)

    def _take(self, flying: deque[tuple[Spread, Flight]]) -> list[npt.NDArray[Any]]:
        while True:
            by, flight = flying[0]
            if by is not self._running:  # the plan has changed: what was in flight begins again
                again = [(self._running, self._running.submit(flight.inputs)) for _, flight in flying]
                flying.clear()
                flying.extend(again)
                continue
            try:
                found = by.take(flight)
                flying.popleft()
                return found
            except WorkerError as error:
                self._go_on(error)

    def _go_on(self, error: WorkerError) -> None:
        """Place anew on the devices that are left; as often as it takes."""
        began = time.perf_counter()
        lost: list[str] = []
        while True:
            if self._place is None:
                raise error
            gone = self._actors.gone()
            lost += gone
            self._actors.forget(gone)
            if not self._actors.handles:
                raise WorkerError(f"{error}, and no device is left") from None
            try:
                self._change(self._problem, began, lost, ())
                return
            except WorkerError as another:
                error = another

    def _change(self, problem: Problem, began: float, lost: Sequence[str], joined: Sequence[str]) -> Change:
        assert self._place is not None
        rest, solution = place_on(problem, list(self._actors.specs), self._place)
        self._running.close()  # what is left needs the room
        self._spans.clear()
        self._running = self._spread(cut(rest, solution.placement))
        self.submodels = self._running.submodels
        used = {piece.device for piece in self._running.pieces}
        change = Change(
            tuple(dict.fromkeys(self._known[name].node for name in lost)),
            tuple(lost),
            tuple(joined),
            tuple(name for name in self._actors.specs if name in used),
            time.perf_counter() - began,
            solution.cost,
        )
        self.changes.append(change)
        return change

    def replan(self, devices: Iterable[DeviceSpec | str] = ()) -> Change:
        """Place the model anew on what is there now: without devices that died, with those of them whose nodes are
        back, with other ``devices`` that are given (of nodes that have joined: they are profiled), and with slow ones
        at the pace that was measured.

        Raises
        ------
        InputError : the plan was not opened for this, or a node is not there.
        """
        if self._place is None:
            raise InputError("the plan was not opened to be placed anew: open it with replan=True")
        began = time.perf_counter()
        lost = self._actors.gone()
        self._actors.forget(lost)
        asked = [d if isinstance(d, DeviceSpec) else parse_devices([d])[0] for d in devices]
        there = {node.name for node in self._actors.machines.nodes()}
        back = [s for s in self._known.values() if s.name not in self._actors.specs and s.node in there]
        more = {spec.name: spec for spec in (*back, *asked) if spec.name not in self._actors.specs}
        factors = slow_factors(self._problem, self.pieces, self.observed(), self._paced)
        self._paced |= set(factors)
        self._actors.add(more.values())
        self._known |= more
        new = [spec for spec in more.values() if spec.name not in self._problem.cluster.index]
        if new:
            profile = profile_model(self._file, new, self._shapes, cache=self._cache, clock="core")
            links = measure_links(self._actors, cache=self._cache)
            self._problem = widened(self._problem, profile, links, list(self._actors.specs.values()))
        self._problem = slowed(self._problem, factors)
        return self._change(self._problem, began, lost, tuple(more))

    # -- for those who watch ---------------------------------------------------------------------------------

    def queues(self) -> dict[str, int]:
        """Device -> submodels that could run there or do; for another thread to ask."""
        return self._running.queues()

    def observed(self) -> list[Span]:
        """The last runs of submodels of the plan that runs now; whoever does not answer at once is left out."""
        import ray

        running = self._running
        asked = [handle.spans.remote() for handle in list(self._actors.handles.values())]
        ready, _ = ray.wait(asked, num_returns=len(asked), timeout=ANSWER) if asked else ([], [])
        for ref in ready:
            try:
                self._spans.extend(span for span in ray.get(ref) if span["key"] == running.key)
            except ray.exceptions.RayError:  # the stream finds out who died
                continue
        return list(self._spans)

    def close(self) -> None:
        """End the actors."""
        self._actors.close()


def open_plan(
    model: str | Path,
    plan: str | Path | Plan,
    devices: Sequence[DeviceSpec] | None = None,
    shapes: Mapping[str, Sequence[int]] | Iterable[str] = (),
    *,
    values: Mapping[str, Any] | Iterable[str] = (),
    place: Placing | None = None,
    cache: Cache | None = None,
    slots: int | None = None,
) -> Net:
    """A model ready to run by a plan on the cluster that this process is connected to.

    With ``place`` it is placed anew when a node dies.

    Raises
    ------
    InputError : the plan is for another model, or its nodes are not there.
    UnsupportedError : the plan is of an execution model that does not overlap devices.
    RunError : a submodel cannot be compiled.
    """
    loaded = plan if isinstance(plan, Plan) else Plan.load(plan)
    problem = loaded.problem()
    if not isinstance(problem.model, Concurrent | Pipeline):
        raise UnsupportedError(
            f"{loaded.source}: is a plan of the {problem.model.name} model, which does not run here"
        )
    given = loaded.given(shapes, values)
    _, loaded = fitted(model, loaded, given)
    specs = tuple(devices) if devices else devices_of(loaded)
    read = openvino_model(model, given)
    actors = Actors(current(), specs)
    try:
        running = Lasting(
            read,
            actors,
            loaded.problem(),
            pieces_of(loaded),
            place=place,
            file=model,
            shapes=given,
            cache=cache,
            slots=slots,
        )
        return Net(read, running)
    except BaseException:
        actors.close()
        raise
