"""Submissions: checked first, and only then kept."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

from loadmaster.bench._instances import Instance, content_hash, instances
from loadmaster.bench._known import FOLDER, Known, read_known, today, write_known
from loadmaster.bench._placements import pack_placement, unpack_placement
from loadmaster.bench._pricing import certify
from loadmaster.bench._proofs import checked_bound
from loadmaster.bench._verifying import CLOSE, independent_cost
from loadmaster.errors import InputError
from loadmaster.files import Record, read_json, write_atomically
from loadmaster.problem import Placement, Problem

__all__ = ["FORMAT", "Verdict", "certificate_for", "submission", "submit", "write_submission"]

FORMAT = "loadmaster-submission/1"


class Verdict(dict[str, Any]):
    """What became of a submission: ``instance``, ``cost``, ``kept`` (what was replaced), ``why``."""


def submission(
    instance: Instance,
    placement: Placement,
    cost: float,
    *,
    found_by: str,
    bound: float = 0.0,
    bound_by: str = "",
    certificate: Any = None,
    hash: str = "",
) -> dict[str, Any]:
    """The document that :func:`submit` reads."""
    document: dict[str, Any] = {
        "format": FORMAT,
        "instance": instance.name,
        "hash": hash or instance.hash,
        "cost": cost,
        "placement": pack_placement(placement),
        "found_by": found_by,
    }
    if bound > 0:
        document["bound"] = {"value": bound, "by": bound_by}
        if certificate is not None:
            document["bound"]["certificate"] = certificate
    return document


def certificate_for(
    instance: Instance, problem: Problem, *, seconds: float = 60.0, folder: Path = FOLDER
) -> dict[str, Any] | None:
    """A submission of a bound with a certificate; None where none is found that is better than what is known."""
    known = read_known(instance.name, folder)
    found = certify(problem, seconds=seconds)
    if found is None or found[0] <= (known.checked if known is not None else 0.0) * (1 + CLOSE):
        return None
    value, certificate = found
    bound = {"value": value, "by": f"certify ({certificate['kind']})", "certificate": certificate}
    return {"format": FORMAT, "instance": instance.name, "hash": instance.hash, "bound": bound}


def write_submission(document: dict[str, Any], path: Path) -> None:
    """Write it whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, (json.dumps(document) + "\n").encode())


def submit(
    file: str | Path,
    *,
    folder: Path = FOLDER,
    workloads: str | Path | None = None,
    problem: Problem | None = None,
) -> Verdict:
    """Check a submission, and keep what is better than what is known.

    Raises
    ------
    InputError : it is refused; the message says why. Nothing has been changed then.
    """
    record = Record(read_json(file, "a submission"), str(file))
    if record.text("format") != FORMAT:
        raise InputError(f"{file}: format is {record.text('format')!r}, but submissions are {FORMAT!r}")
    name = record.text("instance")
    if name not in instances():
        raise InputError(f"{file}: there is no instance {name!r}: `loadmaster bench list` shows them")
    instance = instances()[name]
    given = record.text("hash")
    if given != instance.hash:
        raise InputError(
            f"{file}: refused: its hash {given[:12]} is not that of {name} ({instance.hash[:12]}): it was "
            "made for another version of the instance"
        )
    made = problem if problem is not None else instance.problem(workloads)
    if content_hash(made) != instance.hash:
        raise InputError(
            f"{name}: made on this machine it has another hash than it should: nothing can be checked"
        )
    known = read_known(name, folder)
    better: list[str] = []
    entry = known
    cost = math.inf if known is None else known.cost
    if "placement" in record:
        placement = unpack_placement(record.get("placement"), made, f"{file}: placement")
        claimed = record.number("cost")
        found, why = independent_cost(made, placement)
        if why:
            raise InputError(f"{file}: refused: the placement is not feasible: {why}")
        if found > claimed * (1 + CLOSE):
            raise InputError(
                f"{file}: refused: the placement costs {found:.9g} s, not the {claimed:.9g} s that it claims"
            )
        if known is not None and found < max(known.bound, known.checked) * (1 - CLOSE):
            raise InputError(
                f"{file}: refused: the placement costs {found:.9g} s, below the proven bound {known.bound:.9g} s (by "
                f"{known.bound_by}): one of the two is wrong; please report it"
            )
        if found < cost * (1 - CLOSE):
            better.append("cost")
            cost = found
            fresh: dict[str, Any] = {
                "cost": found,
                "placement": pack_placement(placement),
                "found_by": record.text("found_by"),
                "found_on": today(),
            }
            entry = Known(name, instance.hash, **fresh) if entry is None else replace(entry, **fresh)
    if entry is None:
        raise InputError(f"{file}: refused: nothing is known about {name}, so a placement must come first")
    if "bound" in record:
        entry = _with_bound(Record(record.get("bound"), f"{file}: bound"), entry, made, better)
    if better:
        write_known(entry, folder)
    return Verdict(
        instance=name,
        cost=cost,
        known=None if known is None else known.cost,
        kept=better,
        why="" if better else "nothing in it is better than what is known",
    )


def _with_bound(bound: Record, entry: Known, problem: Problem, better: list[str]) -> Known:
    value, by = bound.number("value"), bound.text("by")
    if value > entry.cost * (1 + CLOSE):
        raise InputError(
            f"{bound.where}: refused: the bound {value:.9g} s is above a known cost, {entry.cost:.9g} s"
        )
    certificate = bound.value.get("certificate")
    if certificate is not None:
        proved = float(checked_bound(problem, certificate, f"{bound.where}: certificate"))
        if proved < value * (1 - CLOSE):
            raise InputError(
                f"{bound.where}: refused: its certificate proves {proved:.9g} s, not {value:.9g} s"
            )
        if proved > entry.checked * (1 + CLOSE):
            better.append("certificate")
            entry = replace(entry, checked=min(proved, entry.cost), certificate=certificate)
    if value > entry.bound * (1 + CLOSE):
        better.append("bound")
        entry = replace(entry, bound=min(value, entry.cost), bound_by=by, bound_on=today())
    return entry
