"""Sixteen colours that colour-blind eyes can tell apart.

The first seven are those of M. Okabe, K. Ito, "Color universal design", 2008. Each further one is as far as can be from
all before it, to normal, red-blind and green-blind eyes alike (G. M. Machado et al., "A physiologically-based model for
simulation of color vision deficiency", 2009): no two are nearer than 17 in CIELAB, where 2 can just be seen.
"""

from __future__ import annotations

__all__ = ["device_colours"]

COLOURS = (
    "#0072B2", "#E69F00", "#009E73", "#CC79A7", "#D55E00", "#56B4E9", "#F0E442",
    "#1414FB", "#BCFBA7", "#143E3E", "#1429A7", "#533E14", "#3E7DFB", "#A7FBE6", "#3E2968", "#53BC68",
)  # fmt: skip
"""Without black, which is text and critical path."""


def device_colours(count: int) -> list[str]:
    """One colour a device; from the seventeenth on the same hues, paler and then darker.

    >>> device_colours(2)
    ['#0072B2', '#E69F00']
    """
    return [_mixed(COLOURS[d % len(COLOURS)], d // len(COLOURS)) for d in range(count)]


def _mixed(colour: str, turn: int) -> str:
    if turn == 0:
        return colour
    towards = 255 if turn % 2 else 0
    share = 0.5 if turn < 3 else 0.7
    parts = [int(colour[i : i + 2], 16) for i in (1, 3, 5)]
    return "#" + "".join(f"{round(p + (towards - p) * share):02X}" for p in parts)
