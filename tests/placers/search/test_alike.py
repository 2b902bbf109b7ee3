"""Ops that repeat have one colour."""

from __future__ import annotations

import numpy as np

from loadmaster import api
from loadmaster.placers.frame.feasible import atoms_of
from loadmaster.placers.search.multilevel._alike import colours_of, stretches_of_colours
from loadmaster.placers.search.multilevel._groups import heavy_groups


def layers(problem, colour):
    """For each colour in how many layers of BERT (names begin with ``layer.3.`` or so) it occurs."""
    names, of = problem.graph.names, colour[atoms_of(problem).of_op]
    found: dict[int, set[str]] = {}
    for name, c in zip(names, of.tolist(), strict=True):
        found.setdefault(c, set()).add(name)
    return {c: len(mine) for c, mine in found.items()}


def test_layers_repeat_and_ends_do_not():
    problem = api.problem("zoo:bert-base", "hsdag", model="serial")
    counts = layers(problem, colours_of(problem))
    assert sum(count >= 8 for count in counts.values()) > 10  # 12 layers: all but those near the ends
    assert 1 in counts.values()


def test_names_and_numbering_do_not_matter():
    problem = api.problem("zoo:gpt2", "p100-2", model="concurrent")
    again = api.problem("zoo:gpt2", "p100-2", model="concurrent")
    assert np.array_equal(colours_of(problem), colours_of(again))


def test_shared_weights_keep_layers_of_a_recurrent_network_apart():
    problem = api.problem("zoo:rnnlm-2", "p100-2", model="concurrent")
    atoms, colour = atoms_of(problem), colours_of(problem)
    several = np.bincount(atoms.of_op) > 1
    assert len(np.unique(colour[several])) == several.sum()
    assert len(np.unique(colour)) < 0.1 * atoms.count  # time steps are alike


def test_stretches_keep_to_mass_memory_and_devices():
    problem = api.problem("zoo:bert-base", "hsdag", model="serial")
    atoms, colour = atoms_of(problem), colours_of(problem)
    mass = np.full(atoms.count, 1.0)
    at = (atoms.order % 2).astype(np.int32)
    group = stretches_of_colours(problem, mass, 4.0, np.inf, at)
    for g in range(int(group.max()) + 1):
        mine = group == g
        assert len(np.unique(colour[mine])) == 1
        assert len(np.unique(at[mine])) == 1
        assert mine.sum() <= 4
    heavy = float(np.sort(atoms.memory)[-1])
    group = stretches_of_colours(problem, mass, np.inf, heavy)
    assert np.bincount(group, atoms.memory).max() <= heavy


def test_groups_of_colours_are_deterministic_and_as_many_as_asked_for():
    problem = api.problem("zoo:rnnlm-2", "p100-2", model="concurrent")
    for rating in ("alike", "repeated"):
        made = [heavy_groups(problem, 40, np.random.default_rng(3), rating) for _ in range(2)]
        assert np.array_equal(made[0], made[1])
        assert int(made[0].max()) + 1 <= 60
