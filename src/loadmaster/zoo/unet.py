"""U-Net."""

from __future__ import annotations

from loadmaster.zoo._trace import Trace, Value, ZooModel

__all__ = ["unet"]


def unet(
    *, batch: int = 1, size: int = 572, channels: int = 1, classes: int = 2, training: bool = False
) -> ZooModel:
    """Four times down and up again, with the features of the way down cropped and joined on the way up.

    Convolutions without padding, as published: 572 x 572 pixels in, 388 x 388 out.

    References
    ----------
    O. Ronneberger, P. Fischer, T. Brox, "U-Net: convolutional networks for biomedical image segmentation",
    MICCAI 2015, figure 1.
    """
    t = Trace("unet", training=training)
    x = t.input(batch, channels, size, size, name="image")
    skips = []
    for level in range(4):
        with t.scope(f"down{level}"):
            x = _double(t, x, 64 * 2**level)
            skips.append(x)
            x = t.pool(x, "MaxPool", 2, stride=2, padding="valid")
    with t.scope("bottom"):
        x = t.dropout(_double(t, x, 1024))
    for level in reversed(range(4)):
        with t.scope(f"up{level}"):
            x = t.conv_transpose(x, 64 * 2**level, 2)
            crop = t.slice(skips[level], batch, 64 * 2**level, *x.shape[2:], name="crop")
            x = _double(t, t.concat([crop, x]), 64 * 2**level)
    with t.scope("head"):
        x = t.conv(x, classes, 1, bias=True)
        if training:
            t.loss(x, axis=1)
    return t.model("unet")


def _double(t: Trace, x: Value, channels: int) -> Value:
    for i in (1, 2):
        x = t.relu(t.conv(x, channels, 3, padding="valid", bias=True, name=f"conv{i}"))
    return x
