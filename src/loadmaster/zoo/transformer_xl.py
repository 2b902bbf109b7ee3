"""Transformer-XL."""

from __future__ import annotations

from loadmaster.errors import InputError
from loadmaster.zoo._attention import feed_forward, heads_of, joined_heads
from loadmaster.zoo._trace import Trace, Value, ZooModel

__all__ = ["transformer_xl"]


def transformer_xl(
    layers: int,
    *,
    batch: int = 8,
    seq: int = 512,
    memory: int = 512,
    width: int = 1024,
    heads: int = 8,
    inner: int = 3072,
    vocabulary: int = 204,
    tied: bool = True,
    training: bool = True,
) -> ZooModel:
    """One segment of ``seq`` tokens that also looks at ``memory`` hidden states of the segment before, in
    each layer.

    The widths are those of the large character-level model (24 layers); the small one is
    ``transformer-xl-12?width=512&inner=2048``. The memory of a layer stays on its device. ``tied=0`` gives
    the output layer a copy of the table of characters, as pipelined training does.

    References
    ----------
    Z. Dai et al., "Transformer-XL: attentive language models beyond a fixed-length context", ACL 2019,
    sections 3.2 and 3.3.
    """
    if width % heads:
        raise InputError(f"transformer-xl-{layers}: width {width} must be a multiple of heads {heads}")
    t = Trace(f"transformer-xl-{layers}", training=training)
    tokens = t.input(batch, seq, name="tokens")
    table = t.weight(vocabulary, width)
    with t.scope("embedding"):
        x = t.dropout(t.embedding(tokens, table))
        positions = t.dropout(t.zeros(1, memory + seq, width, name="positions"))
    for i in range(layers):
        with t.scope(f"layer{i}"):
            with t.scope("attention"):
                y = t.dropout(_relative_attention(t, x, positions, heads, memory))
                x = t.norm(t.add(x, y, name="residual"))
            with t.scope("mlp"):
                y = t.dropout(feed_forward(t, x, inner, activation="Relu"))
                x = t.norm(t.add(x, y, name="residual"))
    with t.scope("softmax"):
        weight = table if tied else t.weight(vocabulary, width)
        logits = t.bias(t.linear(x, vocabulary, weight=weight, bias=False))
        if training:
            t.loss(logits)
        else:
            t.softmax(logits)
    return t.model("transformer-xl")


def _relative_attention(t: Trace, x: Value, positions: Value, heads: int, memory: int) -> Value:
    """Scores are (q + u) kᵀ + shifted (q + v) rᵀ, r a projection of the distances; u and v are trained."""
    width = x.shape[-1]
    context = t.concat([x], axis=1, state=memory, name="memory")
    q = t.linear(x, width, bias=False, name="q")
    k, v = (
        heads_of(t, t.linear(context, width, bias=False, name=n), heads, name=n) for n in ("key", "value")
    )
    r = heads_of(t, t.linear(positions, width, bias=False, name="r"), heads, name="r")
    q_content = heads_of(t, t.bias(q, name="u"), heads, name="q_content")
    q_distance = heads_of(t, t.bias(q, name="v"), heads, name="q_distance")
    by_content = t.matmul(q_content, k, transposed=True, name="by_content")
    by_distance = t.matmul(q_distance, r, transposed=True, name="by_distance")
    shifted = t.transpose(by_distance, *by_distance.shape, name="shift")
    scores = t.map("Mul", t.add(by_content, shifted, name="scores"), name="scale")
    mixed = t.matmul(t.dropout(t.softmax(scores)), v, name="context")
    return t.linear(joined_heads(t, mixed), width, bias=False, name="project")
