"""PyTorch's own pipelines: stages of a plan under ``torch.distributed.pipelining``.

Importing this package imports PyTorch.
"""

from loadmaster.runtime.torch._costs import OpCosts, measure_ops
from loadmaster.runtime.torch._cut import Cut, Stages, Value, cut_stages, stages_of_plan
from loadmaster.runtime.torch._drawing import Clock
from loadmaster.runtime.torch._equality import (
    TOLERANCE,
    Batch,
    Comparison,
    Reference,
    compare,
    example_batch,
    perturbed,
    require_equal,
    run_unsplit,
)
from loadmaster.runtime.torch._launch import launch, run_plan_on_ranks
from loadmaster.runtime.torch._links import measure_links
from loadmaster.runtime.torch._memory import held_memory
from loadmaster.runtime.torch._modules import random_ops, stage_module
from loadmaster.runtime.torch._pipeline import SCHEDULES, Pipeline, check_plan, open_pipeline
from loadmaster.runtime.torch._source import Source, check_source, load_source
from loadmaster.runtime.torch._stage_costs import StageTime, corrected, measure_stages

__all__ = [
    "SCHEDULES",
    "TOLERANCE",
    "Batch",
    "Clock",
    "Comparison",
    "Cut",
    "OpCosts",
    "Pipeline",
    "Reference",
    "Source",
    "StageTime",
    "Stages",
    "Value",
    "check_plan",
    "check_source",
    "compare",
    "corrected",
    "cut_stages",
    "example_batch",
    "held_memory",
    "launch",
    "load_source",
    "measure_links",
    "measure_ops",
    "measure_stages",
    "open_pipeline",
    "perturbed",
    "random_ops",
    "require_equal",
    "run_plan_on_ranks",
    "run_unsplit",
    "stage_module",
    "stages_of_plan",
]
