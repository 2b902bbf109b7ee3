"""One small model, and one worker that most tests share: starting a process takes longer than what it is asked."""

from __future__ import annotations

from pathlib import Path

import pytest
from small_networks import CLOCK, DEVICES, branched, write_network

from loadmaster.graph import load_openvino
from loadmaster.runtime import Cache
from loadmaster.runtime.openvino import OpenVinoSession, parse_devices, profile_model


@pytest.fixture(scope="session")
def network(tmp_path_factory) -> Path:
    """The file of a small residual network."""
    return write_network(tmp_path_factory.mktemp("network") / "net.xml")


@pytest.fixture(scope="session")
def graph(network):
    return load_openvino(network).graph


@pytest.fixture(scope="module")
def session(network):
    with OpenVinoSession(network, parse_devices(DEVICES), clock=CLOCK) as opened:
        yield opened


@pytest.fixture(scope="session")
def model_file(tmp_path_factory) -> Path:
    """The file of a network with branches."""
    return branched(tmp_path_factory.mktemp("branched") / "net.xml")


@pytest.fixture(scope="session")
def cache(tmp_path_factory):
    return Cache(tmp_path_factory.mktemp("cache") / "cache.sqlite")


@pytest.fixture(scope="session")
def profile(network, cache):
    return profile_model(network, parse_devices(DEVICES[:2]), cache=cache, clock=CLOCK)


@pytest.fixture(scope="session")
def problem(profile):
    return profile.problem()
