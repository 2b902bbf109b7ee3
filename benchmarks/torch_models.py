"""Nine models as people split them, in sizes that a test can afford: six of ``transformers``, three in plain torch.

``transformers`` is not a dependency: where it is installed elsewhere, ``LOADMASTER_TRANSFORMERS`` names its
site-packages folder, which is looked at last.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.nn import functional

__all__ = ["MODELS", "Case", "build"]


@dataclass(frozen=True)
class Case:
    """A model, one microbatch, and a loss of its results (and of a target, where it needs one)."""

    model: nn.Module
    example: Any
    loss: Callable[..., Any]
    target: Any = None


def build(name: str, *, dropout: float = 0.0, seed: int = 0, large: bool = False) -> Case:
    """A model of the table below; ``large`` in a size that is worth timing."""
    torch.manual_seed(seed)
    if name not in MODELS:
        raise SystemExit(f"there is no model {name!r}: choose of {', '.join(MODELS)}")
    return MODELS[name](dropout, large)


# -- plain torch: without torchvision ---------------------------------------------------------------------------


class ConvUnit(nn.Module):
    """Convolution, batch norm, and a ReLU in place."""

    def __init__(
        self, inputs: int, outputs: int, size: Any = 3, stride: int = 1, padding: Any = None
    ) -> None:
        super().__init__()
        if padding is None:
            padding = size // 2
        self.conv = nn.Conv2d(inputs, outputs, size, stride, padding, bias=False)
        self.norm = nn.BatchNorm2d(outputs)
        self.relu = nn.ReLU(inplace=True)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.relu(self.norm(self.conv(x)))


class Bottleneck(nn.Module):
    """The block of ResNet-50: 1x1, 3x3, 1x1, and the sum in place."""

    def __init__(self, inputs: int, width: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, width, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, stride, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(width)
        self.conv3 = nn.Conv2d(width, 4 * width, 1, bias=False)
        self.bn3 = nn.BatchNorm2d(4 * width)
        self.relu = nn.ReLU(inplace=True)
        self.downsample = None
        if stride != 1 or inputs != 4 * width:
            self.downsample = nn.Sequential(
                nn.Conv2d(inputs, 4 * width, 1, stride, bias=False), nn.BatchNorm2d(4 * width)
            )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        kept = x if self.downsample is None else self.downsample(x)
        x = self.relu(self.bn1(self.conv1(x)))
        x = self.relu(self.bn2(self.conv2(x)))
        x = self.bn3(self.conv3(x))
        x += kept
        return self.relu(x)


class ResNet(nn.Module):
    """ResNet-50 with a width to choose."""

    def __init__(self, width: int, classes: int, dropout: float) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, width, 7, 2, 3, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.relu = nn.ReLU(inplace=True)
        self.maxpool = nn.MaxPool2d(3, 2, 1)
        inputs = width
        for number, (blocks, stride) in enumerate(((3, 1), (4, 2), (6, 2), (3, 2)), 1):
            inner = width * 2 ** (number - 1)
            layers = []
            for block in range(blocks):
                layers.append(Bottleneck(inputs, inner, stride if block == 0 else 1))
                inputs = 4 * inner
            setattr(self, f"layer{number}", nn.Sequential(*layers))
        self.dropout = nn.Dropout(dropout)
        self.fc = nn.Linear(inputs, classes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.maxpool(self.relu(self.bn1(self.conv1(x))))
        x = self.layer4(self.layer3(self.layer2(self.layer1(x))))
        return self.fc(self.dropout(torch.flatten(functional.adaptive_avg_pool2d(x, 1), 1)))


class UNet(nn.Module):
    """U-Net: skips over the whole depth."""

    def __init__(self, width: int, depth: int, dropout: float) -> None:
        super().__init__()
        sizes = [width * 2**level for level in range(depth + 1)]
        self.down = nn.ModuleList(
            nn.Sequential(ConvUnit(a, b), ConvUnit(b, b))
            for a, b in zip([3, *sizes[:-2]], sizes[:-1], strict=True)
        )
        self.middle = nn.Sequential(
            ConvUnit(sizes[-2], sizes[-1]), nn.Dropout(dropout), ConvUnit(sizes[-1], sizes[-1])
        )
        self.up = nn.ModuleList(nn.ConvTranspose2d(2 * size, size, 2, 2) for size in reversed(sizes[:-1]))
        self.join = nn.ModuleList(
            nn.Sequential(ConvUnit(2 * size, size), ConvUnit(size, size)) for size in reversed(sizes[:-1])
        )
        self.head = nn.Conv2d(width, 2, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        skips = []
        for level in self.down:
            x = level(x)
            skips.append(x)
            x = functional.max_pool2d(x, 2)
        x = self.middle(x)
        for up, join in zip(self.up, self.join, strict=True):
            x = join(torch.cat([skips.pop(), up(x)], 1))
        return self.head(x)


class InceptionA(nn.Module):
    """1x1, 5x5, double 3x3 and pooling, side by side."""

    def __init__(self, inputs: int, pool: int, w: float) -> None:
        super().__init__()
        c = [max(4, int(size * w)) for size in (64, 48, 64, 64, 96, 96, pool)]
        self.one = ConvUnit(inputs, c[0], 1)
        self.five_1, self.five_2 = ConvUnit(inputs, c[1], 1), ConvUnit(c[1], c[2], 5)
        self.three_1, self.three_2, self.three_3 = (
            ConvUnit(inputs, c[3], 1),
            ConvUnit(c[3], c[4]),
            ConvUnit(c[4], c[5]),
        )
        self.pool = ConvUnit(inputs, c[6], 1)
        self.outputs = c[0] + c[2] + c[5] + c[6]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        pooled = functional.avg_pool2d(x, 3, 1, 1)
        parts = [self.one(x), self.five_2(self.five_1(x)), self.three_3(self.three_2(self.three_1(x)))]
        return torch.cat([*parts, self.pool(pooled)], 1)


class InceptionB(nn.Module):
    """Halves the size."""

    def __init__(self, inputs: int, w: float) -> None:
        super().__init__()
        c = [max(4, int(size * w)) for size in (384, 64, 96, 96)]
        self.three = ConvUnit(inputs, c[0], 3, 2, 0)
        self.double_1, self.double_2 = ConvUnit(inputs, c[1], 1), ConvUnit(c[1], c[2])
        self.double_3 = ConvUnit(c[2], c[3], 3, 2, 0)
        self.outputs = c[0] + c[3] + inputs

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.cat(
            [self.three(x), self.double_3(self.double_2(self.double_1(x))), functional.max_pool2d(x, 3, 2)], 1
        )


class InceptionC(nn.Module):
    """Long and narrow convolutions."""

    def __init__(self, inputs: int, seven: int, w: float) -> None:
        super().__init__()
        full, c = max(4, int(192 * w)), max(4, int(seven * w))
        self.one = ConvUnit(inputs, full, 1)
        self.a = nn.Sequential(
            ConvUnit(inputs, c, 1), ConvUnit(c, c, (1, 7), 1, (0, 3)), ConvUnit(c, full, (7, 1), 1, (3, 0))
        )
        self.b = nn.Sequential(
            ConvUnit(inputs, c, 1),
            ConvUnit(c, c, (7, 1), 1, (3, 0)),
            ConvUnit(c, c, (1, 7), 1, (0, 3)),
            ConvUnit(c, c, (7, 1), 1, (3, 0)),
            ConvUnit(c, full, (1, 7), 1, (0, 3)),
        )
        self.pool = ConvUnit(inputs, full, 1)
        self.outputs = 4 * full

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.cat([self.one(x), self.a(x), self.b(x), self.pool(functional.avg_pool2d(x, 3, 1, 1))], 1)


class InceptionD(nn.Module):
    """Halves the size once more."""

    def __init__(self, inputs: int, w: float) -> None:
        super().__init__()
        c, d = max(4, int(192 * w)), max(4, int(320 * w))
        self.three = nn.Sequential(ConvUnit(inputs, c, 1), ConvUnit(c, d, 3, 2, 0))
        self.seven = nn.Sequential(
            ConvUnit(inputs, c, 1),
            ConvUnit(c, c, (1, 7), 1, (0, 3)),
            ConvUnit(c, c, (7, 1), 1, (3, 0)),
            ConvUnit(c, c, 3, 2, 0),
        )
        self.outputs = d + c + inputs

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.cat([self.three(x), self.seven(x), functional.max_pool2d(x, 3, 2)], 1)


class InceptionE(nn.Module):
    """Branches that branch again."""

    def __init__(self, inputs: int, w: float) -> None:
        super().__init__()
        c = [max(4, int(size * w)) for size in (320, 384, 448, 192)]
        self.one = ConvUnit(inputs, c[0], 1)
        self.three = ConvUnit(inputs, c[1], 1)
        self.three_a, self.three_b = (
            ConvUnit(c[1], c[1], (1, 3), 1, (0, 1)),
            ConvUnit(c[1], c[1], (3, 1), 1, (1, 0)),
        )
        self.double_1, self.double_2 = ConvUnit(inputs, c[2], 1), ConvUnit(c[2], c[1])
        self.double_a, self.double_b = (
            ConvUnit(c[1], c[1], (1, 3), 1, (0, 1)),
            ConvUnit(c[1], c[1], (3, 1), 1, (1, 0)),
        )
        self.pool = ConvUnit(inputs, c[3], 1)
        self.outputs = c[0] + 4 * c[1] + c[3]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        three, double = self.three(x), self.double_2(self.double_1(x))
        parts = [
            self.one(x),
            self.three_a(three),
            self.three_b(three),
            self.double_a(double),
            self.double_b(double),
        ]
        return torch.cat([*parts, self.pool(functional.avg_pool2d(x, 3, 1, 1))], 1)


class Inception(nn.Module):
    """Inception-V3 without its auxiliary head."""

    def __init__(self, width: float, classes: int, dropout: float) -> None:
        super().__init__()

        def c(size: int) -> int:
            return max(4, int(size * width))

        self.stem = nn.Sequential(
            ConvUnit(3, c(32), 3, 2, 0),
            ConvUnit(c(32), c(32), 3, 1, 0),
            ConvUnit(c(32), c(64)),
            nn.MaxPool2d(3, 2),
            ConvUnit(c(64), c(80), 1),
            ConvUnit(c(80), c(192), 3, 1, 0),
            nn.MaxPool2d(3, 2),
        )
        inputs = c(192)
        for name, kind, given in (
            ("5b", InceptionA, (32,)),
            ("5c", InceptionA, (64,)),
            ("5d", InceptionA, (64,)),
            ("6a", InceptionB, ()),
            ("6b", InceptionC, (128,)),
            ("6c", InceptionC, (160,)),
            ("6d", InceptionC, (160,)),
            ("6e", InceptionC, (192,)),
            ("7a", InceptionD, ()),
            ("7b", InceptionE, ()),
            ("7c", InceptionE, ()),
        ):
            block: Any = kind(inputs, *given, width)
            setattr(self, f"mixed_{name}", block)
            inputs = block.outputs
        self.dropout = nn.Dropout(dropout)
        self.fc = nn.Linear(inputs, classes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.stem(x)
        for name in ("5b", "5c", "5d", "6a", "6b", "6c", "6d", "6e", "7a", "7b", "7c"):
            x = getattr(self, f"mixed_{name}")(x)
        return self.fc(self.dropout(torch.flatten(functional.adaptive_avg_pool2d(x, 1), 1)))


def _settled(model: nn.Module, example: torch.Tensor) -> nn.Module:
    """The model with the running statistics of an example: with those of a new batch norm, activations die out in
    inference, and no comparison of results would notice anything."""
    norms = [part for part in model.modules() if isinstance(part, nn.BatchNorm2d)]
    for norm in norms:
        norm.momentum = 1.0
    with torch.no_grad():
        model.train()(example)
    for norm in norms:
        norm.momentum = 0.1
    return model


def _resnet(dropout: float, large: bool) -> Case:
    model = ResNet(64 if large else 8, 1000 if large else 10, dropout)
    size = 96 if large else 32
    example = torch.randn(2, 3, size, size)
    target = torch.randint(0, 10, (2,))
    return Case(_settled(model, example), example, functional.cross_entropy, target)


def _unet(dropout: float, large: bool) -> Case:
    model = UNet(32 if large else 4, 4 if large else 3, dropout)
    size = 96 if large else 32
    target = torch.randint(0, 2, (2, size, size))
    example = torch.randn(2, 3, size, size)
    return Case(_settled(model, example), example, functional.cross_entropy, target)


def _inception(dropout: float, large: bool) -> Case:
    model = Inception(1.0 if large else 0.125, 1000 if large else 10, dropout)
    size = 139 if large else 95
    example = torch.randn(2, 3, size, size)
    target = torch.randint(0, 10, (2,))
    return Case(_settled(model, example), example, functional.cross_entropy, target)


# -- transformers --------------------------------------------------------------------------------------------------


def _transformers() -> Any:
    folder = os.environ.get("LOADMASTER_TRANSFORMERS", "")
    if folder and folder not in sys.path:
        sys.path.append(folder)
    try:
        import transformers
    except ModuleNotFoundError:
        raise SystemExit(
            "this model needs the package transformers: install it, or let LOADMASTER_TRANSFORMERS name its folder"
        ) from None
    transformers.logging.set_verbosity_error()
    return transformers


def _loss_inside(result: Any) -> Any:
    return result.loss


def _gpt2(dropout: float, large: bool) -> Case:
    t = _transformers()
    size = (
        {"n_layer": 6, "n_embd": 256, "n_head": 4, "vocab_size": 16384}
        if large
        else {"n_layer": 3, "n_embd": 32, "n_head": 2, "vocab_size": 128}
    )
    config = t.GPT2Config(
        **size,
        n_positions=64,
        attn_pdrop=dropout,
        embd_pdrop=dropout,
        resid_pdrop=dropout,
        bos_token_id=0,
        eos_token_id=0,
    )
    ids = torch.randint(0, size["vocab_size"], (2, 64 if large else 12))
    return Case(t.GPT2LMHeadModel(config), {"input_ids": ids, "labels": ids}, _loss_inside)


def _t5(dropout: float, large: bool) -> Case:
    t = _transformers()
    size = (
        {"d_model": 256, "d_kv": 64, "d_ff": 1024, "num_layers": 4, "num_heads": 4, "vocab_size": 16384}
        if large
        else {"d_model": 32, "d_kv": 16, "d_ff": 64, "num_layers": 2, "num_heads": 2, "vocab_size": 128}
    )
    config = t.T5Config(**size, dropout_rate=dropout, decoder_start_token_id=0, tie_word_embeddings=True)
    length = 64 if large else 10
    ids, labels = torch.randint(0, 128, (2, length)), torch.randint(0, 128, (2, length - 2))
    return Case(t.T5ForConditionalGeneration(config), {"input_ids": ids, "labels": labels}, _loss_inside)


def _bert(dropout: float, large: bool) -> Case:
    t = _transformers()
    size = (
        {
            "hidden_size": 256,
            "num_hidden_layers": 6,
            "num_attention_heads": 4,
            "intermediate_size": 1024,
            "vocab_size": 16384,
        }
        if large
        else {
            "hidden_size": 32,
            "num_hidden_layers": 3,
            "num_attention_heads": 2,
            "intermediate_size": 64,
            "vocab_size": 128,
        }
    )
    config = t.BertConfig(
        **size, hidden_dropout_prob=dropout, attention_probs_dropout_prob=dropout, max_position_embeddings=64
    )
    ids = torch.randint(0, size["vocab_size"], (2, 64 if large else 12))
    given = {"input_ids": ids, "attention_mask": torch.ones_like(ids), "labels": ids}
    return Case(t.BertForMaskedLM(config), given, _loss_inside)


def _vit(dropout: float, large: bool) -> Case:
    t = _transformers()
    size = (
        {
            "hidden_size": 256,
            "num_hidden_layers": 6,
            "num_attention_heads": 4,
            "intermediate_size": 1024,
            "image_size": 96,
            "patch_size": 16,
        }
        if large
        else {
            "hidden_size": 32,
            "num_hidden_layers": 3,
            "num_attention_heads": 2,
            "intermediate_size": 64,
            "image_size": 32,
            "patch_size": 8,
        }
    )
    config = t.ViTConfig(
        **size, hidden_dropout_prob=dropout, attention_probs_dropout_prob=dropout, num_labels=10
    )
    images = torch.randn(2, 3, size["image_size"], size["image_size"])

    def loss(result: Any, target: Any) -> Any:
        return functional.cross_entropy(result.logits, target)

    return Case(
        t.ViTForImageClassification(config), {"pixel_values": images}, loss, torch.randint(0, 10, (2,))
    )


def _llama(dropout: float, large: bool) -> Case:
    t = _transformers()
    size = (
        {
            "hidden_size": 256,
            "num_hidden_layers": 6,
            "num_attention_heads": 4,
            "num_key_value_heads": 2,
            "intermediate_size": 704,
            "vocab_size": 16384,
        }
        if large
        else {
            "hidden_size": 32,
            "num_hidden_layers": 3,
            "num_attention_heads": 4,
            "num_key_value_heads": 2,
            "intermediate_size": 64,
            "vocab_size": 128,
        }
    )
    config = t.LlamaConfig(
        **size,
        attention_dropout=dropout,
        max_position_embeddings=64,
        tie_word_embeddings=False,
        bos_token_id=0,
        eos_token_id=0,
        pad_token_id=0,
    )
    ids = torch.randint(0, size["vocab_size"], (2, 64 if large else 12))
    return Case(t.LlamaForCausalLM(config), {"input_ids": ids, "labels": ids}, _loss_inside)


def _whisper(dropout: float, large: bool) -> Case:
    t = _transformers()
    width = 128 if large else 32
    config = t.WhisperConfig(
        d_model=width, encoder_layers=2, decoder_layers=2, encoder_attention_heads=2, decoder_attention_heads=2,
        encoder_ffn_dim=2 * width, decoder_ffn_dim=2 * width, vocab_size=128, num_mel_bins=8, max_source_positions=32,
        max_target_positions=32, dropout=dropout, attention_dropout=0.0, activation_dropout=0.0,
        pad_token_id=0, bos_token_id=1, eos_token_id=2, decoder_start_token_id=1, suppress_tokens=None,
        begin_suppress_tokens=None,
    )  # fmt: skip
    model = t.WhisperForConditionalGeneration(config)
    given = {"input_features": torch.randn(2, 8, 64), "labels": torch.randint(0, 128, (2, 10))}
    model.train()
    # Whether a layer is dropped depends on a random number there, which cannot be exported; the layers stay training.
    model.model.encoder.training = model.model.decoder.training = False
    return Case(model, given, _loss_inside)


MODELS: dict[str, Callable[[float, bool], Case]] = {
    "gpt2": _gpt2,
    "t5-small": _t5,
    "bert": _bert,
    "vit": _vit,
    "llama": _llama,
    "whisper": _whisper,
    "unet": _unet,
    "resnet-50": _resnet,
    "inception-v3": _inception,
}
