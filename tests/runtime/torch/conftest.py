"""The small modules of the frontend's tests."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "graph" / "torch"))
