"""Best known values: one small file per instance, with the placement, who found it, and what is proved."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from loadmaster.bench._placements import unpack_placement
from loadmaster.errors import InputError
from loadmaster.files import Record, read_json, write_atomically
from loadmaster.problem import OPTIMAL_GAP, Placement, Problem, relative_gap

__all__ = ["FOLDER", "FORMAT", "Known", "read_known", "today", "write_known"]

FORMAT = "loadmaster-known/1"
FOLDER = Path(__file__).parent / "known"


def today() -> str:
    """The date, as files have it."""
    return datetime.now(UTC).date().isoformat()


@dataclass(frozen=True)
class Known:
    """The best that is known about an instance.

    ``bound`` is the best proven bound and ``bound_by`` says by which method or argument; ``checked`` is the best that
    ``certificate`` proves to a program that trusts nobody (:mod:`._proofs`), 0 where there is none.
    """

    instance: str
    hash: str
    cost: float
    placement: Mapping[str, Any]
    found_by: str
    found_on: str
    bound: float = 0.0
    bound_by: str = ""
    bound_on: str = ""
    checked: float = 0.0
    certificate: Mapping[str, Any] | None = None
    notes: tuple[str, ...] = field(default=())

    @property
    def gap(self) -> float:
        """Relative, by the best proven bound."""
        return relative_gap(self.cost, self.bound)

    @property
    def proved(self) -> bool:
        """The optimum, by the best proven bound."""
        return self.gap <= OPTIMAL_GAP

    @property
    def proof_checked(self) -> bool:
        """The optimum, by a certificate that is checked again."""
        return relative_gap(self.cost, self.checked) <= OPTIMAL_GAP

    def unpacked(self, problem: Problem) -> Placement:
        """The placement."""
        return unpack_placement(self.placement, problem, f"known/{self.instance}.json")


def read_known(name: str, folder: Path = FOLDER) -> Known | None:
    """What is known about an instance, None if nothing is.

    Raises
    ------
    InputError : the file is not what it should be.
    """
    path = folder / f"{name}.json"
    if not path.is_file():
        return None
    record = Record(read_json(path, "a best known value"), str(path))
    if record.text("format") != FORMAT or record.text("instance") != name:
        raise InputError(f"{path}: is not the best known value of {name}")
    certificate = record.value.get("certificate")
    return Known(
        name,
        record.text("hash"),
        record.number("cost"),
        Record(record.get("placement"), f"{path}: placement").value,
        record.text("found_by"),
        record.text("found_on"),
        record.number("bound", 0.0),
        record.text("bound_by", ""),
        record.text("bound_on", ""),
        record.number("checked", 0.0),
        None if certificate is None else Record(certificate, f"{path}: certificate").value,
        tuple(str(note) for note in record.items("notes", [])),
    )


def write_known(known: Known, folder: Path = FOLDER) -> Path:
    """Keep it, in place of what was there."""
    document: dict[str, Any] = {"format": FORMAT}
    for name, value in vars(known).items():
        if value not in (None, "", ()) and not (name in ("bound", "checked") and value == 0.0):
            document[name] = list(value) if isinstance(value, tuple) else value
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{known.instance}.json"
    write_atomically(path, (json.dumps(document, indent=1) + "\n").encode())
    return path
