"""A small workload in a file."""

from __future__ import annotations

import pytest
from commands import write


@pytest.fixture
def workload(tmp_path):
    nodes = [
        {"id": i, "cpuLatency": 10, "fpgaLatency": 1, "size": 1, "supportedOnFpga": i != 3} for i in range(6)
    ]
    edges = [{"sourceId": i, "destId": i + 1, "cost": 0.25} for i in range(5)]
    data = {"maxFPGAs": 2, "maxCPUs": 1, "maxSizePerFPGA": 5, "nodes": nodes, "edges": edges}
    return write(tmp_path / "workload.json", data)
