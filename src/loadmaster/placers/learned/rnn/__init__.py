"""The RNN-based placer."""
