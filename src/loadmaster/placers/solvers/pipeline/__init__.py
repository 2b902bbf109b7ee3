"""Pipelined throughput as a 0/1 program, and the solvers that take it."""
