"""Pipeline throughput without contiguity: a bound by column generation over bundles, and placements to meet it."""

from loadmaster.placers.columns.frontier.frontier import Frontier, all_states

__all__ = ["Frontier", "all_states"]
