"""One small model with branches, which devices can share."""

from __future__ import annotations

from pathlib import Path

import pytest
from small_networks import branched


@pytest.fixture(scope="session")
def model_file(tmp_path_factory) -> Path:
    return branched(tmp_path_factory.mktemp("branched") / "net.xml")
