"""Inception-V3."""

from __future__ import annotations

from loadmaster.zoo._trace import Shape, Trace, Tracer, Value, ZooModel

__all__ = ["inception_v3"]

Branch = list[tuple[int, int | Shape]]
"""Convolutions one after another: (channels, kernel)."""


def inception_v3(
    trace: Tracer = Trace,
    *,
    batch: int = 1,
    size: int = 299,
    classes: int = 1000,
    transform: bool = False,
    training: bool = False,
) -> ZooModel:
    """Parallel branches of convolutions joined by concatenation; with the auxiliary classifier in training.

    ``transform=1`` takes images as torchvision normalises them and turns them into what the published weights expect.
    Numbers of channels as in torchvision (those of the published checkpoint), blocks by their names there.

    References
    ----------
    C. Szegedy et al., "Rethinking the Inception architecture for computer vision", CVPR 2016, table 1,
    figures 5 to 7.
    """
    t = trace("inception-v3", training=training)
    x = t.input(batch, 3, size, size, name="image")
    if transform:
        with t.scope("transform"):
            x = _transform(t, x)
    with t.scope("stem"):
        x = _conv(t, x, 32, 3, stride=2, padding="valid")
        x = _conv(t, x, 32, 3, padding="valid")
        x = _conv(t, x, 64, 3)
        x = t.pool(x, "MaxPool", 3, stride=2, padding="valid")
        x = _conv(t, x, 80, 1)
        x = _conv(t, x, 192, 3, padding="valid")
        x = t.pool(x, "MaxPool", 3, stride=2, padding="valid")

    for name, pooled in (("mixed_5b", 32), ("mixed_5c", 64), ("mixed_5d", 64)):
        with t.scope(name):
            x = _mixed(t, x, [[(64, 1)], [(48, 1), (64, 5)], [(64, 1), (96, 3), (96, 3)]], pooled=pooled)
    with t.scope("mixed_6a"):
        x = _reduction(t, x, [[(384, 3)], [(64, 1), (96, 3), (96, 3)]])
    for name, c in (("mixed_6b", 128), ("mixed_6c", 160), ("mixed_6d", 160), ("mixed_6e", 192)):
        single: Branch = [(c, 1), (c, (1, 7)), (192, (7, 1))]
        double: Branch = [(c, 1), (c, (7, 1)), (c, (1, 7)), (c, (7, 1)), (192, (1, 7))]
        with t.scope(name):
            x = _mixed(t, x, [[(192, 1)], single, double], pooled=192)
    if training:
        with t.scope("auxiliary"):
            y = t.pool(x, "AveragePool", 5, stride=3, padding="valid")
            y = _conv(t, y, 128, 1)
            y = _conv(t, y, 768, 5, padding="valid")
            t.loss(t.linear(t.mean(y), classes, name="fc"))
    with t.scope("mixed_7a"):
        x = _reduction(t, x, [[(192, 1), (320, 3)], [(192, 1), (192, (1, 7)), (192, (7, 1)), (192, 3)]])
    for name in ("mixed_7b", "mixed_7c"):
        with t.scope(name):
            x = _mixed(t, x, [[(320, 1)], [(384, 1)], [(448, 1), (384, 3)]], pooled=192, forked=True)
    with t.scope("head"):
        x = t.linear(t.dropout(t.mean(x)), classes, name="fc")
        if training:
            t.loss(x)
    return t.model("inception")


def _transform(t: Trace, x: Value) -> Value:
    """Channel by channel from mean and deviation of ImageNet to those of the range from -1 to 1."""
    channels = []
    for i, (mean, deviation) in enumerate(zip((0.485, 0.456, 0.406), (0.229, 0.224, 0.225), strict=True)):
        y = t.channel(x, i)
        channels.append(t.shift(t.scale(y, deviation / 0.5), (mean - 0.5) / 0.5))
    return t.concat(channels)


def _conv(
    t: Trace, x: Value, channels: int, kernel: int | Shape, *, stride: int = 1, padding: str = "same"
) -> Value:
    x = t.conv(x, channels, kernel, stride=stride, padding=padding)
    return t.relu(t.norm(x, "Batch"))


def _mixed(t: Trace, x: Value, branches: list[Branch], *, pooled: int, forked: bool = False) -> Value:
    """Branches of convolutions, and one of average pooling; ``forked``: all but the first end in 1x3 beside
    3x1."""
    ends = []
    for i, branch in enumerate(branches):
        with t.scope(f"branch{i}"):
            y = x
            for channels, kernel in branch:
                y = _conv(t, y, channels, kernel)
            if forked and i:
                y = t.concat([_conv(t, y, 384, (1, 3)), _conv(t, y, 384, (3, 1))])
            ends.append(y)
    with t.scope("pooled"):
        ends.append(_conv(t, t.pool(x, "AveragePool", 3), pooled, 1))
    return t.concat(ends)


def _reduction(t: Trace, x: Value, branches: list[Branch]) -> Value:
    """Branches whose last convolution has stride 2, and one of max pooling."""
    ends = []
    for i, branch in enumerate(branches):
        with t.scope(f"branch{i}"):
            y = x
            for channels, kernel in branch[:-1]:
                y = _conv(t, y, channels, kernel)
            ends.append(_conv(t, y, *branch[-1], stride=2, padding="valid"))
    ends.append(t.pool(x, "MaxPool", 3, stride=2, padding="valid"))
    return t.concat(ends)
