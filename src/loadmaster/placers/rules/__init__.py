"""Rules: one pass over the ops and an answer; the heuristics of the literature and the baselines."""
