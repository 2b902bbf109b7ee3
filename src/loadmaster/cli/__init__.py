"""The command line: a thin layer over :mod:`loadmaster.api`, :mod:`loadmaster.optimize` and :mod:`loadmaster.report`.

Standard output holds the result and nothing else. Exit codes: 0 done, 1 a plan that must not be run (``lint``), 2 wrong
input, 3 infeasible, 4 a run failed. Everything heavy is imported inside the commands, so that ``--help`` is instant.
"""

from loadmaster.cli._app import app, main

__all__ = ["app", "main"]
