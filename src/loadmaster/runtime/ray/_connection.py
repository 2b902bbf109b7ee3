"""A Ray cluster that this process is connected to: one that runs, or one that is started here for as long as needed."""

from __future__ import annotations

import contextlib
import logging
import os
import re
import shutil
import socket
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from loadmaster.cores import allowed_cores
from loadmaster.errors import InputError, RunError
from loadmaster.files import common_folder, shown, sweep_by_process, sweep_scratch
from loadmaster.runtime.ray import _reaper

__all__ = ["Machines", "Node", "add_local_node", "connected", "current", "end_nodes", "local_nodes"]

LOCAL = re.compile(r"local(:(?P<count>[1-9]\d?))?")
ADDRESS = re.compile(r"(?P<host>[A-Za-z0-9_.-]+):(?P<port>\d{1,5})")
STORE = 100 * 2**20
"""Bytes of shared memory of a node that is started here."""
ATTEMPTS = 3
"""To start nodes here: Ray gives each 30 seconds, which a machine with much other work may not have."""
RAY_HOME = "RAY_TMPDIR"
LONGEST = 40
"""Characters of a folder in which Ray's sockets still have names of at most 107."""
PATIENCE = 5.0
"""Seconds in which a cluster must answer at all."""
DIRECT = 16 * 2**20
"""Bytes of the largest array that goes along with a call."""
CALLS = {
    # Tensors go along with calls: bringing one by way of the object store costs several times as much.
    "RAY_max_direct_call_object_size": str(DIRECT),
    "RAY_task_rpc_inlined_bytes_limit": str(4 * DIRECT),
}
SETTINGS = {
    "RAY_USAGE_STATS_ENABLED": "0",  # nothing is reported to anybody
    "RAY_enable_metrics_collection": "0",
    "RAY_DEDUP_LOGS": "0",
    "RAY_IGNORE_UNHANDLED_ERRORS": "1",  # a call that failed because another one did, which is told
    "RAY_task_events_report_interval_ms": "0",  # nobody looks at a record of every call
} | CALLS
ONE_MACHINE = "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"
NOTICED = {
    # A node that is gone is noticed in about 3 seconds, not in 15.
    "RAY_health_check_initial_delay_ms": "3000",
    "RAY_health_check_period_ms": "1000",
    "RAY_health_check_timeout_ms": "3000",
    "RAY_health_check_failure_threshold": "3",
}


@dataclass(frozen=True)
class Node:
    """One machine of a cluster."""

    name: str
    id: str
    address: str


@dataclass
class Machines:
    """A cluster that this process is connected to."""

    address: str
    own: Any = None
    """The ``ray.cluster_utils.Cluster`` that was started here, if it was."""
    _names: dict[str, str] = field(default_factory=dict)

    @property
    def runtime_env(self) -> dict[str, Any]:
        """What processes of the cluster must be told: those of one that was started here have it already."""
        return {} if self.own is not None else {"env_vars": CALLS}

    def nodes(self) -> list[Node]:
        """The machines that are there now, by name. Names of nodes that are alike get a number; a node that was started
        again gets the name that it had."""
        import ray

        alive = sorted((n for n in ray.nodes() if n["Alive"]), key=lambda n: (n["NodeName"], n["NodeID"]))
        count = Counter(n["NodeName"] for n in alive)
        seen: Counter[str] = Counter()
        found = []
        for node in alive:
            name = node["NodeName"]
            if node["NodeID"] not in self._names:
                seen[name] += 1
                taken = {self._names[n["NodeID"]] for n in alive if n["NodeID"] in self._names}
                candidates = [name] if count[name] == 1 else []
                candidates += [f"{name}-{at}" for at in range(1, len(alive) + len(taken) + 2)]
                self._names[node["NodeID"]] = next(c for c in candidates if c not in taken)
            found.append(Node(self._names[node["NodeID"]], node["NodeID"], node["NodeManagerAddress"]))
        return sorted(found, key=lambda node: node.name)

    def node(self, name: str) -> Node:
        """One of them.

        Raises
        ------
        InputError : there is none of that name.
        """
        nodes = self.nodes()
        for node in nodes:
            if node.name == name:
                return node
        raise InputError(
            f"there is no node {name!r} in the cluster {self.address}: "
            f"it has {', '.join(node.name for node in nodes) or 'none'}",
            option="--on",
        )


_open: list[Machines] = []
_lock = threading.Lock()


@contextmanager
def connected(address: str) -> Iterator[Machines]:
    """A cluster at ``HOST:PORT`` (or ``auto``: the one that runs here), or ``local``: a node of this machine alone, or
    ``local:N``: N nodes that share its cores. What is started here ends with the block.

    Blocks may be nested, if they are about the same cluster.

    Raises
    ------
    InputError : the address is not of that form, or nobody answers there.
    """
    with _lock:
        if _open and _open[-1].address != address:
            raise InputError(
                f"this process is connected to the Ray cluster {_open[-1].address}, not {shown(address)}",
                option="--on",
            )
        machines = _open[-1] if _open else _connect(address)
        _open.append(machines)
    try:
        yield machines
    finally:
        with _lock:
            _open.pop()
            if not _open:
                _disconnect(machines)


def current() -> Machines:
    """The cluster of the innermost block.

    Raises
    ------
    InputError : there is none.
    """
    if not _open:
        raise InputError("devices of other machines need their Ray cluster: give its address", option="--on")
    return _open[-1]


def _connect(address: str) -> Machines:
    local = LOCAL.fullmatch(address)
    at = None if address.startswith("local:") else ADDRESS.fullmatch(address)
    if not local and not at and address != "auto":
        raise InputError(
            f"the cluster {shown(address)} must be local, local:N, auto or HOST:PORT of a Ray cluster",
            option="--on",
        )
    os.environ.update(SETTINGS)
    try:
        import ray
    except ImportError:
        raise InputError("many machines need the package ray: pip install 'loadmaster[ray]'") from None
    own = None
    if at:
        _answers(at["host"], int(at["port"]), address)
        _set_loopback(at["host"] in ("127.0.0.1", "localhost") and not _elsewhere(int(at["port"])))
    if local:
        own = local_nodes(int(local["count"] or 1))
        target = own.address
    else:
        target = address
    try:
        ray.init(
            address=target,
            log_to_driver=False,
            logging_level=logging.ERROR,
            namespace="loadmaster",
            configure_logging=False,
        )
    except (ConnectionError, RuntimeError, OSError, ValueError) as error:
        if own is not None:
            end_nodes(own)
        line = " ".join(str(error).split())[:200]
        raise InputError(f"the Ray cluster {shown(address)} cannot be used ({line})", option="--on") from None
    _keep_quiet()
    return Machines(address, own)


def _keep_quiet() -> None:
    """Ray prints on standard output that a worker died, in the middle of JSON; our own error says so."""
    import ray._private.worker as worker

    if hasattr(worker, "print_to_stdstream"):
        worker.print_to_stdstream = lambda *_, **__: None


def _answers(host: str, port: int, address: str) -> None:
    """Ray itself goes on trying for minutes."""
    try:
        socket.create_connection((host, port), PATIENCE).close()
    except (OSError, OverflowError) as error:
        raise InputError(
            f"no Ray cluster answers at {address} ({error}): start one with 'ray start --head', or use local",
            option="--on",
        ) from None


def _elsewhere(port: int) -> bool:
    """Whether the cluster of this machine also listens where others can reach it."""
    import ray.util

    where = ray.util.get_node_ip_address()
    if where.startswith("127."):  # what Ray says once it believes that there is one machine
        return False
    try:
        socket.create_connection((where, port), PATIENCE).close()
    except OSError:
        return False
    return True


def _set_loopback(on: bool) -> None:
    """Ray takes 127.0.0.1 for a mistake, unless it believes that there is one machine: then it listens nowhere else.

    It reads the setting when it is imported, and its processes when they are started.
    """
    import ray._private.ray_constants as constants

    os.environ[ONE_MACHINE] = "0" if on else "1"
    constants.ENABLE_RAY_CLUSTER = not on


def _disconnect(machines: Machines) -> None:
    import ray

    ray.shutdown()
    if machines.own is not None:
        end_nodes(machines.own)


def local_nodes(count: int) -> Any:
    """A cluster of ``count`` nodes of this machine, which share its cores and listen on loopback alone.

    With as many cores as nodes each has its own. Nodes are called ``node1``, ``node2`` and so on.

    Raises
    ------
    RunError : it cannot be started. Ray waits 30 seconds for a node, too short on a busy machine: it is tried again.
    """
    os.environ.update(SETTINGS | NOTICED)
    import ray  # noqa: F401 - it reads the settings

    logging.getLogger("ray").setLevel(logging.ERROR)
    _set_loopback(True)
    for left in reversed(range(ATTEMPTS)):
        try:
            return _started_nodes(count, _session_home())
        except Exception as error:
            if not left or "timed out" not in str(error):
                line = " ".join(str(error).split())[:200]
                raise RunError(f"a local Ray cluster could not be started ({line})") from None
    raise AssertionError


def _started_nodes(count: int, home: str | None) -> Any:
    from ray.cluster_utils import Cluster

    cores = allowed_cores()
    cluster = Cluster(shutdown_at_exit=True)
    cluster.reaper = _started_reaper()
    try:
        for at in range(count):
            more = {"temp_dir": home} if at == 0 and home else {}
            add_local_node(cluster, f"node{at + 1}", cores[at::count] or cores, **more)
    except BaseException:
        with contextlib.suppress(Exception):
            end_nodes(cluster, whole=False)
        raise
    return cluster


def add_local_node(cluster: Any, name: str, cores: list[int], **more: Any) -> Any:
    """One more node of this machine, kept to some of its cores."""
    with _kept_to(cores):
        return cluster.add_node(
            num_cpus=len(cores),
            object_store_memory=STORE,
            node_name=name,
            node_ip_address="127.0.0.1",
            include_dashboard=False,
            include_log_monitor=False,
            no_monitor=True,
            **more,
        )


def _session_home() -> str | None:
    """Where the files of a cluster go: Ray itself never takes them away. Those of processes that are gone, go here.

    None where its user has chosen a place, or where paths get too long for sockets; then it is where Ray puts them.
    """
    sweep_scratch()
    home = common_folder("ray")
    if home is None or len(str(home)) > LONGEST or os.environ.get(RAY_HOME, str(home)) != str(home):
        return None
    sweep_by_process(home, r"session_[-\d_]+_(\d{1,10})")
    os.environ[RAY_HOME] = str(home)
    (home / "ray").mkdir(exist_ok=True)  # Ray notes there which cluster was started last
    return str(home)


def _started_reaper() -> subprocess.Popen[bytes] | None:
    """What ends the cluster if this process is killed; its pipe to here closes then."""
    if not os.path.isdir("/proc/self"):
        return None
    command = [sys.executable, "-S", "-E", _reaper.__file__, str(os.getpid())]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, start_new_session=True)


def end_nodes(cluster: Any, *, whole: bool = True) -> None:
    """End a cluster that :func:`local_nodes` started, and take away its files; Ray knows nothing of what it could not
    start as a ``whole``."""
    session = cluster.head_node.get_session_dir_path() if cluster.head_node is not None else ""
    try:
        cluster.shutdown()
    finally:
        if cluster.reaper is not None:
            cluster.reaper.communicate(b"done" if whole else b"")
    home = os.environ.get(RAY_HOME)
    if home is not None and Path(home) == common_folder("ray"):
        sessions = [Path(session)] if whole else Path(home).glob(f"session_*_{os.getpid()}")
        for path in sessions:
            if path.parent == Path(home):
                shutil.rmtree(path, ignore_errors=True)
        del os.environ[RAY_HOME]


@contextmanager
def _kept_to(cores: list[int]) -> Iterator[None]:
    """What is started inside inherits these cores."""
    if not hasattr(os, "sched_setaffinity"):
        yield
        return
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, cores)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)
