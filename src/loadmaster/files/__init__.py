"""Files: JSON and TOML with errors that name the place, quantities with units, writing whole or not at all."""

from loadmaster.files._archive import read_archive
from loadmaster.files._atomic import check_writable, write_atomically
from loadmaster.files._bytes import check_regular, read_bytes, read_text
from loadmaster.files._json import Record, named, parse_json, read_json, shown
from loadmaster.files._leftovers import common_folder, scratch_folder, sweep_by_process, sweep_scratch
from loadmaster.files._limits import LIMITS, Limit, add_limits, check_limit, limit
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
    "LIMITS",
    "SECONDS",
    "Limit",
    "Quantity",
    "Record",
    "Table",
    "add_limits",
    "check_limit",
    "check_regular",
    "check_writable",
    "common_folder",
    "limit",
    "line_numbers",
    "named",
    "parse_json",
    "parse_quantity",
    "parse_toml",
    "read_archive",
    "read_arrays",
    "read_bytes",
    "read_json",
    "read_text",
    "scratch_folder",
    "shown",
    "sweep_by_process",
    "sweep_scratch",
    "write_atomically",
]
