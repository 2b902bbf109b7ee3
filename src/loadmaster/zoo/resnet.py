"""ResNet-50, -101 and -152."""

from __future__ import annotations

from loadmaster.errors import InputError
from loadmaster.zoo._trace import Trace, Tracer, Value, ZooModel

__all__ = ["resnet", "two_tower"]

BLOCKS = {50: (3, 4, 6, 3), 101: (3, 4, 23, 3), 152: (3, 8, 36, 3)}
"""Depth -> bottleneck blocks in each of the four stages."""


def resnet(
    depth: int,
    trace: Tracer = Trace,
    *,
    batch: int = 1,
    size: int = 224,
    classes: int = 1000,
    training: bool = False,
) -> ZooModel:
    """Bottleneck blocks in four stages, each half as large and twice as wide as the one before.

    The stride of a stage is in the 3x3 convolution of its first block, as in torchvision.

    References
    ----------
    K. He, X. Zhang, S. Ren, J. Sun, "Deep residual learning for image recognition", CVPR 2016, table 1.
    """
    if depth not in BLOCKS:
        raise InputError(
            f"there is no resnet-{depth}: choose from {', '.join(f'resnet-{d}' for d in BLOCKS)}"
        )
    t = trace(f"resnet-{depth}", training=training)
    x = _features(t, t.input(batch, 3, size, size, name="image"), depth)
    with t.scope("head"):
        x = t.linear(t.mean(x), classes, name="fc")
        if training:
            t.loss(x)
    return t.model("resnet")


def two_tower(
    trace: Tracer = Trace,
    *,
    depth: int = 50,
    batch: int = 1,
    size: int = 224,
    classes: int = 1000,
    training: bool = False,
) -> ZooModel:
    """Two residual networks side by side on two images, without a weight in common, joined by one linear layer."""
    if depth not in BLOCKS:
        raise InputError(f"two-tower: depth must be one of {', '.join(map(str, BLOCKS))}, not {depth}")
    t = trace("two-tower", training=training)
    images = [t.input(batch, 3, size, size, name=f"image{i}") for i in range(2)]
    ends = []
    for i, image in enumerate(images):
        with t.scope(f"tower{i}"):
            ends.append(t.mean(_features(t, image, depth)))
    with t.scope("head"):
        x = t.linear(t.concat(ends), classes, name="fc")
        if training:
            t.loss(x)
    return t.model("two-tower")


def _features(t: Trace, x: Value, depth: int) -> Value:
    """All but the head."""
    with t.scope("stem"):
        x = t.relu(_conv_norm(t, x, 64, 7, stride=2))
        x = t.pool(x, "MaxPool", 3, stride=2)
    for stage, blocks in enumerate(BLOCKS[depth]):
        for block in range(blocks):
            with t.scope(f"stage{stage + 1}"), t.scope(f"block{block}"):
                x = _bottleneck(t, x, width=64 * 2**stage, stride=2 if stage and not block else 1)
    return x


def _bottleneck(t: Trace, x: Value, *, width: int, stride: int) -> Value:
    y = t.relu(_conv_norm(t, x, width, 1, name="conv1"))
    y = t.relu(_conv_norm(t, y, width, 3, stride=stride, name="conv2"))
    y = _conv_norm(t, y, 4 * width, 1, branch=True, name="conv3")
    if x.shape != y.shape:
        x = _conv_norm(t, x, 4 * width, 1, stride=stride, name="shortcut")
    return t.relu(t.add(y, x))


def _conv_norm(
    t: Trace,
    x: Value,
    channels: int,
    kernel: int,
    *,
    stride: int = 1,
    branch: bool = False,
    name: str = "conv",
) -> Value:
    x = t.conv(x, channels, kernel, stride=stride, branch=branch, name=name)
    return t.norm(x, "Batch", name=f"{name}_norm")
