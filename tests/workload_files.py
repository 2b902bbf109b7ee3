"""Where the published workloads are."""

from __future__ import annotations

import os
from pathlib import Path

WORKLOADS = Path(os.environ.get("LOADMASTER_WORKLOADS", Path(__file__).parents[2] / "shared" / "workloads"))
"""Published workloads, read from here and never copied; see CONTRIBUTING.md."""
