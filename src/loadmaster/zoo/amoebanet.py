"""AmoebaNet-D."""

from __future__ import annotations

from loadmaster.errors import InputError
from loadmaster.zoo._trace import Shape, Trace, Value, ZooModel

__all__ = ["amoebanet"]

NORMAL = (
    (("1x1", 1), ("max3", 1)),
    (("none", 1), ("1x7-7x1", 0)),
    (("1x1", 0), ("1x7-7x1", 0)),
    (("max3", 2), ("none", 2)),
    (("avg3", 1), ("1x1", 5)),
)
"""The sums of a normal cell: (op, state) + (op, state). States 0 and 1 are the last cell and the one before
it, the sums follow as 2, 3, …"""
NORMAL_OUTPUT = (0, 3, 4, 6)
"""States that are joined to the cell's output."""
REDUCTION = (
    (("max2", 0), ("max3", 0)),
    (("none", 2), ("3x3", 1)),
    (("1x7-7x1", 2), ("max3", 2)),
    (("none", 3), ("max2", 1)),
    (("avg3", 2), ("1x1", 3)),
)
REDUCTION_OUTPUT = (4, 5, 6)


def amoebanet(
    *,
    layers: int = 18,
    filters: int = 208,
    batch: int = 32,
    size: int = 224,
    classes: int = 1000,
    training: bool = True,
) -> ZooModel:
    """AmoebaNet-D with ``layers`` normal cells, in three groups between which a reduction cell halves the
    image.

    The joined states of the normal cell are those of the authors' implementation, which is what GPipe
    measures.

    References
    ----------
    E. Real, A. Aggarwal, Y. Huang, Q. V. Le, "Regularized evolution for image classifier architecture
    search", AAAI 2019, appendix; Y. Huang et al., "GPipe: efficient training of giant neural networks using
    pipeline parallelism", NeurIPS 2019, table 1.
    """
    if layers % 3:
        raise InputError(f"amoebanet: layers must be a multiple of 3, not {layers}")
    if filters % 16:
        raise InputError(f"amoebanet: filters must be a multiple of 16, not {filters}")
    t = Trace("amoebanet", training=training)
    image = t.input(batch, 3, size, size, name="image")
    with t.scope("stem"):
        x = _relu_conv(t, image, filters // 4, 3, stride=2)
    states, width = (x, x), filters // 4
    cells = ["reduction"] * 2 + (["normal"] * (layers // 3) + ["reduction"]) * 2 + ["normal"] * (layers // 3)
    for i, kind in enumerate(cells):
        width *= 2 if kind == "reduction" else 1
        with t.scope(f"cell{i}"):
            x = _cell(t, *states, width, reduction=kind == "reduction")
        states = (x, states[0])
    with t.scope("head"):
        x = t.linear(t.mean(x), classes, name="fc")
        if training:
            t.loss(x)
    return t.model("amoebanet")


def _cell(t: Trace, last: Value, before: Value, width: int, *, reduction: bool) -> Value:
    with t.scope("in0"):
        first = _relu_conv(t, last, width, 1)
    with t.scope("in1"):
        if before.shape[2] != last.shape[2]:
            second = _factorised_reduction(t, before, width)
        else:
            second = before if before.shape[1] == width else _relu_conv(t, before, width, 1)
    states = [first, second]
    for i, pair in enumerate(REDUCTION if reduction else NORMAL):
        with t.scope(f"sum{i}"):
            terms = []
            for kind, source in pair:
                terms.append(_operation(t, states[source], kind, 2 if reduction and source < 2 else 1))
            states.append(t.add(*terms))
    return t.concat([states[i] for i in (REDUCTION_OUTPUT if reduction else NORMAL_OUTPUT)])


def _operation(t: Trace, x: Value, kind: str, stride: int) -> Value:
    width, narrow = x.shape[1], x.shape[1] // 4
    if kind == "none":
        return x
    if kind in ("max2", "max3", "avg3"):
        pool = "AveragePool" if kind == "avg3" else "MaxPool"
        return t.pool(x, pool, int(kind[-1]), stride=stride)
    with t.scope(kind):
        if kind == "1x1":
            return _relu_conv(t, x, width, 1, stride=stride)
        x = _relu_conv(t, x, narrow, 1)
        if kind == "3x3":
            x = _relu_conv(t, x, narrow, 3, stride=stride)
        else:
            x = _relu_conv(t, x, narrow, (1, 7), stride=(1, stride))
            x = _relu_conv(t, x, narrow, (7, 1), stride=(stride, 1))
        return _relu_conv(t, x, width, 1)


def _relu_conv(t: Trace, x: Value, channels: int, kernel: int | Shape, *, stride: int | Shape = 1) -> Value:
    return t.norm(t.conv(t.relu(x), channels, kernel, stride=stride), "Batch")


def _factorised_reduction(t: Trace, x: Value, channels: int) -> Value:
    """Half of the channels from the even pixels, half from the odd ones."""
    x = t.relu(x)
    halves = [t.conv(x, channels // 2, 1, stride=2) for _ in range(2)]
    return t.norm(t.concat(halves), "Batch")
