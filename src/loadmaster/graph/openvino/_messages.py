"""What OpenVINO says when it cannot read a model, as one sentence that names the op."""

from __future__ import annotations

import re

__all__ = ["one_line", "refusal"]

FAILED = re.compile(
    r"While validating ONNX node '<Node\((?P<kind>[^)]*)\): (?P<name>[^>]*)>':\s*(?P<why>[^\n]*)"
)
MISSING = re.compile(r"No conversion rule found for operations: (?P<kinds>[^\n]*)")
FOLLOWS = "type dynamic"
"""Said of an op whose input comes from one that was not converted."""


def one_line(error: BaseException) -> str:
    """The last telling line of a message of OpenVINO's, which begins with places in its source."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    telling = [line for line in lines if not line.startswith(("Exception from", "Check '"))] or lines
    return telling[-1][:300] if telling else type(error).__name__


def refusal(path: object, error: BaseException) -> str:
    """Why OpenVINO cannot read an ONNX file: the op, where it says which, and what it says about it.

    >>> refusal("m.onnx", RuntimeError("While validating ONNX node '<Node(STFT): image>':\\nits rank must be 3"))
    "m.onnx: OpenVINO cannot convert the op that makes 'image' (STFT: its rank must be 3)"
    """
    missing = MISSING.search(str(error))
    if missing:
        return f"{path}: OpenVINO cannot convert ops of the types {missing['kinds'].strip()}"
    failed = list(FAILED.finditer(str(error)))
    if not failed:
        return f"{path}: OpenVINO cannot read it ({one_line(error)})"
    first = next((match for match in failed if FOLLOWS not in match["why"]), failed[0])
    name = f"the op that makes {first['name']!r}" if first["name"] else "an op"
    said = first["why"].strip().rstrip(".")[:200]
    return f"{path}: OpenVINO cannot convert {name} ({first['kind']}{': ' if said else ''}{said})"
