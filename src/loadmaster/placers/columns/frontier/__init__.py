"""Pipelined throughput without contiguity: a bound by column generation over bundles, and placements to meet it."""

from loadmaster.placers.columns.frontier.frontier import Frontier

__all__ = ["Frontier"]
