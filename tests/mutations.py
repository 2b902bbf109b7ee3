"""Where the tests find the mutators of the campaigns."""

from campaigns._mutators import HOSTILE, damaged, mutated_json, mutated_text, mutated_tree

__all__ = ["HOSTILE", "damaged", "mutated_json", "mutated_text", "mutated_tree"]
