"""Where the tests find :mod:`loadmaster.testing.strategies`."""

from loadmaster.testing.strategies import graphs, models, placements, problems

__all__ = ["graphs", "models", "placements", "problems"]
