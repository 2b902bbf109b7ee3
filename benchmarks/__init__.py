"""What is fast, measured as ratios against a named reference of the same run; never asserted in a test."""
