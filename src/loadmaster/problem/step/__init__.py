"""One step of a pipeline: ``pipeline`` with microbatches, under the schedules of ``torch.distributed.pipelining``."""

from loadmaster.problem.step._kernel import walk
from loadmaster.problem.step._program import Program, program_of, refusal
from loadmaster.problem.step._simulator import StepSimulator, stage_violations
from loadmaster.problem.step._tables import StepTables, step_tables

__all__ = [
    "Program",
    "StepSimulator",
    "StepTables",
    "program_of",
    "refusal",
    "stage_violations",
    "step_tables",
    "walk",
]
