"""What imports what, where the contracts of import-linter do not look: a contract of ours, and heavy packages."""

from __future__ import annotations

import subprocess
import sys

import pytest
from grimp import ImportGraph
from importlinter import ContractCheck

from tools.import_contracts import PrivateModules

HEAVY = (
    "highspy",
    "onnx",
    "openvino",
    "ortools",
    "pymetis",
    "ray",
    "scipy.optimize",
    "scipy.sparse",
    "torch",
)


def check(*imports: tuple[str, str]) -> ContractCheck:
    graph = ImportGraph()
    for importer, imported in imports:
        graph.add_import(importer=importer, imported=imported, line_number=1, line_contents="")
    contract = PrivateModules("private", {}, {"package": "house"})
    return contract.check(graph, verbose=False)


@pytest.mark.parametrize(
    ("importer", "imported"),
    [
        ("house.attic", "house.attic._box"),
        ("house.attic._box", "house.attic.chest._drawer"),
        ("house.attic._box", "house.cellar"),
        ("house.attic", "house.cellar.wine"),
        ("house.attic", "house.cellar.__main__"),
        ("house.attic", "numpy._core"),
    ],
)
def test_own_private_modules_and_public_ones_of_others_may_be_imported(importer: str, imported: str) -> None:
    assert check((importer, imported)).kept


@pytest.mark.parametrize(
    ("importer", "imported"),
    [
        ("house.attic", "house.cellar._rack"),
        ("house.attic", "house.cellar.wine._rack"),
        ("house.attic", "house._cellar"),
        ("house", "house.cellar._rack"),
    ],
)
def test_private_modules_of_others_may_not(importer: str, imported: str) -> None:
    found = check((importer, imported), ("house.attic", "house.cellar"))
    assert not found.kept
    assert found.metadata["broken"] == [(importer, imported, [1])]


def test_importing_problems_and_bounds_loads_no_solver_and_no_framework() -> None:
    program = (
        "import sys, loadmaster.problem.bounds, loadmaster.problem.coarsening, loadmaster.zoo;"
        f"print(*(name for name in {HEAVY!r} if name in sys.modules))"
    )
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert found.stdout.split() == []
