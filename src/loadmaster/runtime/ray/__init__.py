"""Several machines as one cluster, by Ray (the extra ``ray``): devices of other nodes, measured, placed and run.

Ray itself is imported when a cluster is used.
"""

from loadmaster.runtime.ray._actors import Actors, devices_of_nodes, see
from loadmaster.runtime.ray._connection import (
    Machines,
    Node,
    add_local_node,
    connected,
    current,
    local_nodes,
)
from loadmaster.runtime.ray._crew import Call, Crew, cores, crew, run_tasks, shared_actor
from loadmaster.runtime.ray._links import fit_hops, measure_links
from loadmaster.runtime.ray._net import Lasting, open_plan
from loadmaster.runtime.ray._plans import (
    all_cores_lines,
    how_to_run,
    open_session,
    profile_model,
    run_plan,
    serial_lines,
)
from loadmaster.runtime.ray._scheduling import Died, Ended, Event, Hands, Ready, Scheduler
from loadmaster.runtime.ray._session import RaySession
from loadmaster.runtime.ray._simulated import SimulatedCrew
from loadmaster.runtime.ray._slow import slow_devices
from loadmaster.runtime.ray._spread import Spread

__all__ = [
    "Actors",
    "Call",
    "Crew",
    "Died",
    "Ended",
    "Event",
    "Hands",
    "Lasting",
    "Machines",
    "Node",
    "RaySession",
    "Ready",
    "Scheduler",
    "SimulatedCrew",
    "Spread",
    "add_local_node",
    "all_cores_lines",
    "connected",
    "cores",
    "crew",
    "current",
    "devices_of_nodes",
    "fit_hops",
    "how_to_run",
    "local_nodes",
    "measure_links",
    "open_plan",
    "open_session",
    "profile_model",
    "run_plan",
    "run_tasks",
    "see",
    "serial_lines",
    "shared_actor",
    "slow_devices",
]
