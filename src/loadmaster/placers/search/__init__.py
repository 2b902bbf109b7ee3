"""Search: many placements evaluated, the best kept; walks, annealing, beams."""
