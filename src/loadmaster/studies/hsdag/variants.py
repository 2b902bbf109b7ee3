"""What can be left out of HSDAG: the settings of each variant of an ablation."""

from __future__ import annotations

from typing import Any

from loadmaster.placers.learned.hsdag import Hsdag
from loadmaster.placers.learned.hsdag_paper import HsdagPaper

__all__ = ["PAPER_VARIANTS", "PUBLISHED_VARIANTS", "VARIANTS"]

FEATURES, PAPER_FEATURES = Hsdag.features, HsdagPaper.features


def without(*parts: str, features: tuple[str, ...] = FEATURES) -> dict[str, Any]:
    """Features with some parts left out."""
    return {"features": tuple(part for part in features if part not in parts)}


VARIANTS: dict[str, dict[str, Any]] = {
    "hsdag": {},
    "without output shape": without("shapes"),
    "without position": without("position"),
    "without structure (fractal, degrees)": without("fractal", "degrees"),
    "without op type": without("types"),
    "without costs (the paper's features)": without("costs"),
    "no learning": {"learn": False},
    "random groups": {"groups": "random"},
    "fixed groups": {"groups": "fixed"},
    "no groups": {"groups": "none"},
    "singletons off": {"singletons": False},
    "two levels": {"levels": 2},
    "three levels": {"levels": 3},
    "no logits of a unit's own": {"own": 0.0},
    "no elites": {"elites": 0},
    "no leaning": {"lean": 0.0},
    "with state update": {"state_update": True},
    "REINFORCE (batch baseline)": {"ppo": False},
    "entropy 0.05": {"entropy": 0.05},
    "entropy 0": {"entropy": 0.0},
    "edge entropy 1": {"edge_entropy": 1.0},
    "mostly alone at first": {"alone": 3.0},
    "chain rule": {"colocate": "chain"},
}
"""Of ``hsdag``."""

PAPER_VARIANTS: dict[str, dict[str, Any]] = {
    "hsdag-paper": {},
    "without output shape": without("shapes", features=PAPER_FEATURES),
    "without position": without("position", features=PAPER_FEATURES),
    "without structure (fractal, degrees)": without("fractal", "degrees", features=PAPER_FEATURES),
    "no learning": {"learn": False},
    "no state update": {"state_update": False},
    "two levels": {"levels": 2},
    "fixed point": {"levels": 0},
}
"""Of ``hsdag-paper``."""

PUBLISHED_VARIANTS = {
    "without output shape": "w/o output shape",
    "without position": "w/o node ID",
    "without structure (fractal, degrees)": "w/o graph structural features",
}
"""Those of the paper's table 3, and what it calls them."""
