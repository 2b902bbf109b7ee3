"""A plan as something to call: ``with loadmaster.open(model, plan) as net: y = net(x)``."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol, Self

import numpy as np
import numpy.typing as npt

from loadmaster.errors import InputError, UnsupportedError
from loadmaster.graph.openvino import openvino_model
from loadmaster.plan import Plan
from loadmaster.problem import Concurrent, Pipeline
from loadmaster.runtime._host import Arrays
from loadmaster.runtime._plan_runs import Change, pieces_of
from loadmaster.runtime.openvino._devices import Devices, DeviceSpec, require_here
from loadmaster.runtime.openvino._overlapped import Overlapped
from loadmaster.runtime.openvino._plans import devices_of, fitted

__all__ = ["Net", "open_plan"]

Array = npt.NDArray[Any]
Outputs = Array | tuple[Array, ...]


class Running(Protocol):
    """What a :class:`Net` drives."""

    submodels: int

    def run(self, inputs: Arrays) -> list[Array]:
        """The outputs of one request."""
        ...

    def stream(self, requests: Iterable[Arrays]) -> Iterator[list[Array]]:
        """The outputs of many, in order."""
        ...

    def close(self) -> None:
        """End it."""
        ...


class Net:
    """A model that runs by a plan, in this process or on several machines. A context manager: leaving it ends the
    devices' threads, or actors."""

    def __init__(self, model: Any, running: Running) -> None:
        self._running = running
        self._after: list[Callable[[], object]] = []
        self._ports = [
            (port.get_node().get_friendly_name(), tuple(port.shape), port.get_element_type().to_dtype())
            for port in model.inputs
        ]
        self.submodels = running.submodels

    def __call__(self, *inputs: npt.ArrayLike) -> Outputs:
        """The output for the inputs, in the model's order; a tuple where there are several outputs.

        Raises
        ------
        InputError : the inputs do not fit the model.
        RunError : a submodel failed.
        """
        return _plain(self._running.run(self._checked(inputs)))

    def stream(self, items: Iterable[Any]) -> Iterator[Outputs]:
        """The outputs for many inputs, in their order; each item is an input, or a tuple of several.

        As many requests are in flight as the plan has devices, and one more; no item is taken before there is room.
        """
        given = (self._checked(item if isinstance(item, tuple) else (item,)) for item in items)
        for outputs in self._running.stream(given):
            yield _plain(outputs)

    def _checked(self, inputs: Sequence[npt.ArrayLike]) -> list[Array]:
        if len(inputs) != len(self._ports):
            names = ", ".join(name for name, _, _ in self._ports)
            raise InputError(f"the model has {len(self._ports)} inputs ({names}), not {len(inputs)}")
        found = []
        for value, (name, shape, kind) in zip(inputs, self._ports, strict=True):
            array = np.asarray(value, dtype=kind, order="C")  # keeps a scalar one
            if array.shape != shape:
                raise InputError(f"input {name!r} must have the shape {shape}, not {array.shape}")
            found.append(array)
        return found

    def replan(self, devices: Iterable[DeviceSpec | str] = ()) -> Change:
        """Place the model anew, on several machines: without devices that died, with those of them whose nodes are
        back, with other ``devices`` that are given (of nodes that have joined), and with slow ones at their pace.

        Raises
        ------
        InputError : the plan was not opened with ``on=…, replan=True``, or a node is not there.
        """
        if not hasattr(self._running, "replan"):
            raise InputError(
                "a plan is placed anew on several machines: open it with on= and replan=True", option="--on"
            )
        found: Change = self._running.replan(devices)
        self.submodels = self._running.submodels
        return found

    def close(self) -> None:
        """End the devices' threads; what is in flight fails."""
        self._running.close()
        while self._after:
            self._after.pop()()

    def also_close(self, callback: Callable[[], object]) -> None:
        """Call something when the devices have been ended."""
        self._after.append(callback)

    @property
    def running(self) -> Any:
        """What runs the submodels."""
        return self._running

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _plain(outputs: Sequence[Array]) -> Outputs:
    return outputs[0] if len(outputs) == 1 else tuple(outputs)


def open_plan(
    model: str | Path,
    plan: str | Path | Plan,
    devices: Sequence[DeviceSpec] | None = None,
    shapes: Mapping[str, Sequence[int]] | Iterable[str] = (),
    *,
    values: Mapping[str, Any] | Iterable[str] = (),
    slots: int | None = None,
) -> Net:
    """A model ready to run by a plan of ``optimize`` (or of ``place``, under ``concurrent`` or ``pipeline``).

    >>> # with loadmaster.open("model.xml", "plan.json") as net:
    >>> #     y = net(x)

    Raises
    ------
    InputError : the plan is for another model, or its devices are not there.
    UnsupportedError : the plan is of an execution model that has no overlapping runtime.
    RunError : a submodel cannot be compiled.
    """
    loaded = plan if isinstance(plan, Plan) else Plan.load(plan)
    problem = loaded.problem()
    if not isinstance(problem.model, Concurrent | Pipeline):
        raise UnsupportedError(
            f"{loaded.source}: is a plan of the {problem.model.name} model: open() runs concurrent and pipeline "
            "plans, 'loadmaster run' runs serial ones"
        )
    given = loaded.given(shapes, values)
    _, loaded = fitted(model, loaded, given)
    specs = tuple(devices) if devices else devices_of(loaded)
    require_here(specs)
    read = openvino_model(model, given)
    pieces = pieces_of(loaded)
    count = len({piece.device for piece in pieces}) + 1
    return Net(read, Overlapped(read, Devices(specs), pieces, slots=slots or count))
