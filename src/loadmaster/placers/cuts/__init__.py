"""Minimum cuts for the ``serial`` model: ``min_cut.py``, and on one page ``plain.py``."""
