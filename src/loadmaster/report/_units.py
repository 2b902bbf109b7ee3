"""Numbers as people read them; see :mod:`loadmaster.units`, which the packages below ``report`` use as well."""

from loadmaster.units import bar, bytes_text, percent, seconds_text

__all__ = ["bar", "bytes_text", "percent", "seconds_text"]
