"""The placement problem: arrays in seconds and bytes, and the execution model that gives them meaning."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from loadmaster.arrays import BoolArray, FloatArray, IntArray
from loadmaster.graph import Graph
from loadmaster.graph.order import csr_from_pairs, sum_by
from loadmaster.hardware import Cluster
from loadmaster.problem import _ranks
from loadmaster.problem._exact_ranks import exact_ranks
from loadmaster.problem._limbs import exact_order
from loadmaster.problem._model import ExecutionModel, named_model
from loadmaster.problem._notebook import problem_html
from loadmaster.problem._numbers import reject_bad_numbers
from loadmaster.problem._rules import classes_of, pins_and_forbids
from loadmaster.problem._shapes import reject_bad_shapes
from loadmaster.problem._tie import Tie

__all__ = ["Problem"]

T = TypeVar("T")


@dataclass(frozen=True, eq=False, repr=False)
class Problem:
    """What is to be placed, on which devices, at which costs and under which constraints.

    Solvers see only the arrays; learned placers may also read ``graph`` and ``cluster``, for features. With n
    ops, m tensors and D devices:

    Attributes
    ----------
    time : (n, D) seconds; infinite where a device does not support an op.
    size : (m,) what transfer rates multiply (bytes, or seconds where a workload gives times).
    latency, rate : (D, D); bringing tensor t from d to e takes ``latency[d, e] + size[t] * rate[d, e]``
        seconds.
    send_latency, send_rate, recv_latency, recv_rate : (D,) likewise, from a device to host memory and back.
    memory : (n,) bytes that count against ``capacity`` (D,), added up per device.
    resident : (n,) bytes that stay on the device all the time, where lifetimes are looked at
        (``memory="peak"``).
    class_of : (n,) colocation class of each op; ops of one class go to one device.
    pin : (n,) the only device an op may go to, or -1.
    forbidden : (n, D) True where an op must not go although the device supports it.
    kept : (n,) bytes that an op keeps from its forward to its backward pass, per microbatch in flight; None is
        nothing. Used by ``pipeline`` with microbatches alone, as are the ties.
    ties : weights that ops share without having to be on one device (:class:`Tie`).
    surplus : devices that a given split uses but the problem does not have; using one is a violation.
    provenance : where the times come from, in words.
    origin : (n, D) how each time came to be, as an index into :data:`loadmaster.hardware.ORIGINS`; None where
        nothing is known beyond ``provenance``. Neither says anything about costs, so equality ignores them.
    """

    graph: Graph
    cluster: Cluster
    model: ExecutionModel
    time: FloatArray
    size: FloatArray
    latency: FloatArray
    rate: FloatArray
    send_latency: FloatArray
    send_rate: FloatArray
    recv_latency: FloatArray
    recv_rate: FloatArray
    memory: FloatArray
    capacity: FloatArray
    resident: FloatArray
    class_of: IntArray
    pin: IntArray
    forbidden: BoolArray
    surplus: tuple[int, ...] = ()
    kept: FloatArray | None = None
    ties: tuple[Tie, ...] = ()
    provenance: str = field(default="given", compare=False)
    origin: npt.NDArray[np.uint8] | None = field(default=None, compare=False)
    _derived: dict[Callable[[Problem], Any], Any] = field(default_factory=dict, init=False, compare=False)

    def __post_init__(self) -> None:
        reject_bad_shapes(self)
        reject_bad_numbers(self)
        for name, value in list(vars(self).items()):
            if isinstance(value, np.ndarray):
                # One layout for all problems: kernels are compiled for one.
                array = np.require(value, requirements="C")
                array.flags.writeable = False
                object.__setattr__(self, name, array)

    @staticmethod
    def make(
        graph: Graph,
        cluster: Cluster,
        model: ExecutionModel | str,
        *,
        time: npt.ArrayLike,
        size: npt.ArrayLike | None = None,
        latency: npt.ArrayLike | None = None,
        rate: npt.ArrayLike | None = None,
        send_latency: npt.ArrayLike | None = None,
        send_rate: npt.ArrayLike | None = None,
        recv_latency: npt.ArrayLike | None = None,
        recv_rate: npt.ArrayLike | None = None,
        memory: npt.ArrayLike | None = None,
        capacity: npt.ArrayLike | None = None,
        resident: npt.ArrayLike | None = None,
        colocation: Iterable[Iterable[int]] = (),
        pins: Mapping[int, int] | None = None,
        forbids: Iterable[tuple[int, int]] = (),
        surplus: tuple[int, ...] = (),
        kept: npt.ArrayLike | None = None,
        ties: Iterable[Tie] = (),
        provenance: str = "given",
        origin: npt.NDArray[np.uint8] | None = None,
    ) -> Problem:
        """A problem from arrays, with what is left out taken from the graph and the cluster.

        ``model`` is an execution model, or its name: ``"serial"``, or with settings ``"pipeline:chain,overlap"``.
        Transfers come from the cluster's links: ``send`` and ``recv`` are the links to and from the host.
        ``memory`` is by default the parameter bytes plus the bytes written, ``resident`` the parameter bytes
        alone (or ``memory``, where that is given and ``resident`` is not).
        """
        links, rates = cluster.link_arrays()
        host = cluster.host

        def array(value: npt.ArrayLike | None, default: npt.ArrayLike) -> FloatArray:
            return np.array(default if value is None else value, np.float64)

        with np.errstate(over="ignore"):  # what overflows is refused below
            held = graph.param_bytes + graph.bytes_written

        pin = np.full(graph.n, -1, np.int32)
        for v, d in (pins or {}).items():
            pin[v] = d
        forbidden = np.zeros((graph.n, len(cluster)), np.bool_)
        for v, d in forbids:
            forbidden[v, d] = True
        return Problem(
            graph=graph,
            cluster=cluster,
            model=named_model(model) if isinstance(model, str) else model,
            time=np.array(time, np.float64).reshape((0, len(cluster)) if graph.n == 0 else np.shape(time)),
            size=array(size, graph.tensor_bytes),
            latency=array(latency, links),
            rate=array(rate, rates),
            send_latency=array(send_latency, links[:, host]),
            send_rate=array(send_rate, rates[:, host]),
            recv_latency=array(recv_latency, links[host, :]),
            recv_rate=array(recv_rate, rates[host, :]),
            memory=array(memory, held),
            capacity=array(capacity, cluster.capacity),
            resident=array(resident if resident is not None else memory, graph.param_bytes),
            class_of=classes_of(graph.n, colocation),
            pin=pin,
            forbidden=forbidden,
            surplus=surplus,
            kept=None if kept is None else np.array(kept, np.float64),
            ties=tuple(ties),
            provenance=provenance,
            origin=origin,
        )

    # -- value behaviour -------------------------------------------------------------------------------------

    @property
    def n(self) -> int:
        """Number of ops."""
        return self.graph.n

    @property
    def devices(self) -> int:
        """Number of devices."""
        return len(self.cluster)

    def __repr__(self) -> str:
        return f"Problem({self.graph!r}, {self.devices} devices, {self.model!r})"

    def _repr_html_(self) -> str:
        return problem_html(self)

    @cached_property
    def digest(self) -> str:
        """SHA-256 over everything that costs and constraints depend on."""
        h = hashlib.sha256(self.graph.digest.encode())
        h.update(
            repr(
                (self.model, self.cluster.names, [d.kind for d in self.cluster.devices], self.surplus)
            ).encode()
        )
        for f in fields(self):
            value = getattr(self, f.name)
            if f.compare and isinstance(value, np.ndarray):
                h.update(value.tobytes())
        if self.ties:
            h.update(repr(self.ties).encode())
        return h.hexdigest()

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Problem):
            return NotImplemented
        return self.digest == other.digest

    def __hash__(self) -> int:
        return hash(self.digest)

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_derived": {}}

    def derived(self, make: Callable[[Problem], T]) -> T:
        """What ``make`` gives for this problem, computed at the first call and kept with the problem.

        For tables that several modules need and that depend on nothing but the problem. ``make`` is a
        function of a module: it is the key, so a lambda would be computed afresh. Two threads that ask at
        once may both compute it, but are given one and the same value. A copy, a pickle and a problem under
        another execution model start with nothing.
        """
        if make not in self._derived:
            self._derived.setdefault(make, make(self))
        found: T = self._derived[make]
        return found

    def with_model(self, model: ExecutionModel) -> Problem:
        """The same problem under another execution model."""
        return replace(self, model=model)

    def constrained(self, *, pins: Iterable[str] = (), forbids: Iterable[str] = ()) -> Problem:
        """The same problem with pins and forbids added, each written ``"ops=device"``.

        ``ops`` is the name of an op, or a regular expression that must match whole names.
        """
        pin, forbidden = pins_and_forbids(self, pins, forbids)
        return replace(self, pin=pin, forbidden=forbidden)

    # -- constraints, in the form that search needs ----------------------------------------------------------

    @cached_property
    def allowed(self) -> BoolArray:
        """(n, D) True where an op may go by itself: supported, not forbidden, pin respected, device really
        there."""
        ok = np.isfinite(self.time) & ~self.forbidden
        pinned = np.flatnonzero(self.pin >= 0)
        only = np.zeros((len(pinned), self.devices), np.bool_)
        only[np.arange(len(pinned)), self.pin[pinned]] = True
        ok[pinned] &= only
        ok[:, list(self.surplus)] = False
        return ok

    @cached_property
    def classes(self) -> int:
        """Number of colocation classes, single ops counted."""
        return int(self.class_of.max()) + 1 if self.n else 0

    @cached_property
    def members(self) -> tuple[IntArray, IntArray]:
        """CSR class -> ops: (ptr, op)."""
        return csr_from_pairs(self.class_of, np.arange(self.n, dtype=np.int32), self.classes)

    @cached_property
    def class_allowed(self) -> BoolArray:
        """(classes, D) True where every member may go."""
        ok = np.empty((self.classes, self.devices), np.bool_)
        for d in range(self.devices):  # much faster than logical_and.at on large graphs
            ok[:, d] = np.bincount(self.class_of[~self.allowed[:, d]], minlength=self.classes) == 0
        return ok

    @cached_property
    def class_time(self) -> FloatArray:
        """(classes, D) seconds, added up; infinite where a member is unsupported (pins and forbids not
        counted)."""
        total = np.empty((self.classes, self.devices))
        for d in range(self.devices):  # much faster than add.at, and in the same order
            total[:, d] = sum_by(self.class_of, self.time[:, d], self.classes)
        return total

    @cached_property
    def class_memory(self) -> FloatArray:
        """(classes,) bytes, added up."""
        return sum_by(self.class_of, self.memory, self.classes)

    def memory_of(self, device: IntArray) -> FloatArray:
        """(D,) bytes that each device holds under a placement, added up."""
        return sum_by(device, self.memory, self.devices)

    @cached_property
    def pool(self) -> BoolArray:
        """(D,) True for CPUs, which the ``offload`` model takes as one unlimited pool."""
        return np.array([device.kind == "cpu" for device in self.cluster.devices], np.bool_)

    # -- priorities ------------------------------------------------------------------------------------------

    @cached_property
    def mean_time(self) -> FloatArray:
        """(n,) mean seconds over the devices that support the op (0 where none does)."""
        return _ranks.mean_time(self.time)

    @cached_property
    def mean_link(self) -> FloatArray:
        """(m,) mean seconds of a transfer over ordered pairs of different devices (0 for one device)."""
        return _ranks.mean_link(self.size, self.latency, self.rate)

    @cached_property
    def upward_rank(self) -> FloatArray:
        """(n,) seconds from the start of an op to the end of the graph along the longest mean path (HEFT's
        rank)."""
        return _ranks.upward_rank(self.graph, self.mean_time, self.mean_link)

    @cached_property
    def priority_order(self) -> IntArray:
        """(n,) ops by decreasing upward rank, ties by topological position: a topological order.

        Ranks are compared in exact arithmetic on the given doubles, so that equal ones tie however they are summed.
        """
        order = exact_order(self)
        return order if order is not None else _ranks.priority_order(self.graph, exact_ranks(self))
