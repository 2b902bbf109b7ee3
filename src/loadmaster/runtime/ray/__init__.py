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
from loadmaster.runtime.ray._device import memory_of_this_node
from loadmaster.runtime.ray._links import Calls, fit_hops, measure_calls, measure_links
from loadmaster.runtime.ray._net import Lasting, open_plan
from loadmaster.runtime.ray._plans import (
    all_cores_lines,
    how_to_run,
    open_session,
    profile_model,
    run_plan,
    serial_lines,
    verify_plan,
)
from loadmaster.runtime.ray._replanning import Placing, place_on
from loadmaster.runtime.ray._scheduling import Died, Ended, Event, Hands, Ready, Scheduler
from loadmaster.runtime.ray._segments import Needs, as_one, joined, needs_of, segments
from loadmaster.runtime.ray._session import RaySession
from loadmaster.runtime.ray._simulated import SimulatedCrew
from loadmaster.runtime.ray._slow import better_plan, slow_devices, slow_factors
from loadmaster.runtime.ray._spread import Spread

__all__ = [
    "Actors",
    "Call",
    "Calls",
    "Crew",
    "Died",
    "Ended",
    "Event",
    "Hands",
    "Lasting",
    "Machines",
    "Needs",
    "Node",
    "Placing",
    "RaySession",
    "Ready",
    "Scheduler",
    "SimulatedCrew",
    "Spread",
    "add_local_node",
    "all_cores_lines",
    "as_one",
    "better_plan",
    "connected",
    "cores",
    "crew",
    "current",
    "devices_of_nodes",
    "fit_hops",
    "how_to_run",
    "joined",
    "local_nodes",
    "measure_calls",
    "measure_links",
    "memory_of_this_node",
    "needs_of",
    "open_plan",
    "open_session",
    "place_on",
    "profile_model",
    "run_plan",
    "run_tasks",
    "see",
    "segments",
    "serial_lines",
    "shared_actor",
    "slow_devices",
    "slow_factors",
    "verify_plan",
]
