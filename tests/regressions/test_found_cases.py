"""What campaigns have found, as the cases that they kept; each runs again as it was found."""

from pathlib import Path

import numpy as np
import pytest

from campaigns import _oracle as oracle
from campaigns._cases import load_case
from campaigns._problems import random_placement
from campaigns.differential import check_evaluations, check_method
from loadmaster.placers import Budget, get_placer

FOLDER = Path(__file__).parent


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("name", sorted(path.name for path in FOLDER.glob("*.json")))
def test_a_case(name):
    problem, run = load_case(FOLDER / name)
    rng = np.random.default_rng(0)
    check_evaluations(problem, [random_placement(rng, problem) for _ in range(20)])
    found = oracle.optimum(problem)
    assert found is not None
    placer = get_placer(run["method"])
    assert check_method(problem, placer, Budget(evaluations=run["evaluations"]), run["seed"], *found)
