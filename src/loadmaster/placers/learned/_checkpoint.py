"""Training that survives a kill: everything that it depends on, in one file that is replaced as a whole."""

from __future__ import annotations

import io
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import torch

from loadmaster.errors import InputError, LoadmasterError
from loadmaster.files import check_writable, read_archive, write_atomically
from loadmaster.placers.frame.search import OutOfBudget, Search
from loadmaster.problem import Placement, Point

__all__ = ["Checkpoint"]

IGNORED = ("checkpoint", "checkpoint_seconds", "log_dir", "threads")
"""Settings that may differ between the run that saved and the one that goes on."""


class Checkpoint:
    """The state of one training run: networks and optimisers, both random generators, and the search.

    ``trained`` are the objects with a ``state_dict``. A run under a budget of evaluations that was killed and
    goes on from its file ends exactly as one that was not.
    """

    def __init__(
        self,
        path: str,
        search: Search,
        settings: Any,
        seed: int,
        trained: dict[str, Any],
        rng: np.random.Generator,
    ) -> None:
        self.path, self._search, self._trained, self._rng = path, search, trained, rng
        chosen = {key: value for key, value in asdict(settings).items() if key not in IGNORED}
        self._origin = repr((search.method, search.problem.digest, seed, sorted(chosen.items())))
        self._every = settings.checkpoint_seconds
        self._saved = time.monotonic()
        if path:
            check_writable(path)

    def resume(self) -> int:
        """Go on from the file if there is one; the number of updates made so far.

        Raises
        ------
        InputError : the file is not a checkpoint, or one of another problem, method, seed or settings.
        """
        if not self.path or not Path(self.path).exists():
            return 0
        read_archive(self.path, "a checkpoint of a learned placer")
        try:
            found = torch.load(self.path, weights_only=True)
            origin = found["origin"]
        except Exception as error:  # torch raises many kinds
            raise InputError(f"{self.path}: is not a checkpoint of a learned placer ({error})") from None
        if origin != self._origin:
            raise InputError(
                f"{self.path}: is a checkpoint for a different problem, seed or settings: give another file"
            )
        try:
            return self._restore(found)
        except (OutOfBudget, LoadmasterError):
            raise
        except Exception as error:  # of torch and numpy, about whatever does not fit
            raise InputError(f"{self.path}: the checkpoint is damaged ({error})") from None

    def _restore(self, found: dict[str, Any]) -> int:
        search = self._search
        best, history = Placement(found["best"].numpy()), [Point(*point) for point in found["history"]]
        if (
            best.device.shape != (search.problem.n,)
            or not ((best.device >= 0) & (best.device < search.problem.devices)).all()
        ):
            raise InputError(
                f"{self.path}: the checkpoint is damaged (its placement does not fit the problem)"
            )
        for name, thing in self._trained.items():
            thing.load_state_dict(found[name])
        self._rng.bit_generator.state = found["numpy"]
        torch.set_rng_state(found["torch"])
        search.count(found["evaluations"] - search.evaluations)
        search.best, search.cost = best, float(found["cost"])
        search.history[:] = history
        search.began_earlier(found["seconds"])
        return int(found["update"])

    def save(self, update: int, *, now: bool = False) -> None:
        """Save if it is time to, or ``now``."""
        if not self.path or not (now or time.monotonic() - self._saved >= self._every):
            return
        search = self._search
        assert search.best is not None
        content = io.BytesIO()
        torch.save(
            {
                "origin": self._origin,
                "update": update,
                "numpy": self._rng.bit_generator.state,
                "torch": torch.get_rng_state(),
                "evaluations": search.evaluations,
                "seconds": search.seconds,
                "best": torch.from_numpy(search.best.device.copy()),
                "cost": search.cost,
                "history": [(p.seconds, p.evaluations, p.cost) for p in search.history],
                **{name: thing.state_dict() for name, thing in self._trained.items()},
            },
            content,
        )
        write_atomically(self.path, content.getvalue())
        self._saved = time.monotonic()
