"""Training the policies of ``gdp`` and ``hsdag``."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from loadmaster.api._machines import machines
from loadmaster.errors import UnsupportedError
from loadmaster.files import check_writable
from loadmaster.placers.frame.search import Budget
from loadmaster.problem import Problem

if TYPE_CHECKING:
    from loadmaster.placers.learned.gdp.pretraining import Map, Report
    from loadmaster.placers.learned.hsdag.pretraining import Report as HsdagReport


def pretrain(
    out: str | Path,
    *,
    minutes: float | None = None,
    generations: int | None = None,
    seed: int = 0,
    left_out: Sequence[str] = (),
    resume: bool = False,
    context: bool = True,
    log_dir: str = "",
    workers: int | None = None,
    on: str | None = None,
    on_report: Callable[[Report], None] = lambda report: None,
) -> dict[str, Any]:
    """Train the policy of ``gdp`` on random graphs and the zoo's families; how the weights in ``out`` were made.

    The state of the run is in ``out.state`` while it lasts; ``resume`` goes on from there. ``on`` is a Ray cluster
    (:func:`machines`) whose workers decode, one per core; the weights are the same without it, and with any number.
    """
    from loadmaster.placers.learned.gdp import pretraining, save_weights

    with _workers(on, workers) as (run, count):
        weights = pretraining.pretrain(
            minutes=minutes,
            generations=generations,
            seed=seed,
            settings=pretraining.Evolution(context=context),
            left_out=left_out,
            state=_state_of(out),
            resume=resume,
            log_dir=log_dir,
            workers=count,
            run=run,
            on_report=on_report,
        )
    save_weights(out, weights)
    return {"weights": str(out), "sha256": weights.digest, **weights.recipe}


def pretrain_hsdag(
    out: str | Path,
    *,
    problems: int | None = None,
    steps: int | None = None,
    seed: int = 0,
    left_out: Sequence[str] = (),
    resume: bool = False,
    log_dir: str = "",
    on: str | None = None,
    on_report: Callable[[HsdagReport], None] = lambda report: None,
) -> dict[str, Any]:
    """Train the policy of ``hsdag`` on graphs of many families on unlike devices; how the weights were made.

    ``problems`` are trained on in ``steps`` steps of imitation, and a tenth as many of reinforcement; by default as the
    weights of the package were. State and ``resume`` as in :func:`pretrain`; ``on`` is a cluster that makes the
    problems and finds what is best there.
    """
    if find_spec("torch") is None:
        raise UnsupportedError("hsdag cannot be trained: it needs PyTorch: pip install 'loadmaster[learn]'")
    from loadmaster.placers.learned.hsdag import pretraining

    with _workers(on, None) as (run, _):
        weights = pretraining.pretrain(
            settings=pretraining.teaching(problems, steps),
            seed=seed,
            left_out=left_out,
            state=_state_of(out),
            resume=resume,
            log_dir=log_dir,
            run=run,
            on_report=on_report,
        )
    pretraining.save_weights(out, weights)
    return {"weights": str(out), "sha256": weights.digest, **weights.recipe}


@contextmanager
def _workers(on: str | None, count: int | None) -> Iterator[tuple[Map | None, int | None]]:
    """Those of a cluster, if one is named, and how many they are."""
    if on is None:
        yield None, count
        return
    with machines(on) as by, by.crew(count) as crew:
        yield crew.map, crew.workers


def _state_of(out: str | Path) -> str:
    """Beside the weights; both can be written."""
    state = f"{out}.state"
    check_writable(out)
    check_writable(state)
    return state


def finetune(
    problem: Problem,
    out: str | Path,
    *,
    weights: str = "none",
    steps: int = 50,
    seed: int = 0,
    workers: int | None = None,
    on_report: Callable[[Report], None] = lambda report: None,
) -> dict[str, Any]:
    """Fine-tune the policy of ``gdp`` on one problem; the costs before and after. The weights go to ``out``."""
    from loadmaster.placers.learned.gdp import Gdp, pretraining, save_weights

    before = Gdp(weights=weights, samples=0, guard=False)
    first = before.place(problem, budget=Budget())
    tuned, cost = pretraining.finetune(
        problem, before.read(), steps=steps, seed=seed, workers=workers, on_report=on_report
    )
    save_weights(out, tuned)
    return {"weights": str(out), "sha256": tuned.digest, "zero_shot": first.cost, "cost": cost}
