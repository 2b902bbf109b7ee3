"""Training the policy of ``gdp``: what :mod:`loadmaster.api` offers. Apart from the placer, which needs none of it."""

from loadmaster.placers.learned.gdp._evolution import Evolution, Report
from loadmaster.placers.learned.gdp._pretraining import finetune, pretrain
from loadmaster.placers.learned.gdp._weights import Weights, save_weights

__all__ = ["Evolution", "Report", "Weights", "finetune", "pretrain", "save_weights"]
