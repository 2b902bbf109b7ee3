"""The frame of the placers that train a policy: what comes before a training, and what is put back after it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from typing import ClassVar

from loadmaster.errors import UnsupportedError
from loadmaster.placers.frame.search import Budget, Search
from loadmaster.placers.frame.searcher import Searcher
from loadmaster.placers.learned.units import Units, units_of
from loadmaster.placers.search._walkers import first_start
from loadmaster.problem import Placement, Problem

__all__ = ["Learner", "entropy_weight", "missing_torch", "quiet_torch", "share_done"]


def missing_torch() -> str | None:
    """None, or what to install."""
    return None if find_spec("torch") else "it needs PyTorch: pip install 'loadmaster[learn]'"


def share_done(search: Search, *, share: float = 1.0, update: int = 0, updates: int = 0) -> float:
    """Share of a training that is done, by whatever limits it first: ``share`` of the budget, or so many updates
    (0 for any number)."""
    done = [update / updates] if updates else [0.0]
    if search.budget.evaluations is not None:
        done.append(search.evaluations / search.budget.evaluations / share)
    if search.budget.seconds is not None:
        done.append(search.seconds / max(search.budget.seconds, 1e-9) / share)
    return max(done)


def entropy_weight(begin: float, end: float, done: float) -> float:
    """Weight of the entropy, which falls geometrically from the beginning to the end of a training.

    >>> entropy_weight(0.4, 0.1, 0.5)
    0.2
    """
    return begin * (end / begin) ** done if begin else 0.0


@contextmanager
def quiet_torch(threads: int) -> Iterator[None]:
    """PyTorch on so many threads; its random numbers and threads are afterwards as they were."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        with torch.random.fork_rng([]):
            yield
    finally:
        torch.set_num_threads(before)


class Learner(Searcher):
    """Base of the placers that train a policy on the problem; they say how in :meth:`train`."""

    keeps_start: ClassVar[bool] = True
    unlimited: ClassVar[Budget] = Budget(evaluations=64_000)
    warm_up: ClassVar[int] = 100  # some updates
    colocate: str
    """Coarsening rules by which ops become the nodes that the policy sees."""
    threads: int
    """Number of PyTorch threads."""

    def supports(self, problem: Problem) -> str | None:
        """Everything, where PyTorch is installed."""
        return missing_torch()

    def train(self, search: Search, units: Units, seed: int) -> None:
        """Train until the budget is used up; PyTorch is imported here."""
        raise NotImplementedError

    def explore(self, search: Search, start: Placement | None, seed: int) -> None:
        """A first placement, then the training, where there is anything to decide."""
        reason = missing_torch()
        if reason is not None:
            raise UnsupportedError(f"the method {self.name} cannot run: {reason}")
        import torch

        search.start = start
        first_start(search, start, seed)
        search.check()
        units = units_of(search.problem, self.colocate)
        if units.count == 0 or not (units.allowed.sum(axis=1) > 1).any():
            return
        with quiet_torch(self.threads):
            torch.manual_seed(seed)
            self.train(search, units, seed)
