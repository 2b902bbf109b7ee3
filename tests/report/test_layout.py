"""Where the ops of a report are drawn."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from loadmaster.graph import layered
from loadmaster.report._groups import LARGEST, MOST_GROUPS, scope_groups
from loadmaster.report._layout import layered_layout


@given(st.integers(1, 120), st.integers(1, 12), st.integers(0, 99))
def test_ops_do_not_cover_each_other_and_stay_inside(n, width, seed):
    graph = layered(n, width=width, seed=seed)
    layout = layered_layout(*graph.arcs, graph.topological_order)
    assert len(layout.x) == graph.n
    assert layout.x.min() >= 0.5 - 1e-9
    assert layout.y.min() >= 0.5 - 1e-9
    assert layout.x.max() <= layout.width + 1e-9
    assert layout.y.max() <= layout.height + 1e-9
    for y in np.unique(layout.y):
        assert (np.diff(np.sort(layout.x[layout.y == y])) >= 1 - 1e-9).all()


def test_within_a_column_an_op_is_above_those_that_read_it():
    graph = layered(60, width=4, seed=1)
    tail, head = graph.arcs
    layout = layered_layout(tail, head, graph.topological_order, aspect=0.01)
    assert layout.columns == 1
    assert (layout.y[tail] < layout.y[head]).all()


def test_a_long_chain_is_folded_to_fill_a_screen():
    n = 400
    chain = np.arange(n - 1, dtype=np.int32)
    layout = layered_layout(chain, chain + 1, np.arange(n, dtype=np.int32), aspect=1.8, cell=2.5)
    assert layout.columns > 5
    assert 1.0 < layout.width * 2.5 / layout.height < 3.2


def test_a_very_wide_layer_is_broken_into_rows():
    leaves = 900
    tail, head = np.zeros(leaves, np.int32), np.arange(1, leaves + 1, dtype=np.int32)
    layout = layered_layout(tail, head, np.arange(leaves + 1, dtype=np.int32))
    assert layout.width < 100


def test_a_graph_without_ops_has_an_empty_layout():
    none = np.zeros(0, np.int32)
    assert layered_layout(none, none, none).columns == 0


def test_groups_follow_the_scopes_and_large_scopes_are_divided():
    names = [f"a/b{i % 3}/op{i}" for i in range(1500)] + [f"c/op{i}" for i in range(10)] + ["alone"]
    group_of, groups = scope_groups(names, np.arange(len(names), dtype=np.int32))
    assert set(groups) == {"a/b0/", "a/b1/", "a/b2/", "c/", "outside any scope"}
    for name, g in zip(names, group_of, strict=True):
        assert groups[g] == "outside any scope" or name.startswith(groups[g])


def test_names_without_scopes_are_divided_along_the_topological_order():
    n = 3 * LARGEST
    position = np.arange(n, dtype=np.int32)[::-1].copy()
    group_of, groups = scope_groups([f"op{i}" for i in range(n)], position)
    assert groups == ["group 1 of 3", "group 2 of 3", "group 3 of 3"]
    assert (np.diff(group_of[np.argsort(position)]) >= 0).all()


def test_there_are_never_more_groups_than_fit_on_a_screen():
    names = [f"s{i}/op" for i in range(3000)]
    _, groups = scope_groups(names, np.arange(3000, dtype=np.int32))
    assert len(groups) <= MOST_GROUPS
