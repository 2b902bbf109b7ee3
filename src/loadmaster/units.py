"""Numbers as people read them."""

from __future__ import annotations

__all__ = ["bar", "bytes_text", "percent", "seconds_text"]


def seconds_text(seconds: float | None) -> str:
    """A time with three or four digits and its unit.

    >>> seconds_text(0.0177899), seconds_text(3.2e-5), seconds_text(61.5)
    ('17.79 ms', '32.00 µs', '61.50 s')
    """
    if seconds is None:
        return "–"
    for factor, unit in ((1.0, "s"), (1e3, "ms"), (1e6, "µs"), (1e9, "ns")):
        scaled = seconds * factor
        if scaled >= 1 or unit == "ns":
            break
    if seconds == 0:
        return "0 s"
    digits = 2 if scaled < 100 else 1 if scaled < 1000 else 0
    return f"{scaled:,.{digits}f} {unit}"


def bytes_text(count: float | None) -> str:
    """A number of bytes with its unit; None is no limit."""
    if count is None:
        return "–"
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if count < 1024 or unit == "TiB":
            break
        count /= 1024
    return f"{count:,.0f} {unit}" if unit == "B" else f"{count:,.1f} {unit}"


def percent(share: float | None) -> str:
    """A share as a percentage; small ones keep two digits."""
    if share is None:
        return "–"
    return f"{100 * share:.2f} %"


def bar(share: float, width: int = 16) -> str:
    """A bar of text, ``width`` characters for a share of 1."""
    filled = round(8 * width * min(max(share, 0.0), 1.0))
    whole, part = divmod(filled, 8)
    return "█" * whole + (" ▏▎▍▌▋▊▉"[part] if part else "")
