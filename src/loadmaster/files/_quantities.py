"""Numbers with units, as cluster and cost files have them: ``"16 GiB"``, ``"12 GB/s"``, ``"9.3 TFLOP/s"``."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from decimal import Context, Decimal, localcontext
from typing import Any

from loadmaster.files._json import shown

__all__ = ["BYTES", "BYTES_PER_SECOND", "COUNT", "FLOP_PER_SECOND", "SECONDS", "Quantity", "parse_quantity"]


@dataclass(frozen=True)
class Quantity:
    """What a number measures; a number without a unit is in ``unit``."""

    name: str
    unit: str
    example: str

    def __str__(self) -> str:
        return self.name


SECONDS = Quantity("a time", "seconds", '"10 us"')
BYTES = Quantity("an amount of memory", "bytes", '"16 GiB"')
BYTES_PER_SECOND = Quantity("a bandwidth", "bytes per second", '"12 GB/s"')
FLOP_PER_SECOND = Quantity("a compute speed", "floating-point operations per second", '"9.3 TFLOP/s"')
COUNT = Quantity("a plain number", "no unit", "1.5e5")

DECIMAL = {
    p: Decimal(10) ** e for p, e in (("", 0), ("k", 3), ("K", 3), ("M", 6), ("G", 9), ("T", 12), ("P", 15))
}
BINARY = {p: Decimal(2) ** e for p, e in (("Ki", 10), ("Mi", 20), ("Gi", 30), ("Ti", 40))}

UNITS: dict[str, tuple[Quantity, Decimal]] = {
    **{
        u: (SECONDS, Decimal(10) ** e)
        for u, e in (("s", 0), ("ms", -3), ("us", -6), ("µs", -6), ("μs", -6), ("ns", -9))
    },
    **{f"{p}B": (BYTES, f) for p, f in (DECIMAL | BINARY).items()},
    **{f"{p}B/s": (BYTES_PER_SECOND, f) for p, f in (DECIMAL | BINARY).items()},
    **{f"{p}bit/s": (BYTES_PER_SECOND, f / 8) for p, f in DECIMAL.items()},
    **{
        f"{p}{unit}": (FLOP_PER_SECOND, f)
        for p, f in DECIMAL.items()
        for unit in ("FLOP/s", "flop/s", "FLOPS", "OP/s", "OPS")
    },
}
"""Unit -> what it measures, and its size. Case matters: a small b (bits) is written out as ``bit``."""

LONGEST = 100
"""Characters of a number with its unit; a longer text is something else."""
QUIET = Context(prec=60, traps=[])
"""What is beyond any exponent becomes infinite, or not a number, in place of an error."""
NUMBER = re.compile(r"\s*([+-]?(?:\d[\d_]*\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)\s*(.*?)\s*")


def parse_quantity(value: Any, quantity: Quantity) -> float:
    """The number in the quantity's own unit.

    >>> parse_quantity("12 GB/s", BYTES_PER_SECOND), parse_quantity("64 MiB", BYTES), parse_quantity(1, BYTES)
    (12000000000.0, 67108864.0, 1.0)

    Raises
    ------
    ValueError : not a number, not finite, of an unknown unit or of a unit that measures something else; the
        message completes "KEY must be …".
    """
    wanted = f"must be {quantity} in {quantity.unit} such as {quantity.example}"
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        kind = (
            "true or false" if isinstance(value, bool) else "a list" if isinstance(value, list) else "a table"
        )
        raise ValueError(f"{wanted}, not {kind}")
    if not isinstance(value, str):
        try:
            number = float(value)
        except OverflowError:
            number = math.inf
    else:
        match = NUMBER.fullmatch(value) if len(value) <= LONGEST else None
        if not match:
            raise ValueError(f"{wanted}, not {shown(value)}")
        with localcontext(QUIET):
            exact = Decimal(match[1].replace("_", ""))
        if match[2]:
            if match[2] not in UNITS:
                raise ValueError(f"{wanted}, but {match[2]!r} in {value!r} is not a unit")
            measured, factor = UNITS[match[2]]
            if measured is not quantity:
                raise ValueError(f"{wanted}, but {value!r} is {measured}")
            with localcontext(QUIET):
                exact *= factor  # in decimal, so that "10 us" is 1e-05 and not 9.999999999999999e-06
        number = float(exact)
    if not math.isfinite(number):
        raise ValueError(f"{wanted}, not {shown(value) if not isinstance(value, str) else value}")
    return number
