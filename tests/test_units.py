"""Numbers are shown as people read them."""

from __future__ import annotations

from loadmaster.units import bytes_text, seconds_text


def test_numbers_are_shown_as_people_read_them():
    times = {
        0.0: "0 s",
        3e-9: "3.00 ns",
        4.56e-5: "45.60 µs",
        0.01779: "17.79 ms",
        1.5: "1.50 s",
        7200: "7,200 s",
    }
    assert {seconds: seconds_text(seconds) for seconds in times} == times
    sizes = {0: "0 B", 1023: "1,023 B", 1536: "1.5 KiB", 2**34: "16.0 GiB"}
    assert {size: bytes_text(size) for size in sizes} == sizes
