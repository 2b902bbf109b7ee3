"""What the pre-trained policy of ``gdp`` is worth on families of graphs that it was not trained on."""

from benchmarks.gdp.study import STUDY

__all__ = ["STUDY"]
