"""What Loadmaster is tested with, for the tests of others.

- :class:`PlacerConformance`: what every placer must do, as a pytest class.
- ``reference`` (:mod:`loadmaster.problem.reference`): the four execution models in plain Python.
- :func:`brute_force`: the best of all placements of a small problem; :func:`optimum`: its cost, for larger ones.
- :func:`drawn_problem`: small random problems by number.
- :mod:`~loadmaster.testing.strategies`: random problems and placements for hypothesis.

pytest and hypothesis are imported with the names that need them, and nowhere else in Loadmaster.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from loadmaster.problem import reference
    from loadmaster.testing import strategies
    from loadmaster.testing._brute_force import brute_force
    from loadmaster.testing._conformance import PlacerConformance
    from loadmaster.testing._drawn import drawn_problem
    from loadmaster.testing._pruned import optimum
    from loadmaster.testing._repeating import assert_runs_repeat
    from loadmaster.testing.strategies import graphs, models, placements, problems

__all__ = [
    "PlacerConformance",
    "assert_runs_repeat",
    "brute_force",
    "drawn_problem",
    "graphs",
    "models",
    "optimum",
    "placements",
    "problems",
    "reference",
    "strategies",
]

_HOME = {
    "PlacerConformance": "_conformance",
    "assert_runs_repeat": "_repeating",
    "brute_force": "_brute_force",
    "drawn_problem": "_drawn",
    "optimum": "_pruned",
    **dict.fromkeys(("graphs", "models", "placements", "problems"), "strategies"),
}


def __getattr__(name: str) -> Any:
    if name == "reference":
        return importlib.import_module("loadmaster.problem.reference")
    module = name if name == "strategies" else _HOME.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        if module == "_conformance":
            import pytest

            pytest.register_assert_rewrite(f"{__name__}._conformance", f"{__name__}._repeating")
        home = importlib.import_module(f"{__name__}.{module}")
    except ModuleNotFoundError as error:
        if error.name not in ("hypothesis", "pytest"):
            raise
        message = f"loadmaster.testing.{name} needs {error.name}: pip install 'loadmaster[testing]'"
        raise ModuleNotFoundError(message, name=error.name) from None
    return home if module == name else getattr(home, name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
