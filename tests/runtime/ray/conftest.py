"""Two nodes of this machine, started once for all tests that need machines."""

from __future__ import annotations

import os

import pytest
from small_networks import branched

from loadmaster.runtime.openvino import parse_devices

ON = "local:2"
DEVICES = ["node1/CPU", "node2/CPU"]


@pytest.fixture(scope="session")
def machines():
    """Connected as long as the tests run; ``--on local:2`` inside means these."""
    from loadmaster.runtime import ray

    before = dict(os.environ)
    with ray.connected(ON) as found:
        yield found
    os.environ.clear()
    os.environ.update(before)


@pytest.fixture(scope="session")
def devices():
    return parse_devices(DEVICES)


@pytest.fixture(scope="session")
def network(tmp_path_factory):
    """The file of a network with branches and two outputs."""
    return branched(tmp_path_factory.mktemp("branched") / "net.xml")


@pytest.fixture(scope="module")
def session(machines, network, devices):
    from loadmaster.runtime import ray

    with ray.open_session(network, devices, clock="core") as opened:
        yield opened
