"""WaveNet."""

from __future__ import annotations

from loadmaster.errors import InputError
from loadmaster.zoo._trace import Trace, Value, ZooModel

__all__ = ["wavenet"]

LAYERS_PER_STACK = 9
"""Dilations 1, 2, 4, …, 256."""
LEVELS = 256
"""Amplitudes that are told apart."""


def wavenet(
    layers: int,
    *,
    batch: int = 2,
    seq: int = 16000,
    residual: int = 256,
    skip: int = 256,
    training: bool = True,
) -> ZooModel:
    """Stacks of nine gated causal convolutions with growing dilation; their skip outputs are summed up.

    The number of layers and stacks is that of GDP (18 in 2, 36 in 4), which gives no channels: 256 are ours.
    ``seq`` is a second of audio. Inference is scoring: all samples are given.

    References
    ----------
    A. van den Oord et al., "WaveNet: a generative model for raw audio", 2016, figure 4.
    """
    if layers % LAYERS_PER_STACK:
        raise InputError(f"wavenet-{layers}: the number of layers must be a multiple of {LAYERS_PER_STACK}")
    t = Trace(f"wavenet-{layers}", training=training)
    samples = t.input(batch, seq, name="samples")
    with t.scope("front"):
        # A convolution over one-hot samples of width 1 is a look-up.
        x = t.embedding(samples, t.weight(LEVELS, residual))
        x = t.transpose(x, batch, residual, seq)
    total: Value | None = None
    for i in range(layers):
        stack, layer = divmod(i, LAYERS_PER_STACK)
        with t.scope(f"stack{stack}"), t.scope(f"layer{layer}"):
            gates = t.conv(x, 2 * residual, (2,), bias=True, name="dilated")
            filtered, gate = t.split(gates, 2, axis=1)
            hidden = t.mul(t.map("Tanh", filtered), t.map("Sigmoid", gate))
            out = t.conv(hidden, skip, (1,), bias=True, name="skip")
            total = out if total is None else t.add(total, out, name="skip_sum")
            if i < layers - 1:
                x = t.add(x, t.conv(hidden, residual, (1,), bias=True, name="residual"))
    assert total is not None
    with t.scope("post"):
        x = t.conv(t.relu(total), skip, (1,), bias=True, name="conv1")
        x = t.conv(t.relu(x), LEVELS, (1,), bias=True, name="conv2")
        if training:
            t.loss(x, axis=1)
        else:
            t.softmax(x)
    return t.model("wavenet")
