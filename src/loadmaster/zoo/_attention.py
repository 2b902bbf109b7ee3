"""Multi-head attention, as BERT, GPT-2 and T5 have it."""

from __future__ import annotations

from loadmaster.zoo._trace import Trace, Value

__all__ = ["attend", "feed_forward", "heads_of", "joined_heads"]


def heads_of(t: Trace, x: Value, heads: int, *, name: str) -> Value:
    """(batch, tokens, width) -> (batch, heads, tokens, width / heads)."""
    batch, tokens, width = x.shape
    return t.transpose(x, batch, heads, tokens, width // heads, name=f"{name}_heads")


def joined_heads(t: Trace, x: Value) -> Value:
    """The inverse of :func:`heads_of`."""
    batch, heads, tokens, part = x.shape
    return t.transpose(x, batch, tokens, heads * part, name="join_heads")


def attend(
    t: Trace, q: Value, k: Value, v: Value, *, mask: Value | None = None, scaled: bool = True
) -> Value:
    """softmax(q kᵀ / sqrt(width) + mask) v for every head; a causal mask comes with the scaling.

    References
    ----------
    A. Vaswani et al., "Attention is all you need", NeurIPS 2017, equation 1.
    """
    scores = t.matmul(q, k, transposed=True, name="scores")
    if scaled:
        scores = t.scale(scores, q.shape[-1] ** -0.5)
    if mask is not None:
        scores = t.add(scores, mask, name="mask")
    weights = t.dropout(t.softmax(scores))
    return joined_heads(t, t.matmul(weights, v, name="context"))


def feed_forward(t: Trace, x: Value, inner: int, *, activation: str, bias: bool = True) -> Value:
    """Up to ``inner`` and down again."""
    hidden = t.map(activation, t.linear(x, inner, bias=bias, name="up"))
    return t.linear(hidden, x.shape[-1], bias=bias, branch=True, name="down")
