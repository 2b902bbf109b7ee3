"""Stages: chains of convex parts for pipelined throughput, exact or along one topological order."""
