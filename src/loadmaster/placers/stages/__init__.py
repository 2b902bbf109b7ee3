"""Chains of stages for ``pipeline``: ideals, topological orders, and baselines that cut one order.

``ideal-dp`` is exact (``ideal_dp/``, on one page in ``ideal_dp/plain.py``), ``linear-dp`` for graphs with too many
ideals (``linear_dp/``); ``pipedream`` and ``balanced`` are baselines. All see the problem as ``_contraction.py``
makes it.
"""
