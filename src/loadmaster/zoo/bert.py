"""BERT."""

from __future__ import annotations

from loadmaster.errors import InputError
from loadmaster.zoo._attention import attend, feed_forward, heads_of
from loadmaster.zoo._trace import Trace, Tracer, Value, ZooModel

__all__ = ["bert"]

SIZES = {"base": (12, 768, 12), "large": (24, 1024, 16)}
"""Name -> layers, width, heads."""
POSITIONS = 512


def bert(
    which: str,
    trace: Tracer = Trace,
    *,
    batch: int = 1,
    seq: int = 128,
    vocabulary: int = 30522,
    tied: bool = True,
    training: bool = False,
    layers: int = 0,
) -> ZooModel:
    """The encoder with its pooler; in training with both pre-training tasks (15 % of the words masked, next
    sentence).

    ``tied=0`` gives the output layer a copy of the word table, as pipelined training does. ``layers`` is by default the
    published number.

    References
    ----------
    J. Devlin, M.-W. Chang, K. Lee, K. Toutanova, "BERT: pre-training of deep bidirectional transformers for
    language understanding", NAACL 2019, section 3.
    """
    usual, width, heads = SIZES[which]
    if seq > POSITIONS:
        raise InputError(f"bert-{which}: seq must be at most {POSITIONS}, not {seq}")
    t = trace(f"bert-{which}", training=training)
    words = t.input(batch, seq, ids=True, name="tokens")
    kinds = t.input(batch, seq, ids=True, name="token_types")
    mask = t.attention_mask(batch, seq)
    table = t.weight(vocabulary, width)
    with t.scope("embedding"):
        positions = t.embedding(
            t.positions(1, seq, name="position_ids"), t.weight(POSITIONS, width), name="position"
        )
        kind = t.embedding(kinds, t.weight(2, width), name="type")
        x = t.add(t.embedding(words, table, name="word"), kind, positions)
        x = t.dropout(t.norm(x))
    for i in range(layers or usual):
        with t.scope("encoder"), t.scope(f"layer{i}"):
            x = _layer(t, x, heads, mask)
    if not training:
        t.output(x, name="last_hidden_state")
    with t.scope("pooler"):
        first = t.slice(x, batch, width, name="first_token")
        pooled = t.map("Tanh", t.linear(first, width))
    if training:
        with t.scope("next_sentence"):
            t.loss(t.linear(pooled, 2))
        with t.scope("masked_words"):
            y = t.slice(x, batch, max(1, round(0.15 * seq)), width, name="masked")
            y = t.norm(t.map("Gelu", t.linear(y, width, name="transform")))
            weight = table if tied else t.weight(vocabulary, width)
            t.loss(t.bias(t.linear(y, vocabulary, weight=weight, bias=False)))
    return t.model("bert")


def _layer(t: Trace, x: Value, heads: int, mask: Value) -> Value:
    with t.scope("attention"):
        q, k, v = (heads_of(t, t.linear(x, x.shape[-1], name=name), heads, name=name) for name in "qkv")
        y = t.linear(attend(t, q, k, v, mask=mask), x.shape[-1], branch=True, name="project")
        x = t.norm(t.add(t.dropout(y), x, name="residual"))
    with t.scope("mlp"):
        y = feed_forward(t, x, 4 * x.shape[-1], activation="Gelu")
        return t.norm(t.add(t.dropout(y), x, name="residual"))
