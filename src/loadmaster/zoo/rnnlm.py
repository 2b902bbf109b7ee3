"""Recurrent language models."""

from __future__ import annotations

from loadmaster.zoo._recurrent import LSTM
from loadmaster.zoo._trace import Trace, ZooModel

__all__ = ["rnnlm"]


def rnnlm(
    layers: int,
    *,
    batch: int = 64,
    seq: int = 40,
    width: int = 2048,
    vocabulary: int = 10000,
    training: bool = True,
) -> ZooModel:
    """LSTM layers between an embedding and a softmax, unrolled over ``seq`` tokens.

    Width, batch and length are ours: the literature on placement does not give them. The "large" model of
    Zaremba et al. is ``rnnlm-2?width=1500&batch=20&seq=35``. Inference is scoring: all tokens are given.

    References
    ----------
    W. Zaremba, I. Sutskever, O. Vinyals, "Recurrent neural network regularization", 2014; A. Mirhoseini et
    al., "Device placement optimization with reinforcement learning", ICML 2017.
    """
    t = Trace(f"rnnlm-{layers}", training=training)
    tokens = t.input(batch, seq, name="tokens")
    with t.scope("embedding"):
        xs = t.unstack(t.embedding(tokens, t.weight(vocabulary, width)))
    cells = []
    for i in range(layers):
        with t.scope(f"layer{i}"):
            cells.append(LSTM(t, width, batch))
    outputs = []
    for step, x in enumerate(xs):
        for i, cell in enumerate(cells):
            with t.scope(f"layer{i}"), t.scope(f"t{step}"):
                x = cell.step(t.dropout(x))
        outputs.append(x)
    with t.scope("softmax"):
        logits = t.linear(t.dropout(t.stack(outputs)), vocabulary)
        if training:
            t.loss(logits)
        else:
            t.softmax(logits)
    return t.model("rnnlm")
