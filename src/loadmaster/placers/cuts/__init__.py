"""Minimum cuts for the ``serial`` model."""
