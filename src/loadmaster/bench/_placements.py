"""Placements as files: packed into a few characters for keeping, or plain lists that any program can write."""

from __future__ import annotations

import base64
import zlib
from typing import Any

import numpy as np
import numpy.typing as npt

from loadmaster.errors import InputError
from loadmaster.files import Record, shown
from loadmaster.plan import placement_from_document
from loadmaster.problem import Placement, Problem

__all__ = ["pack_array", "pack_placement", "read_numbers", "unpack_array", "unpack_placement"]

TYPES = ("|u1", "<u2", "<i4", "<f4", "<f8")
MOST = 2**31


def pack_array(array: npt.NDArray[Any]) -> dict[str, Any]:
    """An array as JSON: whole numbers in the narrowest type, all compressed."""
    kind = array.dtype.str
    if array.dtype.kind in "iu":
        most = int(array.max(initial=0))
        kind = "|u1" if most < 256 else "<u2" if most < 65536 else "<i4"
    content = zlib.compress(array.astype(kind).tobytes(), 9)
    return {"dtype": kind, "length": int(array.size), "data": base64.b64encode(content).decode("ascii")}


def unpack_array(value: Any, length: int, where: str) -> npt.NDArray[Any]:
    """What :func:`pack_array` packed, if it has ``length`` entries.

    Raises
    ------
    InputError : it is damaged, or of another length.
    """
    record = Record(value, where)
    kind = record.text("dtype")
    if kind not in TYPES or record.integer("length") != length:
        raise InputError(f"{where}: must hold {length:,} numbers, not {shown(record.value.get('length'))}")
    size = np.dtype(kind).itemsize * length
    try:
        content = zlib.decompressobj().decompress(
            base64.b64decode(record.text("data"), validate=True), size + 1
        )
    except (ValueError, zlib.error) as error:
        raise InputError(f"{where}: is not packed data ({error})") from None
    if len(content) != size:
        raise InputError(f"{where}: must hold {length:,} numbers; its data do not")
    return np.frombuffer(content, kind)


def pack_placement(placement: Placement) -> dict[str, Any]:
    """``device``, and ``order`` and ``call`` where the placement has them."""
    arrays = {"device": placement.device, "order": placement.order, "call": placement.call}
    return {name: pack_array(array) for name, array in arrays.items() if array is not None}


def unpack_placement(value: Any, problem: Problem, where: str) -> Placement:
    """A placement from packed arrays, from lists of numbers op by op, or from names (``placement``).

    Raises
    ------
    InputError : it does not fit the problem.
    """
    record = Record(value, where)
    if "placement" in record and "device" not in record:
        return placement_from_document(value, problem, where)
    found = {
        name: read_numbers(record.value[name], problem.n, f"{where}: {name}")
        for name in ("device", "order", "call")
        if record.value.get(name) is not None
    }
    if "device" not in found:
        raise InputError(f"{where}: has no 'device', a list with the number of a device for every op")
    wrong = np.flatnonzero((found["device"] < 0) | (found["device"] >= problem.devices))
    if len(wrong):
        raise InputError(
            f"{where}: op {int(wrong[0])} is on device {int(found['device'][wrong[0]])}, but the devices are "
            f"0 to {problem.devices - 1}"
        )
    return Placement(**found)


def read_numbers(value: Any, length: int, where: str) -> npt.NDArray[np.int32]:
    """Whole numbers, one per op, packed or as a list."""
    if isinstance(value, list):
        if len(value) != length:
            raise InputError(f"{where}: must have {length:,} entries, one per op, not {len(value):,}")
        if any(type(x) is not int or not -MOST <= x < MOST for x in value):
            raise InputError(f"{where}: must be a list of whole numbers")
        return np.array(value, np.int32)
    array = unpack_array(value, length, where)
    if array.dtype.kind == "f":
        raise InputError(f"{where}: must hold whole numbers")
    return array.astype(np.int32)
