"""General solvers: CP-SAT and HiGHS on programs of each execution model."""
