"""Placers of other packages, which name them in their metadata.

A package says ``[project.entry-points."loadmaster.placers"]`` and ``mine = "package.module:Mine"`` in its
``pyproject.toml``. Entry points are read when a name is not built in or all methods are listed, never before:
a broken one cannot break anything else.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, is_dataclass
from importlib.metadata import EntryPoint, entry_points
from typing import Any, cast

from loadmaster.errors import InputError
from loadmaster.placers.frame.placer import Placer

__all__ = ["GROUP", "InstalledPlacer", "installed_placers", "placer_of"]

GROUP = "loadmaster.placers"


@dataclass(frozen=True)
class InstalledPlacer:
    """What a package offers under a name: a placer, or why it cannot be used."""

    name: str
    package: str
    """The package with its version."""
    placer: Placer | None
    problem: str = ""
    """One sentence, where there is no placer."""


def installed_placers(own: Collection[str]) -> list[InstalledPlacer]:
    """All that packages offer, by name; ``own`` names are Loadmaster's and cannot be taken."""
    entries = _entries()
    names = [entry.name for entry in entries]
    return [_load(entry, own, [other for other in entries if other.name == entry.name])
            for i, entry in enumerate(entries) if entry.name not in names[:i]]  # fmt: skip


def placer_of(name: str, own: Collection[str]) -> Placer:
    """The installed placer called ``name``.

    Raises
    ------
    InputError : no package offers it, or it cannot be used.
    """
    entries = _entries()
    same = [entry for entry in entries if entry.name == name]
    if not same:
        known = [*own, *sorted({entry.name for entry in entries} - set(own))]
        raise InputError(f"there is no method {name!r}: choose one of {', '.join(known)}")
    found = _load(same[0], own, same)
    if found.placer is None:
        raise InputError(found.problem)
    return found.placer


def _entries() -> list[EntryPoint]:
    return sorted(entry_points(group=GROUP), key=lambda entry: (entry.name, _package(entry)))


def _package(entry: EntryPoint) -> str:
    return f"{entry.dist.name} {entry.dist.version}" if entry.dist else "an unknown package"


def _load(entry: EntryPoint, own: Collection[str], same: Sequence[EntryPoint]) -> InstalledPlacer:
    package = " and ".join(dict.fromkeys(map(_package, same)))
    wrong, placer = "", None
    if entry.name in own:
        wrong = "Loadmaster has a method with that name, which is used instead"
    elif len({other.value for other in same}) > 1:
        wrong = "only one package may offer a name: uninstall the others"
    else:
        placer, wrong = _made(entry)
    problem = f"the method {entry.name!r} of {package} cannot be used: {wrong}" if wrong else ""
    return InstalledPlacer(entry.name, package, placer, problem)


def _made(entry: EntryPoint) -> tuple[Placer | None, str]:
    """The placer, or why there is none. Their code may raise anything."""
    try:
        found: Any = entry.load()
        found = found() if isinstance(found, type) else found
    except Exception as error:
        said = " ".join(str(error).split())
        return None, f"{entry.value} raised {type(error).__name__}{f': {said}' if said else ''}"
    if not is_dataclass(found):
        return None, f"{entry.value} is not a dataclass, whose fields are a placer's parameters"
    for name in ("name", "summary", "supports", "place"):
        value = getattr(found, name, None)
        if value is None or callable(value) != (name in ("supports", "place")):
            return None, f"{entry.value} is not a placer: it has no {name!r}"
    instance = cast(Placer, found)
    if instance.name != entry.name:
        return None, f"{entry.value} calls itself {instance.name!r}: give it the name of its entry point"
    return instance, ""
