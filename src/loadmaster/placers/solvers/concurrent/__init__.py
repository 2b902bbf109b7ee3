"""Placement and schedule as a constraint program, for the ``concurrent`` model."""
