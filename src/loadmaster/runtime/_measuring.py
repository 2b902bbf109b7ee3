"""Measuring honestly: undisturbed samples, medians, and how sure they are.

Other work on the machine shows as time that a process waited for a core: the run-queue wait of its threads. On one
core threads of the process itself wait for one another, too; what others took cannot be more than the time in which
the process did not run. So a sample is disturbed by the smaller of both.

On a machine that is never calm the clock ``core`` counts the time on the core alone, whatever others took between. It
is no substitute: caches and memory are still shared, so its numbers say so wherever they go.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

__all__ = [
    "CLOCKS",
    "DISTURBED",
    "Latency",
    "Measurement",
    "Sample",
    "bootstrap",
    "lost_since",
    "machine_is_busy",
    "run_queue_wait",
    "run_queue_waits",
    "summarise",
    "timed",
    "undisturbed",
]

DISTURBED = 0.05
"""Share of the wall time that others may take of a sample that counts."""
CLOCKS = ("wall", "core")
"""``wall``: seconds on the clock, disturbed samples dropped. ``core``: seconds on the core, none dropped."""
BUSY = 0.25
"""Share of the wall time that shows at once that hardly any sample will count."""
RESAMPLES = 2000
CONFIDENCE = 0.95


class Sample(NamedTuple):
    """One run: seconds on the clock, and seconds of them that other work took."""

    seconds: float
    lost: float

    @property
    def clean(self) -> bool:
        """Whether it counts."""
        return self.lost <= DISTURBED * self.seconds


def timed(run: Callable[[], object]) -> Sample:
    """Run once."""
    waited, busy = run_queue_wait(), time.process_time()
    began = time.perf_counter()
    run()
    seconds = time.perf_counter() - began
    busy, waited = time.process_time() - busy, run_queue_wait() - waited
    return Sample(seconds, max(0.0, min(waited, seconds - busy)))


def machine_is_busy(seconds: float = 0.2) -> bool:
    """Whether other work takes more of a core than a sample that counts may lose, several times over."""

    def spin() -> None:
        end = time.perf_counter() + seconds
        while time.perf_counter() < end:
            pass

    return timed(spin).lost > BUSY * seconds


def run_queue_waits() -> dict[str, float]:
    """Seconds that each thread of this process has waited for a core; none where the system does not say."""
    found, tasks = {}, Path("/proc/self/task")
    for task in tasks.iterdir() if tasks.is_dir() else ():
        try:
            found[task.name] = int((task / "schedstat").read_text().split()[1]) * 1e-9
        except (OSError, IndexError, ValueError):  # the thread has ended, or this system keeps no such file
            continue
    return found


def run_queue_wait() -> float:
    """Seconds that the threads of this process have waited for a core, added up."""
    return sum(run_queue_waits().values())


def lost_since(before: Mapping[str, float], *, stream: bool) -> float:
    """What a run of several threads lost at most: all that they waited since then.

    Of a stream, what the thread that waited longest did: the others catch up while the busiest device works.
    """
    waited = [now - before.get(thread, 0.0) for thread, now in run_queue_waits().items()]
    return max(waited, default=0.0) if stream else sum(waited)


@dataclass(frozen=True)
class Measurement:
    """What a number of runs say: the median in seconds, and the interval in which it lies with 95 %."""

    median: float
    low: float
    high: float
    kept: int
    dropped: int
    """Samples that other work disturbed."""
    submodels: int = 1
    clock: str = "wall"

    def document(self) -> dict[str, Any]:
        """As plain values."""
        return {"confidence": CONFIDENCE, **asdict(self)}

    def faster_than(self, other: Measurement) -> bool:
        """Beyond the noise: the intervals do not touch."""
        return self.high < other.low


class Latency(NamedTuple):
    """How long single requests of a stream took, from being taken in to the end, in seconds on the clock."""

    median: float
    p95: float
    requests: int

    @classmethod
    def of(cls, seconds: Sequence[float]) -> Latency | None:
        """None where there are none."""
        if not len(seconds):
            return None
        return cls(float(np.median(seconds)), float(np.quantile(seconds, 0.95)), len(seconds))


def undisturbed(seconds: float, lost: float, clock: str) -> Sample:
    """A sample by one of the clocks."""
    return Sample(seconds - lost, 0.0) if clock == "core" else Sample(seconds, lost)


def summarise(samples: Sequence[Sample], *, submodels: int = 1, clock: str = "wall") -> Measurement:
    """The measurement that clean samples make; at least one must be clean."""
    kept = np.array([sample.seconds for sample in samples if sample.clean])
    low, high = bootstrap(kept)
    return Measurement(
        float(np.median(kept)), low, high, len(kept), len(samples) - len(kept), submodels, clock
    )


def bootstrap(values: npt.NDArray[np.float64], *, seed: int = 0) -> tuple[float, float]:
    """The interval of the median with 95 % confidence, by resampling (percentiles).

    References
    ----------
    B. Efron, R. J. Tibshirani, "An introduction to the bootstrap", 1993, section 13.3.
    """
    generator = np.random.default_rng(seed)
    medians = np.median(values[generator.integers(0, len(values), (RESAMPLES, len(values)))], axis=1)
    low, high = np.quantile(medians, [(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2])
    return float(low), float(high)
