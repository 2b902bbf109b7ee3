"""Google's neural machine translation system."""

from __future__ import annotations

from collections.abc import Sequence

from loadmaster.errors import InputError
from loadmaster.zoo._recurrent import LSTM
from loadmaster.zoo._trace import Trace, Value, ZooModel

__all__ = ["gnmt"]


def gnmt(
    layers: int,
    *,
    batch: int = 64,
    seq: int = 80,
    width: int = 1024,
    vocabulary: int = 32000,
    training: bool = True,
) -> ZooModel:
    """An encoder and a decoder of ``layers`` LSTM layers each, with attention, unrolled over ``seq`` tokens
    on both sides.

    The first encoder layer runs in both directions; residual connections from the third layer on; the lowest
    decoder layer asks the attention, whose answer every decoder layer reads. Inference decodes greedily:
    each token is the best guess of the step before.

    References
    ----------
    Y. Wu et al., "Google's neural machine translation system: bridging the gap between human and machine
    translation", 2016, figure 1, sections 3.1 to 3.3.
    """
    if layers < 2:
        raise InputError(f"gnmt-{layers}: at least two layers are needed")
    t = Trace(f"gnmt-{layers}", training=training)
    source = t.input(batch, seq, name="source")
    with t.scope("encoder"), t.scope("embedding"):
        xs = t.unstack(t.embedding(source, t.weight(vocabulary, width)))
    memory = _encoder(t, xs, layers, width)
    decoder = _Decoder(t, memory, layers, width, vocabulary)
    if training:
        target = t.input(batch, seq, name="target")
        with t.scope("decoder"), t.scope("embedding"):
            words = t.unstack(t.embedding(target, t.weight(vocabulary, width)))
        outputs = [decoder.step(x) for x in words]
        with t.scope("softmax"):
            t.loss(t.linear(t.stack(outputs), vocabulary))
        return t.model("gnmt")
    table, projection, offset = t.weight(vocabulary, width), t.weight(width, vocabulary), t.weight(vocabulary)
    with t.scope("decoder"):
        word = t.zeros(batch, name="start")
    for step in range(seq):
        with t.scope("decoder"), t.scope("embedding"), t.scope(f"t{step}"):
            x = t.embedding(word, table)
        x = decoder.step(x)
        with t.scope("softmax"), t.scope(f"t{step}"):
            logits = t.bias(t.linear(x, vocabulary, weight=projection, bias=False), weight=offset)
            (word,) = t.op("ArgMax", [logits], [(batch,)], flops=logits.size)
    return t.model("gnmt")


def _encoder(t: Trace, xs: Sequence[Value], layers: int, width: int) -> Value:
    """(batch, tokens, width) outputs of the top layer."""
    batch = xs[0].shape[0]
    ways: list[list[Value]] = []
    for way in ("forward", "backward"):
        with t.scope("encoder"), t.scope("layer0"), t.scope(way):
            cell = LSTM(t, width, batch)
            ways.append([])
            for step in range(len(xs)) if way == "forward" else reversed(range(len(xs))):
                with t.scope(f"t{step}"):
                    ways[-1].append(cell.step(t.dropout(xs[step])))
    with t.scope("encoder"), t.scope("layer0"):
        xs = [t.concat([a, b], name="both") for a, b in zip(ways[0], reversed(ways[1]), strict=True)]
    for i in range(1, layers):
        with t.scope("encoder"), t.scope(f"layer{i}"):
            cell, below, xs = LSTM(t, width, batch), xs, []
            for step, x in enumerate(below):
                with t.scope(f"t{step}"):
                    y = cell.step(t.dropout(x))
                    xs.append(t.add(x, y, name="residual") if i >= 2 else y)
    with t.scope("encoder"):
        return t.stack(xs, name="outputs")


class _Decoder:
    def __init__(self, t: Trace, memory: Value, layers: int, width: int, vocabulary: int) -> None:
        self._t, self._memory = t, memory
        self._batch, self._tokens, self._width = memory.shape
        with t.scope("attention"):
            self._keys = t.linear(memory, width, bias=False, name="keys")
            self._context = t.zeros(self._batch, width, name="context0")
        self._query, self._score = t.weight(width, width), t.weight(width, 1)
        self._cells = []
        for i in range(layers):
            with t.scope("decoder"), t.scope(f"layer{i}"):
                self._cells.append(LSTM(t, width, self._batch))
        self._steps = 0

    def step(self, x: Value) -> Value:
        """The output of the top layer for one word."""
        t, step = self._t, self._steps
        self._steps += 1
        for i, cell in enumerate(self._cells):
            with t.scope("decoder"), t.scope(f"layer{i}"), t.scope(f"t{step}"):
                y = cell.step(t.dropout(x), self._context)
                x = t.add(x, y, name="residual") if i >= 2 else y
            if i == 0:
                with t.scope("attention"), t.scope(f"t{step}"):
                    self._context = self._attend(x)
        return x

    def _attend(self, x: Value) -> Value:
        """Additive attention: softmax(v · tanh(keys + query)) over the encoder's outputs, which it
        averages."""
        t = self._t
        query = t.linear(x, self._width, weight=self._query, bias=False, name="query")
        query = t.transpose(query, self._batch, 1, self._width, name="expand")
        hidden = t.map("Tanh", t.add(self._keys, query))
        scores = t.linear(hidden, 1, weight=self._score, bias=False, name="scores")
        weights = t.softmax(t.transpose(scores, self._batch, 1, self._tokens, name="squeeze"))
        context = t.matmul(weights, self._memory, name="context")
        return t.transpose(context, self._batch, self._width, name="squeeze")
