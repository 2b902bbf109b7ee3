"""Latency of the ``offload`` model: chains of calls, and a bound by column generation over calls."""

from loadmaster.placers.columns.calls.calls import Calls, chain_calls, prove_calls

__all__ = ["Calls", "chain_calls", "prove_calls"]
