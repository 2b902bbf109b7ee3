"""Placers of other packages: found by name, listed with their package, and harmless when broken."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from loadmaster import api
from loadmaster.cli import app
from loadmaster.errors import InputError
from loadmaster.placers import PLACERS, all_placers, get_placer

MODULE = """
from dataclasses import dataclass
from typing import ClassVar
from loadmaster.placers import Searcher, find_feasible

@dataclass(frozen=True)
class Theirs(Searcher):
    size: int = 3
    name: ClassVar[str] = "theirs"
    summary: ClassVar[str] = "any feasible placement"

    def explore(self, search, start, seed):
        find_feasible(search, seed)

class NotADataclass:
    name, summary = "plain", "x"

@dataclass(frozen=True)
class Half:
    name: ClassVar[str] = "half"
    summary: ClassVar[str] = "cannot place"

    def supports(self, problem):
        return None

@dataclass(frozen=True)
class Demanding(Theirs):
    name: ClassVar[str] = "demanding"

    def __init__(self, size):
        pass
"""

BROKEN = {
    "plain": ("their_placers:NotADataclass", "is not a dataclass"),
    "half": ("their_placers:Half", "it has no 'place'"),
    "gone": ("no_such_module:Theirs", "raised ModuleNotFoundError: No module named 'no_such_module'"),
    "missing": ("their_placers:Nothing", "raised AttributeError"),
    "demanding": ("their_placers:Demanding", "raised TypeError"),
    "alias": ("their_placers:Theirs", "calls itself 'theirs'"),
}


def install(folder: Path, package: str, entries: dict[str, str]) -> None:
    info = folder / f"{package.replace('-', '_')}-1.2.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.2\n")
    lines = ["[loadmaster.placers]", *(f"{name} = {value}" for name, value in entries.items())]
    (info / "entry_points.txt").write_text("\n".join(lines))


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of packages: one good placer and every kind of broken one."""
    (tmp_path / "their_placers.py").write_text(MODULE)
    broken = {name: target for name, (target, _) in BROKEN.items()}
    entries = {"theirs": "their_placers:Theirs", "heft": "their_placers:Theirs", **broken}
    install(tmp_path, "their-package", entries)
    monkeypatch.syspath_prepend(tmp_path)
    sys.modules.pop("their_placers", None)
    return tmp_path


def run(*words: str) -> tuple[int, str, str]:
    result = CliRunner().invoke(app, words)
    return result.exit_code, result.stdout, result.stderr


@pytest.mark.usefixtures("site")
def test_it_runs_by_name_with_its_parameters() -> None:
    problem = api.problem("zoo:layered-8", model="serial")
    assert api.place(problem, "theirs", evaluations=5, parameters={"size": "4"}).parameters == {"size": 4}
    code, printed, _ = run("place", "zoo:layered-8", "--method", "theirs", "--evaluations", "5", "--json")
    assert code == 0
    assert json.loads(printed)["method"] == "theirs"
    code, printed, _ = run(
        "compare", "zoo:layered-8", "--methods", "theirs,single", "--evaluations", "5", "--json"
    )
    assert [entry["method"] for entry in json.loads(printed)] == ["theirs", "single"]


@pytest.mark.usefixtures("site")
def test_a_comparison_of_all_takes_those_that_work() -> None:
    assert list(all_placers()) == [*PLACERS, "theirs"]
    assert all_placers()["heft"] is PLACERS["heft"]


@pytest.mark.usefixtures("site")
def test_methods_are_listed_with_their_package_and_broken_ones_with_the_reason() -> None:
    code, printed, said = run("methods", "--json")
    assert code == 0
    found = {entry["name"]: entry for entry in json.loads(printed)}
    assert list(found) == [*PLACERS, "theirs"]
    assert found["theirs"]["package"] == "their-package 1.2"
    assert "package" not in found["heft"]
    for name, (_, reason) in BROKEN.items():
        line = next(line for line in said.splitlines() if f"the method {name!r} of their-package 1.2" in line)
        assert reason in line
    assert "'heft' of their-package 1.2 cannot be used: Loadmaster has a method with that name" in said
    _, printed, _ = run("methods")
    assert "their-package 1.2" in " ".join(printed.split())


@pytest.mark.usefixtures("site")
@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_one_says_why_when_it_is_asked_for(name: str) -> None:
    with pytest.raises(InputError, match=f"the method '{name}' of their-package 1.2 cannot be used") as error:
        get_placer(name)
    assert BROKEN[name][1] in str(error.value)
    code, _, said = run("place", "zoo:layered-8", "--method", name, "--evaluations", "5")
    assert code == 2
    assert len(said.splitlines()) == 1


def test_two_packages_cannot_offer_one_name(site: Path) -> None:
    install(site, "another", {"theirs": "their_placers:Half"})
    with pytest.raises(InputError, match=r"'theirs' of another 1\.2 and their-package 1\.2 .* only one"):
        get_placer("theirs")


@pytest.mark.usefixtures("site")
def test_an_unknown_name_is_told_all_names() -> None:
    with pytest.raises(InputError, match=r"no method 'nothing': choose one of auto, .*gdp-paper, .*theirs"):
        get_placer("nothing")


def test_a_rule_imports_no_solver_and_looks_at_no_package() -> None:
    program = (
        "import sys; from loadmaster import api; "
        "api.place(api.problem('zoo:layered-8'), 'heft', evaluations=5); "
        "heavy = {'ortools', 'highspy', 'pymetis', 'scipy.optimize', 'scipy.sparse', 'torch', 'pandas', "
        "'hypothesis', 'pytest', 'loadmaster.placers.auto'}; "
        "print(sorted(heavy & set(sys.modules)))"
    )
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"
