"""LSTM layers unrolled in time."""

from __future__ import annotations

from loadmaster.zoo._trace import Trace, Value, Weight

__all__ = ["LSTM"]


class LSTM:
    """One layer: a cell per time step, all of them with the same weights.

    The cell as TensorFlow spells it out: one product of the joined inputs with a kernel of all four gates,
    forget gate with an offset of one.

    References
    ----------
    S. Hochreiter, J. Schmidhuber, "Long short-term memory", Neural Computation 1997; W. Zaremba, I.
    Sutskever, O. Vinyals, "Recurrent neural network regularization", 2014, section 3.1.
    """

    def __init__(self, t: Trace, width: int, batch: int) -> None:
        self._t = t
        self._width = width
        self._kernel: Weight | None = None
        self._bias = t.weight(4 * width)
        self._hidden = t.zeros(batch, width, name="hidden0")
        self._cell = t.zeros(batch, width, name="cell0")

    def step(self, *inputs: Value) -> Value:
        """The output of the next time step."""
        t = self._t
        joined = t.concat([*inputs, self._hidden], axis=-1)
        if self._kernel is None:
            self._kernel = t.weight(joined.shape[-1], 4 * self._width)
        gates = t.linear(joined, 4 * self._width, weight=self._kernel, bias=False)
        i, j, f, o = t.split(t.bias(gates, weight=self._bias), 4)
        forget = t.map("Sigmoid", t.map("Add", f, name="forget_offset"), name="forget")
        kept = t.mul(self._cell, forget, name="kept")
        new = t.mul(t.map("Sigmoid", i, name="input"), t.map("Tanh", j, name="candidate"), name="new")
        self._cell = t.add(kept, new, name="cell")
        output = t.map("Sigmoid", o, name="output")
        self._hidden = t.mul(t.map("Tanh", self._cell, name="squashed"), output, name="hidden")
        return self._hidden
