"""Docstrings as mkdocstrings shows them: Sphinx roles become code, ``>>>`` lines a block of code.

Our sections say ``name : what it is`` on one line; numpydoc would take that for a type.
"""

import re
from typing import Any

import griffe

ROLE = re.compile(r":(?:class|func|meth|mod|data|attr|exc):`~?\.?([^`]+)`")


ENTRY = re.compile(r"^(\S.*?) : (.*)$")


def described(text: str) -> str:
    """Entries of sections with their description on a line of its own."""
    lines: list[str] = []
    inside = False
    for line in text.splitlines():
        if re.fullmatch(r"-{3,}", line) and lines:
            inside = lines[-1] in ("Parameters", "Attributes", "Raises", "Returns")
        entry = ENTRY.match(line) if inside else None
        lines += [entry[1], "    " + entry[2]] if entry else [line]
    return "\n".join(lines)


def as_markdown(text: str) -> str:
    """The text with roles as code and examples fenced; the comment sign before an example is left out."""
    lines: list[str] = []
    inside = False
    for line in ROLE.sub(r"`\1`", text).splitlines():
        prompt = line.lstrip().startswith((">>>", "..."))
        if prompt and not inside:
            lines += ["", "```python"]
            inside = True
        elif inside and not line.strip():
            lines += ["```", ""]
            inside = False
        lines.append(re.sub(r"^\s*(?:>>>|\.\.\.) # ?", "", line) if inside else line)
    return "\n".join([*lines, "```"] if inside else lines)


class Docstrings(griffe.Extension):
    """Rewrites every docstring before it is parsed."""

    def on_instance(self, *, obj: griffe.Object, **_: Any) -> None:
        """Called for every module, class, function and attribute."""
        if obj.docstring is not None:
            obj.docstring.value = as_markdown(described(obj.docstring.value))
