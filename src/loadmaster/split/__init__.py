"""A model of PyTorch split over ranks: costs measured, stages placed with a proof, and what the usual rules would give.

``split`` is what the command of that name calls. Importing this package does not import PyTorch; splitting does.
"""

from loadmaster.split._documents import split_document
from loadmaster.split._job import Split, split
from loadmaster.split._rules import RULES, RuleError, Unit, block_parts, chain_of_units, place_by_rule

__all__ = [
    "RULES",
    "RuleError",
    "Split",
    "Unit",
    "block_parts",
    "chain_of_units",
    "place_by_rule",
    "split",
    "split_document",
]
