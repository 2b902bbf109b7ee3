"""Column generation: bounds from prices on bundles and calls, and placements that meet them."""
