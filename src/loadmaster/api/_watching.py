"""A plan that runs on and on, for people to watch: ``loadmaster run --live``."""

from __future__ import annotations

import itertools
import signal
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

from loadmaster.api._machines import machines
from loadmaster.api._models import Shapes, Values
from loadmaster.api._plans import open_plan
from loadmaster.errors import LoadmasterError, UnsupportedError
from loadmaster.plan import Plan
from loadmaster.problem import Concurrent, Pipeline

if TYPE_CHECKING:
    from loadmaster.runtime.openvino import DeviceSpec, Net

__all__ = ["watch"]

WINDOW, BUSY = 5.0, 2.0
"""Seconds over which throughput and load are shown."""
EVERY = 0.5
"""Seconds between two looks at the devices."""
POINTS = 600
"""Seconds of throughput that are kept."""
SLOW = 1.5
"""Times its prediction from which on a device is marked."""
DRAWN = 8
"""Inputs that the requests take turns with."""


def watch(
    model: Any,
    plan: Plan,
    devices: Sequence[DeviceSpec] | None = None,
    shapes: Shapes = (),
    *,
    values: Values = (),
    tolerance: str | None = None,
    example: Any = None,
    on: str | None = None,
    replan: bool = False,
    port: int = 0,
    started: Callable[[str], None] = lambda _: None,
    stop: threading.Event | None = None,
) -> dict[str, Any]:
    """Verify a plan, then run requests through it until Ctrl-C (or ``stop``), and serve a page about it meanwhile.

    The page is on 127.0.0.1 alone; ``started`` is called with its address. A plan of ``pipeline`` runs a stream, one of
    ``concurrent`` one request at a time, as their costs are meant. Gives what the page showed last.

    Raises
    ------
    InputError : the port cannot be used, or the plan is for another model.
    WrongOutputError : the outputs differ from those of the unplaced model.
    WorkerError : a node died, and the model is not to be placed anew.
    """
    from loadmaster.graph.openvino import model_file, openvino_model
    from loadmaster.report import LivePage, live_html
    from loadmaster.runtime.openvino import draw_inputs

    kind = plan.problem().model
    if not isinstance(kind, Concurrent | Pipeline):
        raise UnsupportedError(
            f"{plan.source}: is a plan of the {kind.name} model: concurrent and pipeline plans are shown live"
        )
    over = stop or threading.Event()
    with LivePage(port) as page, machines(on) as by:
        with model_file(model, plan.given(shapes, values), example) as (file, given):
            verified = by.verify_plan(file, plan, devices, given, tolerance=tolerance)
            read = openvino_model(file, given)
            inputs = [tuple(draw_inputs(read, seed)) for seed in range(DRAWN)]
            net = open_plan(
                file,
                plan,
                devices,
                given,
                runtime="openvino",
                on=on,
                replan=replan,
                slots=1 if isinstance(kind, Concurrent) else None,
            )
        with net:
            watched = _Watched(net, plan, verified.document())
            page.start(live_html(plan.graph_name or "model", watched.subtitle), lambda: watched.state)
            started(page.url)
            looking = threading.Thread(target=watched.look_until, args=(over,), daemon=True)
            looking.start()
            try:
                with _ctrl_c(over):
                    for _ in net.stream(_until(over, itertools.cycle(inputs))):
                        watched.ended.append(time.perf_counter())
                        watched.requests += 1
            except KeyboardInterrupt:
                pass
            finally:
                over.set()
                looking.join()
            watched.look(last=True)
            return watched.state


@contextmanager
def _ctrl_c(over: threading.Event) -> Iterator[None]:
    """Ctrl-C sets ``over``, and the stream ends with the requests in flight; a second one interrupts as usual.

    As an exception it may come up anywhere: one in a callback or a finaliser is dropped by the interpreter, one
    inside a lock leaves the devices' threads waiting.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.getsignal(signal.SIGINT)

    def first(*_: object) -> None:
        signal.signal(signal.SIGINT, before)
        over.set()

    signal.signal(signal.SIGINT, first)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _until(over: threading.Event, inputs: Iterator[Any]) -> Iterator[Any]:
    for given in inputs:
        if over.is_set():
            return
        yield given


class _Watched:
    """What the page shows, looked at by a thread of its own."""

    def __init__(self, net: Net, plan: Plan, verified: dict[str, Any]) -> None:
        self.net, self.plan = net, plan
        self.requests = 0
        self.ended: deque[float] = deque(maxlen=100_000)
        """When the last requests were done."""
        self.began = time.perf_counter()
        self._history: deque[tuple[float, float]] = deque(maxlen=POINTS)
        self._events: list[dict[str, Any]] = []
        self._seen = 0
        self._predicted = float(plan.document["cost"])
        from loadmaster.report import device_colours

        problem = plan.problem()
        self._colours = dict(zip(problem.cluster.names, device_colours(problem.devices), strict=True))
        off = verified["error"]["relative"]
        self.subtitle = f"{plan.document['model']} plan · outputs match the unplaced model (off by {off:.1e})"
        self.state: dict[str, Any] = {}
        self.look()

    def look_until(self, over: threading.Event) -> None:
        """Look now and then."""
        while not over.wait(EVERY):
            with suppress(LoadmasterError):  # a node that is dying: the stream says so, if it matters
                self.look()

    def look(self, *, last: bool = False) -> None:
        """Make the state anew."""
        from loadmaster.report import change_text, device_colours
        from loadmaster.runtime import paces

        running = self.net.running
        now, clock = time.perf_counter() - self.began, time.time()
        for change in list(getattr(running, "changes", ()))[self._seen :]:
            self._seen += 1
            self._predicted = change.cost
            self._events.append({"at": now, "text": change_text(change.document())})
        problem, pieces = getattr(running, "problem", None) or self.plan.problem(), list(running.pieces)
        spans, queues = running.observed(), running.queues()
        taken = paces(problem, pieces, spans)
        names = dict.fromkeys([*(piece.device for piece in pieces), *queues])
        known = problem.cluster.index
        for name in names:
            self._colours.setdefault(name, device_colours(len(self._colours) + 1)[-1])
        least = max(1.0, min((a / b for a, b in taken.values()), default=1.0))
        rows = []
        for name in sorted(names, key=lambda n: known.get(n, 0)):
            measured, predicted = taken.get(name, (None, None))
            ratio = measured / predicted if measured is not None and predicted else None
            busy = sum(
                max(0.0, span["end"] - max(span["start"], clock - BUSY))
                for span in spans
                if span["device"] == name
            )
            rows.append(
                {
                    "name": name,
                    "node": self._node(problem, name),
                    "colour": self._colours[name],
                    "submodels": sum(piece.device == name for piece in pieces),
                    "queue": queues.get(name, 0),
                    "busy": min(1.0, busy / min(BUSY, max(now, EVERY))),
                    "measured": measured,
                    "predicted": predicted,
                    "ratio": ratio,
                    "slow": ratio is not None and ratio > SLOW * least,
                }
            )
        rate = self._rate(now, WINDOW)
        if not self._history or now - self._history[-1][0] >= 1.0:
            self._history.append((now, self._rate(now, 1.0) or 0.0))
        self.state = {
            "status": "ended" if last else f"running, {sum(queues.values())} submodels in the queues",
            "ended": last,
            "requests": self.requests,
            "seconds": now,
            "rate": rate,
            "each": 1 / rate if rate else None,
            "predicted": self._predicted,
            "predicted_rate": 1 / self._predicted if self._predicted > 0 else None,
            "devices": rows,
            "history": list(self._history),
            "events": list(self._events),
        }

    def _node(self, problem: Any, name: str) -> str:
        from loadmaster.runtime.openvino import DeviceSpec

        spec = DeviceSpec.of(problem.cluster.devices[problem.cluster.index[name]])
        return spec.node if spec is not None else ""

    def _rate(self, now: float, window: float) -> float | None:
        """Requests per second of the last seconds."""
        window = min(window, now)
        since = self.began + now - window
        count = sum(1 for at in reversed(self._recent()) if at >= since)
        return count / window if window > 0 and count else None

    def _recent(self) -> list[float]:
        while True:
            with suppress(RuntimeError):  # it grew while it was read
                return list(self.ended)
