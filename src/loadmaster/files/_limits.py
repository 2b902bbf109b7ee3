"""What a file may cost: every limit with its name, in one place.

A file may come from a stranger, and a few kilobytes can ask for gigabytes. What is beyond a limit is refused before the
memory is asked for. Whoever knows better raises a limit by the environment variable ``LOADMASTER_LIMITS``, e.g.
``LOADMASTER_LIMITS=devices=4096,json=20M``, or for one command by
``loadmaster --limit devices=4096 …``, which sets it.
"""

from __future__ import annotations

import math
import os
import re
from dataclasses import dataclass
from functools import lru_cache

from loadmaster.errors import InputError, LimitError

__all__ = ["LIMITS", "VARIABLE", "Limit", "add_limits", "check_limit", "limit"]

VARIABLE = "LOADMASTER_LIMITS"


@dataclass(frozen=True)
class Limit:
    """How much of something a file may ask for."""

    default: int
    what: str


LIMITS = {
    "file": Limit(256 * 2**20, "bytes of a file that is read as a whole: JSON, CSV, XML, weights of methods"),
    "toml": Limit(2**20, "bytes of a TOML file"),
    "model": Limit(2**31, "bytes of an .onnx file, or of a checkpoint"),
    "weights": Limit(2**40, "bytes of weights beside a model, or of a .pt2 file; they are mapped, not read"),
    "json": Limit(9_000_000, "values in a JSON text; an object counts as two"),
    "values": Limit(4_000_000, "elements of an IR, messages in an ONNX model"),
    "unpacked": Limit(256 * 2**20, "bytes that the packed data of a plan, a profile or an archive unpack to"),
    "elements": Limit(2**26, "elements of a constant that a model computes out of much smaller ones"),
    "devices": Limit(1024, "devices of a cluster, or of either kind in a workload"),
    "ops": Limit(1_000_000, "ops of a graph that is made by name (zoo:layered-1000000)"),
    "layers": Limit(200_000, "ops of a network that is built layer by layer (zoo:gnmt-8 has 51,417)"),
    "pairs": Limit(2**24, "ops times devices: the op times of a problem"),
}
"""Name -> limit. The numbers keep whatever is refused below a gigabyte of memory."""

NUMBER = re.compile(r"(\d+(?:\.\d+)?(?:e\d{1,2})?)\s*([kMG]?)")
FACTOR = {"": 1, "k": 10**3, "M": 10**6, "G": 10**9}


def limit(name: str) -> int:
    """The limit of that name, as it is set now.

    Raises
    ------
    InputError : the environment variable is not written ``NAME=NUMBER,…``, or names no limit.
    """
    return _parsed(os.environ.get(VARIABLE, "")).get(name, LIMITS[name].default)


def check_limit(name: str, amount: float, what: str) -> None:
    """Refuse what is beyond a limit; ``what`` completes "… but the limit is".

    Raises
    ------
    LimitError : names the amount, the limit, and how to raise it.
    """
    most = limit(name)
    if amount > most:
        raise LimitError(
            f"{what}, but the limit {name!r} is {most:,}: if that is meant, raise it with "
            f"{VARIABLE}={name}={_enough(amount)}"
        )


def add_limits(texts: list[str]) -> None:
    """Raise limits for this process and those that it starts: ``["devices=4096"]``."""
    if texts:
        value = ",".join(filter(None, [os.environ.get(VARIABLE, ""), *texts]))
        _parsed(value)
        os.environ[VARIABLE] = value


@lru_cache(maxsize=8)
def _parsed(text: str) -> dict[str, int]:
    found: dict[str, int] = {}
    for entry in filter(None, (part.strip() for part in text.split(","))):
        name, _, written = entry.partition("=")
        match = NUMBER.fullmatch(written.strip())
        if name.strip() not in LIMITS:
            raise InputError(f"there is no limit {name.strip()[:80]!r}: choose one of {', '.join(LIMITS)}")
        number = math.nan if match is None or len(written) > 30 else float(match[1]) * FACTOR[match[2]]
        if not number.is_integer():
            raise InputError(
                f"the limit {name.strip()} must be a whole number such as 4096, 2e6 or 512M, not {written[:80]!r}"
            )
        found[name.strip()] = int(number)
    return found


def _enough(amount: float) -> str:
    """A round number above the amount."""
    if not math.isfinite(amount) or amount >= 1e18:
        return "N"
    return str(int(amount)) if amount < 10_000 else f"{math.ceil(amount / 1e6)}M"
