"""A plan on several machines as something to call, which goes on where a machine fails."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy.typing as npt

from loadmaster.errors import UnsupportedError, WorkerError
from loadmaster.graph.openvino import openvino_model
from loadmaster.plan import Plan
from loadmaster.problem import Concurrent, Pipeline
from loadmaster.runtime._host import Arrays
from loadmaster.runtime._pieces import Piece
from loadmaster.runtime._plan_runs import pieces_of
from loadmaster.runtime.openvino import DeviceSpec, Net, devices_of, fitted
from loadmaster.runtime.ray._actors import Actors
from loadmaster.runtime.ray._connection import current
from loadmaster.runtime.ray._spread import Flight, Spread

__all__ = ["Lasting", "Replan", "open_plan"]

Replan = Callable[[Sequence[str]], Sequence[Piece]]
"""From the devices that are left to the pieces of a placement on them."""


class Lasting:
    """A :class:`Spread` that outlives its nodes: what was in flight is run again on what is left.

    Without ``replan`` a request fails with an error that names the node. A request is answered once, by one run from
    its inputs to its outputs: nothing of a run that failed is used.
    """

    def __init__(
        self, model: Any, actors: Actors, pieces: Sequence[Piece], *, replan: Replan | None = None
    ) -> None:
        self._model, self._actors, self._replan = model, actors, replan
        self._running = self._spread(pieces)
        self.submodels = self._running.submodels
        self.lost: list[str] = []
        """Devices that died, in their order."""
        self.replanned: list[float] = []
        """Seconds that each change of the plan took, from noticing to going on."""

    def _spread(self, pieces: Sequence[Piece]) -> Spread:
        slots = len({piece.device for piece in pieces}) + 1
        return Spread(self._model, self._actors, pieces, slots=slots)

    @property
    def pieces(self) -> list[Piece]:
        """Of the plan that runs now."""
        return self._running.pieces

    @property
    def running(self) -> Spread:
        """What runs now."""
        return self._running

    def run(self, inputs: Arrays) -> list[npt.NDArray[Any]]:
        """The outputs of one request."""
        return next(self.stream([inputs]))

    def stream(self, requests: Iterable[Arrays]) -> Iterator[list[npt.NDArray[Any]]]:
        """The outputs of many requests, in order."""
        flying: deque[Flight] = deque()
        for inputs in requests:
            if len(flying) >= self._running.slots:
                yield self._take(flying)
            flying.append(self._running.submit(inputs))
        while flying:
            yield self._take(flying)

    def _take(self, flying: deque[Flight]) -> list[npt.NDArray[Any]]:
        while True:
            try:
                found = self._running.take(flying[0])
                flying.popleft()
                return found
            except WorkerError as error:
                self._go_on(error)
                again = [self._running.submit(flight.inputs) for flight in flying]
                flying.clear()
                flying.extend(again)

    def _go_on(self, error: WorkerError) -> None:
        """Place anew on the devices that are left; as often as it takes."""
        began = time.perf_counter()
        while True:
            if self._replan is None:
                raise error
            gone = self._actors.gone()
            self.lost += gone
            self._actors.forget(gone)
            if not self._actors.handles:
                raise WorkerError(f"{error}, and no device is left") from None
            try:
                self._running.close()  # what is left needs the room
                self._running = self._spread(self._replan(list(self._actors.specs)))
                break
            except WorkerError as another:
                error = another
        self.submodels = self._running.submodels
        self.replanned.append(time.perf_counter() - began)

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
    replan: Replan | None = None,
) -> Net:
    """A model ready to run by a plan on the cluster that this process is connected to.

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
        return Net(read, Lasting(read, actors, pieces_of(loaded), replan=replan))
    except BaseException:
        actors.close()
        raise
