"""The work of ONNX operators is what plain loops over their definition count.

Every loop here computes the operator, so that ONNX's reference implementation can vouch for it, and counts one
for every addition and multiplication on the way, four for a sigmoid and six for a hyperbolic tangent.
"""

from __future__ import annotations

import itertools
import math
from pathlib import Path

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import helper
from onnx.reference import ReferenceEvaluator

from loadmaster.graph import load_onnx
from loadmaster.graph.onnx._costs import (
    ALIASES,
    FLOPS_PER_ELEMENT,
    FLOPS_PER_INPUT_ELEMENT,
    MOVES,
    UNCOUNTED,
    flops,
    reads,
    writes,
)
from loadmaster.graph.onnx._op import Op, Tensor
from loadmaster.graph.onnx._rules import RULES
from loadmaster.hardware import op_kind

OPSET = 23
few = st.integers(1, 3)


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    return tmp_path_factory.mktemp("onnx") / "node.onnx"


def work(path: Path, node, *arrays):
    """What the reference implementation makes of a node, and the flops that we count for it."""
    names = [name for name in node.input if name]
    infos = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)
        for name, array in zip(names, arrays, strict=True)
    ]
    outputs = [onnx.ValueInfoProto(name=name) for name in node.output if name]
    graph = helper.make_graph([node], "g", infos, outputs)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)])
    onnx.save(model, path)
    found = load_onnx(path).graph
    (v,) = [v for v in range(found.n) if found.op_types[v] not in ("Parameter", "Result")]
    results = ReferenceEvaluator(model).run(None, dict(zip(names, arrays, strict=True)))
    assert [shape for shape in found.output_shapes[v]] == [r.shape for r in results]
    return results, found.flops[v]


def numbers(*shape):
    return np.random.default_rng(math.prod(shape)).standard_normal(shape).astype(np.float32)


class Count:
    """Floating point operations so far."""

    def __init__(self):
        self.flops = 0

    def dot(self, a, b):
        total = 0.0
        for x, y in zip(a, b, strict=True):
            total += float(x) * float(y)
            self.flops += 2
        return total

    def add(self, *terms):
        self.flops += len(terms) - 1
        return sum(terms)

    def mul(self, a, b):
        self.flops += 1
        return a * b

    def sigmoid(self, x):
        self.flops += 4
        return 1 / (1 + math.exp(-x))

    def tanh(self, x):
        self.flops += 6
        return math.tanh(x)


# -- convolutions --------------------------------------------------------------------------------------------


def windows(size, kernel, stride, dilation, pad):
    """For every position of a window along an axis, where it looks; outside is padding."""
    span = dilation * (kernel - 1) + 1
    starts = range(-pad, size + pad - span + 1, stride)
    return [[start + dilation * k for k in range(kernel)] for start in starts]


@given(few, few, few, few, few, few, st.integers(0, 1), st.integers(1, 2), st.booleans())
@settings(max_examples=40)
def test_a_convolution_counts_what_its_loops_do(path, batch, groups, each, out, k, s, pad, dilation, bias):
    x = numbers(batch, groups * each, 6, 5 + s)
    w = numbers(groups * out, each, k, 2)
    b = numbers(groups * out)
    count = Count()
    rows, columns = windows(6, k, s, dilation, pad), windows(5 + s, 2, s, dilation, pad)
    y = np.zeros((batch, groups * out, len(rows), len(columns)))
    for n, m, i, j in itertools.product(*map(range, y.shape)):
        taps = list(itertools.product(range(each), range(k), range(2)))
        inside = m // out * each
        seen = [
            x[n, inside + c, rows[i][p], columns[j][q]]
            if 0 <= rows[i][p] < 6 and 0 <= columns[j][q] < 5 + s
            else 0.0
            for c, p, q in taps
        ]
        y[n, m, i, j] = count.dot(seen, [w[(m, *tap)] for tap in taps])
        if bias:
            y[n, m, i, j] = count.add(y[n, m, i, j], b[m])
    node = helper.make_node(
        "Conv",
        ["x", "w", "b"][: 2 + bias],
        ["y"],
        group=groups,
        strides=[s, s],
        dilations=[dilation, dilation],
        pads=[pad] * 4,
    )
    (result,), counted = work(path, node, *(x, w, b)[: 2 + bias])
    np.testing.assert_allclose(y, result, rtol=1e-4, atol=1e-5)
    assert counted == count.flops


@given(few, st.integers(1, 2), few, few, few, few, st.booleans())
@settings(max_examples=30)
def test_a_transposed_convolution_counts_what_its_loops_do(path, batch, groups, each, out, k, s, bias):
    x, w, b = numbers(batch, groups * each, 4, 3), numbers(groups * each, out, k, 2), numbers(groups * out)
    count = Count()
    y = np.zeros((batch, groups * out, 3 * s + k, 2 * s + 2))
    for n, c, i, j in itertools.product(*map(range, x.shape)):
        for m, p, q in itertools.product(range(out), range(k), range(2)):
            place = (n, c // each * out + m, i * s + p, j * s + q)
            y[place] = count.add(y[place], count.mul(float(x[n, c, i, j]), float(w[c, m, p, q])))
    if bias:
        for place in itertools.product(*map(range, y.shape)):
            y[place] = count.add(y[place], b[place[1]])
    node = helper.make_node("ConvTranspose", ["x", "w", "b"][: 2 + bias], ["y"], strides=[s, s])
    for g in range(groups):  # one by one, as the reference implementation stumbles over groups
        here, made = slice(g * each, (g + 1) * each), slice(g * out, (g + 1) * out)
        (result,), counted = work(path, node, *(x[:, here], w[here], b[made])[: 2 + bias])
        np.testing.assert_allclose(y[:, made], result, rtol=1e-4, atol=1e-5)
        assert counted * groups == count.flops
    op = Op(
        "ConvTranspose", (Tensor(x.shape), Tensor(w.shape), Tensor(b.shape))[: 2 + bias], (Tensor(y.shape),)
    )
    assert flops(op) == count.flops


@pytest.mark.parametrize("kind", ["MaxPool", "AveragePool"])
@given(few, few, st.integers(1, 2), st.integers(0, 1))
@settings(max_examples=15)
def test_a_pool_counts_every_position_of_its_window(path, kind, channels, k, s, pad):
    pad = min(pad, k - 1)
    x = numbers(2, channels, 6, 5)
    rows, columns = windows(6, k, s, 1, pad), windows(5, k, s, 1, pad)
    node = helper.make_node(kind, ["x"], ["y"], kernel_shape=[k, k], strides=[s, s], pads=[pad] * 4)
    _, counted = work(path, node, x)
    assert counted == 2 * channels * sum(len(r) * len(c) for r in rows for c in columns)


# -- products ------------------------------------------------------------------------------------------------


@given(st.lists(few, max_size=2), st.lists(few, max_size=2), few, few, few)
def test_a_product_of_stacks_of_matrices_counts_what_its_loops_do(path, left, right, rows, inner, columns):
    shapes = [(1, 1, *left)[-2:], (1, 1, *right)[-2:]]
    both = np.broadcast_shapes(*[tuple(1 if n < 3 else n for n in shape) for shape in shapes])
    a = numbers(*[n if n == m else 1 for n, m in zip(shapes[0], both, strict=True)], rows, inner)
    b = numbers(*[n if n == m else 1 for n, m in zip(shapes[1], both, strict=True)], inner, columns)
    count = Count()
    stack = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    big_a, big_b = np.broadcast_to(a, (*stack, rows, inner)), np.broadcast_to(b, (*stack, inner, columns))
    y = np.zeros((*stack, rows, columns))
    for place in itertools.product(*map(range, y.shape)):
        *at, i, j = place
        y[place] = count.dot(big_a[(*at, i)], big_b[(*at, slice(None), j)])
    (result,), counted = work(path, helper.make_node("MatMul", ["a", "b"], ["y"]), a, b)
    np.testing.assert_allclose(y, result, rtol=1e-4, atol=1e-5)
    assert counted == count.flops


@pytest.mark.parametrize("shapes", [((4,), (4, 3)), ((2, 4), (4,)), ((4,), (4,)), ((5, 2, 4), (4,))])
def test_a_product_with_a_vector_counts_two_for_each_pair(path, shapes):
    a, b = (numbers(*shape) for shape in shapes)
    (result,), counted = work(path, helper.make_node("MatMul", ["a", "b"], ["y"]), a, b)
    assert counted == 2 * 4 * result.size


@given(few, few, few, st.booleans(), st.booleans(), st.sampled_from([1.0, 0.5]), st.booleans())
@settings(max_examples=30)
def test_a_gemm_counts_what_its_loops_do(path, m, n, k, trans_a, trans_b, alpha, biased):
    a, b, c = numbers(m, k), numbers(k, n), numbers(n)
    count, y = Count(), np.zeros((m, n))
    for i, j in itertools.product(range(m), range(n)):
        y[i, j] = count.dot(a[i], b[:, j])
        if alpha != 1.0:
            y[i, j] = count.mul(y[i, j], alpha)
        if biased:
            y[i, j] = count.add(y[i, j], c[j])
    node = helper.make_node(
        "Gemm", ["a", "b", "c"][: 2 + biased], ["y"], transA=trans_a, transB=trans_b, alpha=alpha
    )
    given_a, given_b = (
        np.ascontiguousarray(a.T if trans_a else a),
        np.ascontiguousarray(b.T if trans_b else b),
    )
    (result,), counted = work(path, node, *(given_a, given_b, c)[: 2 + biased])
    np.testing.assert_allclose(y, result, rtol=1e-4, atol=1e-5)
    assert counted == count.flops


@pytest.mark.parametrize(
    ("equation", "shapes", "expected"),
    [
        ("ij,jk->ik", [(2, 3), (3, 5)], 2 * 2 * 3 * 5),
        ("bhid,bhjd->bhij", [(2, 3, 4, 5), (2, 3, 6, 5)], 2 * 2 * 3 * 4 * 6 * 5),
        ("...ij,...jk->...ik", [(7, 2, 3), (7, 3, 5)], 7 * 2 * 2 * 3 * 5),
        ("...ij,...jk", [(7, 2, 3), (7, 3, 5)], 7 * 2 * 2 * 3 * 5),
        ("i,j->ij", [(4,), (5,)], 4 * 5),  # products without a sum
        ("ij->ji", [(4, 5)], 0),
        ("ij->i", [(4, 5)], 4 * 5),  # a sum without products
        ("ii", [(4, 4)], 4),  # a trace
        ("ij,ij->ij", [(4, 5), (4, 5)], 4 * 5),
        ("ab,bc,cd->ad", [(2, 3), (3, 4), (4, 5)], 2 * 2 * 3 * 4 + 2 * 2 * 4 * 5),
        ("ik,kj->ij", [(2, 3), (3, 5)], 2 * 2 * 3 * 5),
    ],
)
def test_an_einsum_is_a_chain_of_products_and_sums(path, equation, shapes, expected):
    arrays = [numbers(*shape) for shape in shapes]
    names = [f"x{i}" for i in range(len(arrays))]
    _, counted = work(path, helper.make_node("Einsum", names, ["y"], equation=equation), *arrays)
    assert counted == expected


# -- recurrent layers and attention --------------------------------------------------------------------------


@pytest.mark.parametrize(("bias", "peepholes"), [(False, False), (True, False), (True, True)])
def test_an_lstm_counts_what_its_loops_do(path, bias, peepholes):
    steps, batch, width, hidden = 3, 2, 4, 5
    x, w, r = numbers(steps, batch, width), numbers(1, 4 * hidden, width), numbers(1, 4 * hidden, hidden)
    b, p = numbers(1, 8 * hidden), numbers(1, 3 * hidden)
    joint = b[0, : 4 * hidden] + b[0, 4 * hidden :]  # known before the first step
    count = Count()
    y, h, c = np.zeros((steps, 1, batch, hidden)), np.zeros((batch, hidden)), np.zeros((batch, hidden))
    for t, n in itertools.product(range(steps), range(batch)):
        before = h[n].copy()
        for u in range(hidden):

            def gate(k, seen=None, n=n, t=t, u=u, before=before):
                row = k * hidden + u
                terms = [count.dot(x[t, n], w[0, row]), count.dot(before, r[0, row])]
                terms += [joint[row]] if bias else []
                terms += (
                    [count.mul(p[0, {0: 0, 1: 1, 2: 2}[k] * hidden + u], seen)] if peepholes and k < 3 else []
                )
                return count.add(*terms)

            i, f = count.sigmoid(gate(0, c[n, u])), count.sigmoid(gate(2, c[n, u]))
            c[n, u] = count.add(count.mul(f, c[n, u]), count.mul(i, count.tanh(gate(3))))
            y[t, 0, n, u] = count.mul(count.sigmoid(gate(1, c[n, u])), count.tanh(c[n, u]))
        h[n] = y[t, 0, n]
    names = ["x", "w", "r", "b" if bias else "", "", "", "", "p" if peepholes else ""]
    arrays = [x, w, r, *([b] if bias else []), *([p] if peepholes else [])]
    node = helper.make_node("LSTM", names, ["y"], hidden_size=hidden)
    (result,), counted = work(path, node, *arrays)
    np.testing.assert_allclose(y, result, rtol=1e-4, atol=1e-5)
    assert counted == count.flops


def test_a_gru_counts_what_its_loops_do(path):
    steps, batch, width, hidden = 3, 2, 4, 5
    x, w, r = numbers(steps, batch, width), numbers(1, 3 * hidden, width), numbers(1, 3 * hidden, hidden)
    count = Count()
    y, h = np.zeros((steps, 1, batch, hidden)), np.zeros((batch, hidden))
    for t, n in itertools.product(range(steps), range(batch)):
        gates = [
            count.sigmoid(count.add(count.dot(x[t, n], w[0, row]), count.dot(h[n], r[0, row])))
            for row in range(2 * hidden)
        ]
        update, reset = gates[:hidden], gates[hidden:]
        kept = [count.mul(a, b) for a, b in zip(reset, h[n], strict=True)]
        for u in range(hidden):
            row = 2 * hidden + u
            new = count.tanh(count.add(count.dot(x[t, n], w[0, row]), count.dot(kept, r[0, row])))
            share = count.add(1, -update[u])
            y[t, 0, n, u] = count.add(count.mul(share, new), count.mul(update[u], h[n, u]))
        h[n] = y[t, 0, n]
    (result,), counted = work(
        path, helper.make_node("GRU", ["x", "w", "r"], ["y"], hidden_size=hidden), x, w, r
    )
    np.testing.assert_allclose(y, result, rtol=1e-4, atol=1e-5)
    assert counted == count.flops


def test_both_directions_of_a_recurrent_layer_count(path):
    x, w, r, b = numbers(3, 2, 4), numbers(2, 5, 4), numbers(2, 5, 5), numbers(2, 10)
    node = helper.make_node("RNN", ["x", "w", "r", "b"], ["y"], hidden_size=5, direction="bidirectional")
    _, counted = work(path, node, x, w, r, b)
    assert counted == 2 * 3 * 2 * 5 * (2 * (4 + 5) + 2 + 6)


@given(few, st.integers(1, 2), st.integers(1, 2), few, few, few, few, st.booleans(), st.booleans())
@settings(max_examples=30)
def test_attention_counts_scores_softmax_and_sum(path, batch, groups, kv, rows, keys, width, out, past, flat):
    heads = groups * kv
    q, k, v = (
        numbers(batch, heads, rows, width),
        numbers(batch, kv, keys, width),
        numbers(batch, kv, keys, out),
    )
    old_k, old_v = numbers(batch, kv, 2, width), numbers(batch, kv, 2, out)
    all_k = np.concatenate([old_k, k], axis=2) if past else k
    all_v = np.concatenate([old_v, v], axis=2) if past else v
    count, y = Count(), np.zeros((batch, heads, rows, out))
    for n, h, i in itertools.product(range(batch), range(heads), range(rows)):
        scores = [count.dot(q[n, h, i], key) for key in all_k[n, h // groups]]
        scores = [count.mul(score, 1 / math.sqrt(width)) for score in scores]
        count.flops += 5 * len(scores)
        weights = np.exp(scores) / np.exp(scores).sum()
        for o in range(out):
            y[n, h, i, o] = count.dot(weights, all_v[n, h // groups, :, o])
    attributes = {}
    if flat:
        q, k, v = (a.transpose(0, 2, 1, 3).reshape(batch, a.shape[2], -1) for a in (q, k, v))
        y = y.transpose(0, 2, 1, 3).reshape(batch, rows, -1)
        attributes = {"q_num_heads": heads, "kv_num_heads": kv}
    names = ["q", "k", "v", *(["", "pk", "pv"] if past else [])]
    made = ["y", *(["nk", "nv"] if past else [])]
    node = helper.make_node("Attention", names, made, **attributes)
    arrays = [np.ascontiguousarray(a) for a in (q, k, v)]
    results, counted = work(path, node, *arrays, *([old_k, old_v] if past else []))
    np.testing.assert_allclose(y, results[0], rtol=1e-3, atol=1e-4)
    assert counted == count.flops


def test_a_window_limits_the_keys_that_attention_looks_at():
    q = Tensor((1, 2, 100, 8))
    whole = flops(Op("Attention", (q, q, q), (q,), {}))
    window = {"left_window_size": 9, "is_causal": 1}
    assert flops(Op("Attention", (q, q, q), (q,), window)) * 10 == whole


# -- the rest of the operator set ----------------------------------------------------------------------------

X = Tensor((2, 3, 4, 5))
KERNEL = Tensor((6, 3, 3, 3))
Y = Tensor((2, 6, 4, 5))
BYTE = Tensor((), 8)


@pytest.mark.parametrize(
    ("op", "expected"),
    [
        (Op("Relu", (X,), (X,)), 120),
        (Op("Sum", (X, X, X), (X,)), 2 * 120),
        (Op("Mean", (X, X, X), (X,)), 3 * 120),
        (Op("Pow", (X, BYTE), (X,), {}, {1: np.array(2.0)}), 120),
        (Op("Pow", (X, BYTE), (X,), {}, {1: np.array(2.7)}), 9 * 120),
        (Op("Pow", (X, X), (X,)), 9 * 120),
        (Op("ReduceMean", (X,), (Tensor((2, 3)),)), 120),
        (Op("Softmax", (X,), (X,)), 5 * 120),
        (Op("LRN", (X,), (X,), {"size": 5}), (2 * 5 + 12) * 120),
        (Op("Reshape", (X, Tensor((2,), 64)), (Tensor((6, 20)),)), 0),
        (Op("Transpose", (X,), (Tensor((5, 4, 3, 2)),)), 0),
        # Eight-bit arithmetic counts as any other, and what brings sums back to eight bits as three.
        (Op("ConvInteger", (X, KERNEL, BYTE, BYTE), (Y,)), 2 * 240 * 27),
        (Op("QLinearConv", (X, X, X, KERNEL, X, X, X, X), (Y,)), 240 * (2 * 27 + 3)),
        (Op("QLinearConv", (X, X, X, KERNEL, X, X, X, X, Tensor((6,))), (Y,)), 240 * (2 * 27 + 4)),
        (Op("MatMulInteger", (Tensor((2, 7)), Tensor((7, 3))), (Tensor((2, 3)),)), 2 * 7 * 6),
        (
            Op("QLinearMatMul", (Tensor((2, 7)), X, X, Tensor((7, 3)), X, X, X, X), (Tensor((2, 3)),)),
            6 * (2 * 7 + 3),
        ),
        (Op("DeformConv", (X, KERNEL, X), (Y,)), 2 * 240 * 27 + 8 * (2 * 4 * 5) * 3 * 9),
        (Op("Resize", (X,), (Tensor((2, 3, 8, 10)),), {"mode": "nearest"}), 0),
        (Op("Resize", (X,), (Tensor((2, 3, 8, 10)),), {"mode": "linear"}), 2 * 4 * 480),
        (Op("Resize", (X,), (Tensor((2, 3, 4, 10)),), {"mode": "linear"}), 2 * 2 * 240),
        (Op("Resize", (X,), (Tensor((2, 3, 8, 10)),), {"mode": "cubic"}), 2 * 16 * 480),
        (
            Op("GridSample", (X, Tensor((2, 6, 7, 2))), (Tensor((2, 3, 6, 7)),), {"mode": "linear"}),
            2 * 4 * 252,
        ),
        (Op("RoiAlign", (X,), (Tensor((9, 3, 2, 2)),), {"sampling_ratio": 3}), 9 * 9 * 108),
        (Op("ScatterND", (X, X, Tensor((7,))), (X,), {"reduction": "none"}), 0),
        (Op("ScatterND", (X, X, Tensor((7,))), (X,), {"reduction": "add"}), 7),
        (Op("TopK", (Tensor((10, 100)),), (Tensor((10, 7)), Tensor((10, 7), 64)), {"axis": -1}), 1000 * 3),
        (Op("DFT", (Tensor((3, 64, 2)),), (Tensor((3, 64, 2)),)), 3 * 5 * 64 * 6),
        (
            Op("STFT", (X, BYTE, Tensor((64,))), (Tensor((2, 9, 33, 2)),), {"onesided": 1}),
            18 * (5 * 64 * 6 + 64),
        ),
        (Op("Det", (Tensor((5, 3, 3)),), (Tensor((5,)),)), 5 * 18),
        (Op("Dropout", (X,), (X,)), 0),
        (Op("Dropout", (X, BYTE, BYTE), (X,), {}, {2: np.array(True)}), 5 * 120),
        (
            Op(
                "LinearAttention",
                (Tensor((2, 10, 4 * 8)), Tensor((2, 10, 2 * 8)), Tensor((2, 10, 2 * 6))),
                (Tensor((2, 10, 4 * 6)), Tensor((2, 2, 8, 6))),
                {"q_num_heads": 4, "kv_num_heads": 2, "update_rule": "linear"},
            ),
            2 * 10 * 48 * (4 * 2 + 2 * 2),
        ),
        (
            Op("CausalConvWithState", (Tensor((2, 3, 9)), Tensor((3, 1, 4))), (Tensor((2, 3, 9)),)),
            2 * 4 * 54,
        ),
    ],
    ids=lambda value: value.type if isinstance(value, Op) else "",
)
def test_closed_forms(op, expected):
    assert flops(op) == expected


def test_only_what_is_picked_is_read():
    table, ids, rows = Tensor((1000, 16)), Tensor((3,), 64), Tensor((3, 16))
    assert reads(Op("Gather", (table, ids), (rows,))) == [rows.bytes, ids.bytes]
    assert reads(Op("Slice", (table, ids), (rows,)))[0] == rows.bytes
    # Ids that repeat do not make a small table larger.
    assert reads(Op("Gather", (rows, Tensor((9,), 64)), (Tensor((9, 16)),)))[0] == rows.bytes


def test_nothing_moves_when_only_the_shape_changes():
    op = Op("Reshape", (X, Tensor((2,), 64)), (Tensor((6, 20)),))
    assert reads(op) == [0, 0]
    assert writes(op) == 0


@pytest.mark.parametrize(("bits", "expected"), [(32, 60), (16, 30), (8, 15), (4, 8), (2, 4), (64, 120)])
def test_narrow_elements_are_packed(bits, expected):
    assert Tensor((3, 5), bits).bytes == expected


def test_every_operator_of_the_standard_set_is_counted_or_refused():
    """A newer onnx package with new operators must fail here, not miscount them in silence."""
    counted = [ALIASES, MOVES, UNCOUNTED, FLOPS_PER_ELEMENT, FLOPS_PER_INPUT_ELEMENT, RULES]
    known = {name for table in counted for name in table}
    assert len(known) == sum(len(table) for table in counted)  # none is in two tables
    refused = {"Constant", "If", "Loop", "Scan"}  # and whatever makes or takes sequences
    standard = {schema.name for schema in onnx.defs.get_all_schemas() if schema.domain == ""}
    assert {
        name for name in standard - known - refused if not ("Sequence" in name or "Optional" in name)
    } == set()
    assert known <= standard


def test_every_counted_operator_has_a_kind():
    """The efficiency of a device depends on it."""
    counted = [ALIASES, MOVES, FLOPS_PER_ELEMENT, FLOPS_PER_INPUT_ELEMENT, RULES]
    other = {name for table in counted for name in table if op_kind(name) == "other"}
    windows_and_transforms = {
        "BlackmanWindow",
        "HammingWindow",
        "HannWindow",
        "MelWeightMatrix",
        "DFT",
        "STFT",
        "Det",
    }
    assert other == windows_and_transforms


def test_an_unknown_operator_is_not_guessed():
    assert flops(Op("FlashConv", (X,), (X,))) is None
    assert flops(Op("NonMaxSuppression", (X,), (X,))) is None
