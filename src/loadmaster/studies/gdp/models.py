"""What the reproduction of GDP compares, on which graphs, and what was published about them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

__all__ = [
    "ABLATIONS",
    "FINE_TUNING",
    "GROUPS",
    "MANY",
    "MODELS",
    "NETWORKS",
    "QUICK",
    "RULES",
    "SEARCHES",
    "Model",
]


@dataclass(frozen=True)
class Model:
    """A row of the published table: seconds per step of GDP-one, of human placement and of HDP."""

    title: str
    graph: str
    gpus: int
    family: str
    gdp: float
    human: float
    hdp: float

    @property
    def large(self) -> bool:
        """More than 10,000 ops."""
        return self.family == "gnmt"


MODELS = (
    Model("RNNLM-2", "rnnlm-2", 2, "rnnlm", 0.234, 0.257, 0.243),
    Model("RNNLM-4", "rnnlm-4", 4, "rnnlm", 0.409, 0.48, 0.490),
    Model("GNMT-2", "gnmt-2", 2, "gnmt", 0.301, 0.384, 0.376),
    Model("GNMT-4", "gnmt-4", 4, "gnmt", 0.409, 0.469, 0.520),
    Model("GNMT-8", "gnmt-8", 8, "gnmt", 0.649, 0.610, 0.693),
    Model("Transformer-XL-2", "transformer-xl-2", 2, "transformer-xl", 0.386, 0.473, 0.435),
    Model("Transformer-XL-4", "transformer-xl-4", 4, "transformer-xl", 0.580, 0.641, 0.621),
    Model("Transformer-XL-8", "transformer-xl-8", 8, "transformer-xl", 0.748, 0.813, 0.789),
    Model("Inception-v3", "inception-v3?training=1&batch=32", 2, "inception", 0.405, 0.418, 0.417),
    Model("AmoebaNet", "amoebanet", 4, "amoebanet", 0.394, 0.44, 0.418),
    Model("WaveNet-18", "wavenet-18", 2, "wavenet", 0.317, 0.376, 0.354),
    Model("WaveNet-36", "wavenet-36", 4, "wavenet", 0.659, 0.988, 0.721),
)
QUICK = ("Transformer-XL-2", "Transformer-XL-4", "Inception-v3", "WaveNet-18")

GROUPS = "matching:1000"
"""Coarsening for the networks on graphs of more than ``MANY`` ops; every placement is costed on all ops."""
MANY = 2000
RULES = ("single", "expert", "metis", "heft")
SEARCHES: dict[str, tuple[str, dict[str, Any]]] = {
    "gdp zero-shot": ("gdp", {"samples": 16, "weights": "shipped"}),
    "gdp": ("gdp", {"samples": 16, "tune": True, "weights": "shipped"}),
    "gdp untrained": ("gdp", {"samples": 16, "tune": True, "weights": "none"}),
    "gdp+ls": ("gdp+ls", {"samples": 16, "weights": "shipped"}),
    "rnn": ("rnn", {}),
    "local-search": ("local-search", {}),
    "random": ("random", {}),
    "gdp-paper": ("gdp-paper", {}),
    "hdp": ("hdp", {}),
}
"""What is compared at equal evaluations, the fast ones first -> placer and its settings."""
NETWORKS = ("gdp-paper", "hdp")
"""Those that are given ``GROUPS``; ``rnn`` makes groups of its own."""
ABLATIONS: dict[str, dict[str, Any]] = {
    "without attention": {"attention": False},
    "without superposition": {"superposition": "none"},
}
FINE_TUNING = 20
"""Updates; the paper says less than 50."""
