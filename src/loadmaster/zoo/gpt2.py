"""GPT-2."""

from __future__ import annotations

from loadmaster.errors import InputError
from loadmaster.zoo._attention import attend, feed_forward, heads_of
from loadmaster.zoo._trace import Trace, Tracer, Value, ZooModel

__all__ = ["gpt2", "gpt2_decode"]

POSITIONS = 1024


def gpt2(
    *,
    batch: int = 1,
    seq: int = 1024,
    layers: int = 12,
    width: int = 768,
    heads: int = 12,
    vocabulary: int = 50257,
    tied: bool = True,
    training: bool = False,
) -> ZooModel:
    """The prompt at once (prefill), with the logits of the last token; in training those of all tokens.

    ``tied=0`` gives the output layer a copy of the word table, as pipelined training does. GPT-2 XL is
    ``gpt2?layers=48&width=1600&heads=25``.

    References
    ----------
    A. Radford et al., "Language models are unsupervised multitask learners", 2019, section 2.3 and table 2.
    """
    t = Trace("gpt2", training=training)
    return _model(t, batch, seq, 0, layers, width, heads, vocabulary, tied)


def gpt2_decode(
    trace: Tracer = Trace,
    *,
    batch: int = 1,
    seq: int = 1024,
    layers: int = 12,
    width: int = 768,
    heads: int = 12,
    vocabulary: int = 50257,
    tied: bool = True,
) -> ZooModel:
    """One more token after ``seq - 1`` others, whose keys and values are cached with the layer that they
    belong to."""
    t = trace("gpt2-decode")
    return _model(t, batch, 1, seq - 1, layers, width, heads, vocabulary, tied)


def _model(
    t: Trace,
    batch: int,
    tokens: int,
    cached: int,
    layers: int,
    width: int,
    heads: int,
    vocabulary: int,
    tied: bool,
) -> ZooModel:
    if tokens + cached > POSITIONS:
        raise InputError(f"gpt2: seq must be at most {POSITIONS}, not {tokens + cached}")
    if width % heads:
        raise InputError(f"gpt2: width {width} must be a multiple of heads {heads}")
    words = t.input(batch, tokens, ids=True, name="tokens")
    table = t.weight(vocabulary, width)
    with t.scope("embedding"):
        ids = t.positions(1, tokens, first=cached, name="position_ids")
        position = t.embedding(ids, t.weight(POSITIONS, width), name="position")
        x = t.dropout(t.add(t.embedding(words, table, name="word"), position))
    for i in range(layers):
        with t.scope(f"layer{i}"):
            x = _layer(t, x, heads, cached)
    with t.scope("head"):
        x = t.norm(x)
        if not t.training and tokens > 1:
            x = t.slice(x, batch, 1, width, name="last_token")
        logits = t.linear(x, vocabulary, weight=table if tied else t.weight(vocabulary, width), bias=False)
        if t.training:
            t.loss(logits)
    return t.model("gpt2")


def _layer(t: Trace, x: Value, heads: int, cached: int) -> Value:
    width = x.shape[-1]
    with t.scope("attention"):
        parts = t.split(t.linear(t.norm(x), 3 * width, name="qkv"), 3)
        q, k, v = (heads_of(t, part, heads, name=name) for part, name in zip(parts, "qkv", strict=True))
        if cached:
            k = t.concat([k], axis=2, state=cached, name="k_cache")
            v = t.concat([v], axis=2, state=cached, name="v_cache")
        y = t.linear(attend(t, q, k, v), width, branch=True, name="project")
        x = t.add(x, t.dropout(y), name="residual")
    with t.scope("mlp"):
        y = feed_forward(t, t.norm(x), 4 * width, activation="Gelu")
        return t.add(x, t.dropout(y), name="residual")
