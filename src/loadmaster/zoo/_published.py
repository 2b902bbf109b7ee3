"""What others say that the models of the zoo have: parameters and multiply-adds.

``python -m benchmarks.zoo --parts counts`` compares, and so do the tests.
"""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["PUBLISHED", "Published"]


class Published(NamedTuple):
    """A count that somebody has published.

    ``tolerance`` is relative: 0 where all digits are published, half of the last digit where it is rounded,
    more where the definition leaves something open.
    """

    name: str
    quantity: str
    value: float
    tolerance: float
    source: str


TORCHVISION = "torchvision, table of weights"
HUGGING_FACE = "Hugging Face checkpoint"
GPIPE = "GPipe (Huang et al. 2019), table 1"
SHAZEER = "Shazeer et al. 2017, GNMT in the table of WMT'14 En-Fr"
DAI = "Transformer-XL (Dai et al. 2019), enwik8"

PUBLISHED = (
    Published("resnet-50", "parameters", 25_557_032, 0, TORCHVISION),
    Published("resnet-50", "macs", 4.089e9, 2e-4, TORCHVISION),
    Published("resnet-101", "parameters", 44_549_160, 0, TORCHVISION),
    Published("resnet-101", "macs", 7.801e9, 1e-4, TORCHVISION),
    Published("resnet-152", "parameters", 60_192_808, 0, TORCHVISION),
    Published("inception-v3", "parameters", 23.83e6, 3e-4, "timm, table of models (no auxiliary head)"),
    Published("inception-v3?training=1", "parameters", 27_161_264, 0, TORCHVISION),
    Published("inception-v3", "macs", 5.713e9, 1e-4, TORCHVISION),
    Published("bert-base", "parameters", 109_482_240, 0, HUGGING_FACE),
    Published("bert-base?training=1", "parameters", 110_106_428, 0, HUGGING_FACE),
    Published(
        "bert-base?seq=128", "macs", 11.25e9, 1e-2, "22.5 Gflop in MobileBERT (Sun et al. 2020), table 4"
    ),
    Published("bert-large", "parameters", 335_141_888, 0, HUGGING_FACE),
    Published("gpt2", "parameters", 124_439_808, 0, HUGGING_FACE),
    Published("gpt2-decode", "parameters", 124_439_808, 0, HUGGING_FACE),
    Published("gpt2?layers=48&width=1600&heads=25", "parameters", 1_557_611_200, 0, HUGGING_FACE),
    Published("switch-base-8", "parameters", 619_339_008, 0, HUGGING_FACE),
    Published("unet", "parameters", 31_030_658, 0, "implementations of the original figure"),
    Published(
        "rnnlm-2?width=1500&batch=20&seq=35",
        "parameters",
        66e6,
        1e-2,
        "Zaremba et al. 2014, as later papers quote it",
    ),
    Published("gnmt-8", "parameters", 278e6, 2e-2, SHAZEER),
    Published("gnmt-8", "macs per token", 214e6, 2e-2, SHAZEER),
    Published("transformer-xl-12?width=512&inner=2048", "parameters", 41e6, 1e-2, DAI),
    Published("transformer-xl-24", "parameters", 277e6, 2e-3, DAI),
    Published("amoebanet", "parameters", 82e6, 1e-2, GPIPE),
    Published("amoebanet?filters=416", "parameters", 318e6, 5e-3, GPIPE),
    Published("amoebanet?filters=544", "parameters", 542e6, 2e-3, GPIPE),
)
"""Everything published that was found; WaveNet's sizes in GDP are not."""
