"""The models of ``benchmarks.torch_models`` in a size worth timing, each as a function for ``loadmaster split``.

loadmaster split benchmarks/torch_sources.py:resnet_50 --ranks 2
"""

from __future__ import annotations

from typing import Any

from benchmarks.torch_models import build

__all__ = ["bert", "gpt2", "inception_v3", "llama", "resnet_50", "t5_small", "unet", "vit"]


def _source(name: str) -> tuple[Any, ...]:
    case = build(name, large=True)
    return case.model, case.example, case.loss, case.target


def resnet_50() -> tuple[Any, ...]:
    """ResNet-50, images of 96 x 96."""
    return _source("resnet-50")


def unet() -> tuple[Any, ...]:
    """U-Net of depth 4."""
    return _source("unet")


def gpt2() -> tuple[Any, ...]:
    """GPT-2 of six layers, embedding and head tied."""
    return _source("gpt2")


def llama() -> tuple[Any, ...]:
    """Llama-like, six layers."""
    return _source("llama")


def t5_small() -> tuple[Any, ...]:
    """T5, four layers on either side."""
    return _source("t5-small")


def bert() -> tuple[Any, ...]:
    """BERT of six layers."""
    return _source("bert")


def vit() -> tuple[Any, ...]:
    """ViT of six layers."""
    return _source("vit")


def inception_v3() -> tuple[Any, ...]:
    """Inception-V3, images of 139 x 139."""
    return _source("inception-v3")
