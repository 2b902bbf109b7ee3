"""A short slice of every campaign, with a fixed seed: nothing is found, and what is broken on purpose is."""

import json
import random
import subprocess
import sys

import numpy as np
import pytest

from campaigns import differential, fuzz, kill, soak
from campaigns._campaign import Campaign, parser
from campaigns._cases import dump_case, load_case
from campaigns._formats import FORMATS
from campaigns._problems import random_placement, random_problem
from loadmaster.placers import Budget, get_placer
from loadmaster.problem import Solution

pytestmark = pytest.mark.filterwarnings("ignore")


def slice_of(campaign, tmp_path, *words):
    """The figures of a slice that must find nothing."""
    code = campaign.main(["--folder", str(tmp_path), "--hours", "0.1", "--seed", "7", *words])
    figures = [json.loads(file.read_text()) for file in tmp_path.glob("*/figures.json")]
    assert code == 0, figures
    return figures[0]


def test_evaluations_against_the_reference(tmp_path):
    figures = slice_of(differential, tmp_path, "--part", "evaluations", "--cases", "60")
    assert figures["counts"]["evaluations"] > 1000


def test_methods_against_brute_force(tmp_path):
    fast = "single,random,greedy,heft,m-etf,min-cut,local-search,annealing,exhaustive,metis,segments,m-topo"
    figures = slice_of(differential, tmp_path, "--part", "methods", "--cases", "25", "--only", fast)
    assert figures["counts"]["runs"] > 100


def test_mutated_files(tmp_path):
    figures = slice_of(fuzz, tmp_path, "--cases", "800", "--share", "0")
    assert figures["counts"]["in one process"] == 800


def test_files_made_by_hand_in_processes_of_their_own(tmp_path):
    words = ["--hostile", "--every", "20", "--hours", "0.1", "--folder", str(tmp_path), "--json"]
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-m", "campaigns.fuzz", *words], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert json.loads(done.stdout)["counts"]["files"] >= 15


def test_a_command_that_is_killed(tmp_path):
    figures = slice_of(kill, tmp_path, "--cases", "2", "--only", "place")
    assert figures["cases"] == 2


def test_an_open_plan(tmp_path):
    figures = slice_of(soak, tmp_path, "--cases", "60", "--share", "1")
    assert figures["counts"]["requests"] > 100


# -- a campaign that could find nothing would be worth nothing ------------------------------------------------


def some_problem(seed=3):
    while True:
        problem = random_problem(np.random.default_rng(seed), ops=5)
        if problem is not None and problem.n > 2:
            return problem
        seed += 1


def test_a_wrong_answer_is_found():
    problem = some_problem()
    placement = random_placement(np.random.default_rng(0), problem)
    cost = differential.reference.evaluate(problem, placement).cost
    for wrong in (
        Solution(placement, cost + 1, 0.0, "x", "x"),
        Solution(placement, cost, cost + 1, "x", "x"),
    ):
        with pytest.raises(differential.WrongError):
            differential.check_solution(problem, "x", wrong, cost, True)


def test_a_false_infeasible_is_found():
    from loadmaster.errors import InfeasibleError

    class Liar:
        name = "liar"

        def place(self, *_, **__):
            raise InfeasibleError("no")

    with pytest.raises(differential.WrongError, match="says infeasible"):
        differential.check_method(some_problem(), Liar(), Budget(evaluations=1), 0, 1.0, True)


def test_a_traceback_is_found(tmp_path):
    kind = FORMATS[0]
    file = tmp_path / "case.json"
    file.write_bytes(kind.make(random.Random(0)))

    def broken(path):
        raise KeyError("x")

    with pytest.raises(KeyError):
        fuzz.check_file(type(kind)("broken", ".json", kind.make, broken, ()), file)


def test_a_campaign_goes_on_where_it_stopped(tmp_path):
    def options(*words):
        return parser("x", "x").parse_args(["--folder", str(tmp_path), *words])

    seen = []
    Campaign("x", options("--cases", "3")).run(seen.append)
    Campaign("x", options("--cases", "5")).run(seen.append)
    assert seen == [0, 1, 2, 3, 4]
    crashed = Campaign("x", options("--cases", "9"))
    crashed.begins("something that ends the process")
    crashed.write()
    crashed.disarm()
    again = Campaign("x", options("--cases", "9"))
    assert again.cases == 6
    assert again.found["crash"] == 1


def test_a_case_is_kept_to_the_bit(tmp_path):
    problem = some_problem()
    (tmp_path / "case.json").write_bytes(dump_case(problem, method="greedy", seed=1))
    again, more = load_case(tmp_path / "case.json")
    assert again == problem
    assert more["method"] == "greedy"
    assert get_placer("greedy").supports(again) is None
