"""What every placer stands in: the protocol, the budget and the search, the common frames, feasibility."""
