"""One small model, and one worker that most tests share: starting a process takes longer than what it is asked."""

from __future__ import annotations

from pathlib import Path

import pytest
from small_networks import CLOCK, DEVICES, write_network

from loadmaster.graph import load_openvino
from loadmaster.runtime import Session, parse_devices


@pytest.fixture(scope="session")
def network(tmp_path_factory) -> Path:
    """The file of a small residual network."""
    return write_network(tmp_path_factory.mktemp("network") / "net.xml")


@pytest.fixture(scope="session")
def graph(network):
    return load_openvino(network).graph


@pytest.fixture(scope="module")
def session(network):
    with Session(network, parse_devices(DEVICES), clock=CLOCK) as opened:
        yield opened
