"""Everything that can go wrong, as one tree.

LoadmasterError
├── InputError          a file, option or argument is wrong            (command line: exit code 2)
│   └── GraphError      a graph that is no graph: cycle, unknown end, duplicate, bad number
├── UnsupportedError    this placer cannot handle this problem         (exit code 2)
└── InfeasibleError     no placement satisfies the constraints         (exit code 3)
"""

from __future__ import annotations

__all__ = ["GraphError", "InfeasibleError", "InputError", "LoadmasterError", "UnsupportedError"]


class LoadmasterError(Exception):
    """Base of all errors that Loadmaster raises on purpose; the message is one sentence for the user."""


class InputError(LoadmasterError, ValueError):
    """The input is wrong: the message names the file, op or option, and what to do."""


class GraphError(InputError):
    """The operator graph is not valid: the message names the op."""


class UnsupportedError(LoadmasterError):
    """The chosen placer does not support the problem; the message says why."""


class InfeasibleError(LoadmasterError):
    """No placement satisfies the constraints; the message names the constraint and by how much it fails."""
