"""Colours that colour-blind eyes can tell apart: M. Okabe, K. Ito, "Color universal design", 2008."""

from __future__ import annotations

__all__ = ["device_colours"]

OKABE_ITO = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#D55E00", "#56B4E9", "#F0E442")
"""Without black, which is text and critical path. Neighbours in the list differ most in lightness."""


def device_colours(count: int) -> list[str]:
    """One colour a device; from the eighth on the same hues, paler and then darker.

    >>> device_colours(2)
    ['#0072B2', '#E69F00']
    """
    return [_mixed(OKABE_ITO[d % len(OKABE_ITO)], d // len(OKABE_ITO)) for d in range(count)]


def _mixed(colour: str, turn: int) -> str:
    if turn == 0:
        return colour
    towards = 255 if turn % 2 else 0
    share = 0.5 if turn < 3 else 0.7
    parts = [int(colour[i : i + 2], 16) for i in (1, 3, 5)]
    return "#" + "".join(f"{round(p + (towards - p) * share):02X}" for p in parts)
