"""Switch Transformer: a mixture of experts."""

from __future__ import annotations

from loadmaster.zoo._attention import attend, feed_forward, heads_of
from loadmaster.zoo._trace import Trace, Value, ZooModel

__all__ = ["switch_base"]

LAYERS, WIDTH, HEADS, INNER = 12, 768, 12, 3072
BUCKETS = 32
"""Of the relative distances of two tokens."""


def switch_base(
    experts: int,
    *,
    batch: int = 8,
    seq: int = 512,
    target: int = 114,
    capacity: float = 1.25,
    vocabulary: int = 32128,
    tied: bool = True,
    training: bool = False,
) -> ZooModel:
    """T5-base in which every other feed-forward layer is ``experts`` of them, each token being sent to one.

    An expert takes ``capacity`` times its fair share of the tokens, full or not: what a router would do is
    known only at run time. ``tied=0`` gives the output layer a copy of the word table, as pipelined training
    does. Both sequences are given, in inference too (scoring); their lengths are those of the pre-training.

    References
    ----------
    W. Fedus, B. Zoph, N. Shazeer, "Switch transformers: scaling to trillion parameter models with simple and
    efficient sparsity", JMLR 2022, section 2; C. Raffel et al., "Exploring the limits of transfer learning
    with a unified text-to-text transformer", JMLR 2020, section 2.1.
    """
    t = Trace(f"switch-base-{experts}", training=training)
    table = t.weight(vocabulary, WIDTH)
    source, words = t.input(batch, seq, name="source"), t.input(batch, target, name="target")
    with t.scope("encoder"):
        with t.scope("embedding"):
            x = t.dropout(t.embedding(source, table))
            distances = _distances(t, seq)
        for i in range(LAYERS):
            with t.scope(f"layer{i}"):
                x = _attention(t, x, x, distances, name="attention")
                x = _feed_forward(t, x, experts if i % 2 else 0, capacity)
        memory = t.norm(x, "RMS", name="last_norm")
    with t.scope("decoder"):
        with t.scope("embedding"):
            x = t.dropout(t.embedding(words, table))
            distances = _distances(t, target)
        for i in range(LAYERS):
            with t.scope(f"layer{i}"):
                x = _attention(t, x, x, distances, name="attention")
                x = _attention(t, x, memory, None, name="cross_attention")
                x = _feed_forward(t, x, experts if i % 2 else 0, capacity)
        x = t.norm(x, "RMS", name="last_norm")
    with t.scope("softmax"):
        logits = t.linear(x, vocabulary, weight=table if tied else t.weight(vocabulary, WIDTH), bias=False)
        if training:
            t.loss(logits)
        else:
            t.softmax(logits)
    return t.model("switch")


def _distances(t: Trace, tokens: int) -> Value:
    """(1, heads, tokens, tokens) what is added to the scores of every layer."""
    buckets = t.zeros(tokens, tokens, name="buckets")
    return t.transpose(
        t.embedding(buckets, t.weight(BUCKETS, HEADS), name="distance"), 1, HEADS, tokens, tokens
    )


def _attention(t: Trace, x: Value, memory: Value, distances: Value | None, *, name: str) -> Value:
    with t.scope(name):
        y = t.norm(x, "RMS")
        seen = y if memory is x else memory
        q = heads_of(t, t.linear(y, WIDTH, bias=False, name="q"), HEADS, name="q")
        k, v = (heads_of(t, t.linear(seen, WIDTH, bias=False, name=n), HEADS, name=n) for n in "kv")
        y = t.linear(attend(t, q, k, v, mask=distances, scaled=False), WIDTH, bias=False, name="project")
        return t.add(x, t.dropout(y), name="residual")


def _feed_forward(t: Trace, x: Value, experts: int, capacity: float) -> Value:
    with t.scope("mlp"):
        y = t.norm(x, "RMS")
        y = (
            _mixture(t, y, experts, capacity)
            if experts
            else feed_forward(t, y, INNER, activation="Relu", bias=False)
        )
        return t.add(x, t.dropout(y), name="residual")


def _mixture(t: Trace, x: Value, experts: int, capacity: float) -> Value:
    """Each token goes to the expert that the router likes best; the answer is scaled by the router's
    confidence."""
    batch, tokens, width = x.shape
    room = -(-int(batch * tokens * capacity) // experts)
    with t.scope("router"):
        chances = t.softmax(t.linear(x, experts, bias=False))
        gate = t.slice(chances, batch, tokens, 1, name="gate")
    parts = t.op("Split", [x, chances], [(room, width)] * experts, name="dispatch")
    answers = []
    for e, part in enumerate(parts):
        with t.scope(f"expert{e}"):
            answers.append(feed_forward(t, part, INNER, activation="Relu", bias=False))
    joined = t.concat(answers, axis=0, name="collect")
    return t.mul(t.slice(joined, batch, tokens, width, name="combine"), gate, name="weigh")
