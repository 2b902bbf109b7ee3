"""Everything that can go wrong, as one tree.

LoadmasterError
├── InputError          a file, option or argument is wrong            (command line: exit code 2)
│   ├── GraphError      an invalid graph: cycle, unknown op, duplicate, bad number
│   └── LimitError      more than a file may ask for, unless the limit is raised
├── UnsupportedError    this placer cannot handle this problem         (exit code 2)
├── NoPlacementError    there is no placement to return
│   ├── InfeasibleError     no placement satisfies the constraints     (exit code 3)
│   └── UndecidedError      none was found in time; there may be one   (exit code 5)
└── RunError            a plan or a model failed when it was run       (exit code 4)
    ├── WrongOutputError    it ran, but its outputs differ from those of the unplaced model
    ├── WorkerError         the process that ran it died
    ├── RunTimeoutError     it exceeded its time limit
    └── BusyError           the machine is too busy to measure anything
"""

from __future__ import annotations

import re

__all__ = [
    "BusyError",
    "GraphError",
    "InfeasibleError",
    "InputError",
    "LimitError",
    "LoadmasterError",
    "NoPlacementError",
    "RunError",
    "RunTimeoutError",
    "UndecidedError",
    "UnsupportedError",
    "WorkerError",
    "WrongOutputError",
]

ECHOED = 200
"""Characters of a name or a value from a file that a message repeats."""
LONGEST = 1000
"""Characters of a message."""
LONG_WORD = re.compile(rf"(?<!\S)(\S{{{ECHOED}}})\S{{2,}}")
LONG_QUOTE = re.compile(rf"""(['"])((?:(?!\1).){{{ECHOED}}})(?:(?!\1).){{2,}}\1""", re.DOTALL)


def _brief(text: str) -> str:
    """The message with what it repeats cut short: a file can call its ops whatever it likes."""
    if len(text) <= ECHOED:
        return text
    text = LONG_QUOTE.sub(r"\1\2…\1", text[: 20 * LONGEST])
    text = LONG_WORD.sub(r"\1…", text)
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}…"


class LoadmasterError(Exception):
    """Base of all errors that Loadmaster raises on purpose; the message is one sentence for the user.

    The sentence fits a caller in Python. ``option`` is what the command line calls the thing to change; it says so
    behind the sentence.
    """

    def __init__(self, *arguments: object, option: str = "") -> None:
        super().__init__(*(_brief(text) if isinstance(text, str) else text for text in arguments))
        self.option = option


class InputError(LoadmasterError, ValueError):
    """The input is wrong: the message names the file, op or option, and what to do."""


class GraphError(InputError):
    """The operator graph is not valid: the message names the op."""


class LimitError(InputError):
    """A file asks for more than a limit allows: the message names the limit and how to raise it."""


class UnsupportedError(LoadmasterError):
    """The chosen placer does not support the problem; the message says why."""


class NoPlacementError(LoadmasterError):
    """A method has no placement to return."""


class InfeasibleError(NoPlacementError):
    """No placement satisfies the constraints; the message names the constraint and by how much it fails."""


class UndecidedError(NoPlacementError):
    """The budget was used up before a feasible placement was known; more time may help."""


class RunError(LoadmasterError):
    """Running a model failed; the message names the submodel or the device."""


class WrongOutputError(RunError):
    """A placed model gave different outputs from the unplaced one, or the comparison could not have failed."""


class WorkerError(RunError):
    """The worker process died; the message says why."""


class RunTimeoutError(RunError):
    """A run exceeded its time limit; its worker was stopped."""


class BusyError(RunError):
    """Other work disturbed too many measurements; the message says how many."""
