"""The command line: a thin layer over :mod:`loadmaster.api`."""

from loadmaster.cli._placing import app, main

__all__ = ["app", "main"]
