"""Files: JSON and TOML with errors that name the place, quantities with units, writing whole or not at all."""

from loadmaster.files._atomic import check_writable, write_atomically
from loadmaster.files._bytes import read_bytes, read_text
from loadmaster.files._json import Record, named, parse_json, read_json, shown
from loadmaster.files._npz import read_arrays
from loadmaster.files._quantities import (
    BYTES,
    BYTES_PER_SECOND,
    COUNT,
    FLOP_PER_SECOND,
    SECONDS,
    Quantity,
    parse_quantity,
)
from loadmaster.files._toml import Table, line_numbers, parse_toml

__all__ = [
    "BYTES",
    "BYTES_PER_SECOND",
    "COUNT",
    "FLOP_PER_SECOND",
    "SECONDS",
    "Quantity",
    "Record",
    "Table",
    "check_writable",
    "line_numbers",
    "named",
    "parse_json",
    "parse_quantity",
    "parse_toml",
    "read_arrays",
    "read_bytes",
    "read_json",
    "read_text",
    "shown",
    "write_atomically",
]
