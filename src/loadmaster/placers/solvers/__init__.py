"""General solvers: CP-SAT (``cp_sat.py``), HiGHS (``milp.py``), and both side by side (``exact.py``).

The programs that they solve are in ``pipeline/``, ``concurrent/`` and ``offload.py``, by execution model.
"""
