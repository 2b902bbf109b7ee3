"""``optimize`` keeps to its budget, on an engine whose clock the test turns."""

from __future__ import annotations

from contextlib import nullcontext
from types import SimpleNamespace

import pytest
from small_networks import problem_of

from loadmaster.errors import BusyError
from loadmaster.optimize import _budget, _clock, _job, _search, optimize
from loadmaster.problem import Placement
from loadmaster.report import optimized_tables
from loadmaster.runtime import Measurement, engine, openvino
from loadmaster.runtime._verifying import Difference, Verification
from loadmaster.runtime.openvino import parse_devices

OVER, MORE = 1.1, 2.0
"""A job may take this many times its budget, and so many seconds more."""


class Engine:
    """What a model takes to open, compile and run, on a clock of its own; ``busy``: no sample by the wall is clean."""

    def __init__(self, *, opening=1.0, compiling=1.0, running=0.1, busy=False):
        self.now, self.opening, self.compiling, self.running, self.busy = (
            0.0,
            opening,
            compiling,
            running,
            busy,
        )
        self.loaded = []

    def spend(self, seconds):
        self.now += seconds


class Candidate:
    def __init__(self, engine, how, items):
        self.engine, self.how, self.items = engine, how, items
        self.seconds_to_load, self.submodels, self.verification = engine.compiling, 2, None

    def verify(self):
        if self.verification is None:
            self.engine.spend(2 * self.engine.running)
            self.verification = Verification(Difference(0.0, 0.0, 0), 1e-4, "f32", 1.0)
        return self.verification

    def trace(self):
        self.engine.spend(2 * self.engine.running)
        return []

    def latency(self):
        return None

    def close(self):
        pass


class Session:
    def __init__(self, engine, devices, clock):
        self.engine_, self.devices, self.clock = engine, devices, clock
        self.worker = SimpleNamespace(alive=True, cores=(0, 1))
        self.engine = {"openvino": "none"}
        engine.spend(engine.opening)

    def load(self, how, **options):
        self.engine_.spend(self.engine_.compiling * (2 if "pieces" in options else 1))
        self.engine_.loaded.append(how)
        return Candidate(self.engine_, how, options.get("items", 1))

    def alone(self, device):
        return self.load("single")

    def measure(self, candidates, **options):
        return self.measure_most(candidates, **options)

    def measure_most(self, candidates, *, samples, until, fewest, give_up=float("inf"), optional=()):
        for candidate in candidates:
            candidate.verify()
        taken = 0
        while taken < samples and not (taken >= fewest and self.engine_.now >= until):
            self.engine_.spend(sum(2 * c.items * self.engine_.running for c in candidates))
            taken += 1
            if self.busy and (self.engine_.now >= give_up or taken > 4 * samples):
                raise BusyError("the machine is too busy to measure")
            if self.busy:
                taken = min(taken, 0)
        return [Measurement(1.0 if c.how == "single" else 0.9, 0.89, 1.01, taken, 0) for c in candidates]

    @property
    def busy(self):
        return self.engine_.busy and self.clock == "wall"

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass


@pytest.fixture
def run(model_file, monkeypatch):
    """Optimize on an engine."""

    def go(engine, budget, model="concurrent", *, noticed=False, by=openvino, **options):
        devices = parse_devices(["A=cpu", "B=cpu:speed=0.5"])

        def profile_model(path, devices, shapes, *, clock, until, **_):
            for _ in devices:
                engine.spend(2 * engine.compiling + 6 * engine.running)
                if engine.busy and clock == "wall":
                    raise BusyError("the machine is too busy to profile")
                runs = 0
                while runs < 3 or (runs < 15 and engine.now < until):
                    engine.spend(2 * engine.running)
                    runs += 1
            plain = problem_of(path)
            known = SimpleNamespace(unsupported=(), wall=engine.running)
            return SimpleNamespace(
                calls=None,
                problem=lambda model: _with(plain, model),
                profiles={d.name: known for d in devices},
            )

        def place(problem, placer, *, budget, seed):
            engine.spend(budget)
            from loadmaster.problem import Solution

            half = Placement((problem.graph.position > problem.n // 2).astype("int32"))
            return Solution(half, 1.0, 0.0, "nothing", "fake")

        def refine(problem, placement, fit, *, seconds, seed):
            engine.spend(seconds)
            return placement

        monkeypatch.setattr(_budget, "monotonic", lambda: engine.now)
        monkeypatch.setattr(_search, "monotonic", lambda: engine.now)
        monkeypatch.setattr(_job, "monotonic", lambda: engine.now)
        monkeypatch.setattr(_clock, "monotonic", lambda: engine.now)
        fake = SimpleNamespace(
            profile_model=profile_model,
            open_session=lambda path, devices, shapes, *, clock, **_: Session(engine, devices, clock),
            how_to_run=by.how_to_run,
            all_cores_lines=by.all_cores_lines,
            serial_lines=by.serial_lines,
        )
        monkeypatch.setattr(_job.api, "machines", lambda on, runtime: nullcontext(fake))
        monkeypatch.setattr(_search.api, "place", place)
        monkeypatch.setattr(_search.api, "warm", lambda *_, **__: [])
        monkeypatch.setattr(_clock, "machine_is_busy", lambda: noticed)
        monkeypatch.setattr(_search, "refine", refine)
        said = []
        found = optimize(model_file, devices, budget=budget, model=model, say=said.append, **options)
        return found, said

    return go


def _with(problem, model):
    from dataclasses import replace

    return replace(problem, model=model)


ENGINES = {
    "quick": {"opening": 0.1, "compiling": 0.1, "running": 0.005},
    "usual": {"opening": 1.0, "compiling": 0.5, "running": 0.1},
    "slow to compile": {"opening": 1.0, "compiling": 3.0, "running": 0.05},
    "slow to run": {"opening": 1.0, "compiling": 1.0, "running": 0.6},
}


@pytest.mark.parametrize("model", ["concurrent", "pipeline", "serial"])
@pytest.mark.parametrize(
    ("busy", "noticed"), [(False, False), (True, False), (True, True)], ids=["calm", "busy", "noticed"]
)
@pytest.mark.parametrize("name", ENGINES)
@pytest.mark.parametrize("budget", [10.0, 60.0, 240.0])
def test_it_takes_no_longer_than_its_budget_or_than_it_said_that_it_must(
    run, model, busy, noticed, name, budget
):
    engine = Engine(**ENGINES[name], busy=busy)
    found, said = run(engine, budget, model, noticed=noticed)
    announced = [text for text in said if "needs at least" in text]
    allowed = max([budget, *(float(text.split("at least ")[1].split(" s")[0]) for text in announced)])
    assert engine.now <= OVER * allowed + MORE
    assert found.seconds == pytest.approx(engine.now)
    assert sum(found.spent.values()) == pytest.approx(engine.now, rel=0.02)
    assert found.line("A alone").measurement is not None


def test_a_calm_engine_with_time_tries_all_and_uses_the_budget(run):
    engine = Engine(**ENGINES["usual"])
    found, said = run(engine, 120.0)
    assert not found.left_out
    assert not any("needs at least" in text for text in said)
    assert engine.now > 60
    assert list(found.spent) == [
        *("opening", "profiling", "loading devices", "placing", "loading placements", "tracing"),
        *("screening", "measuring"),
    ]


@pytest.mark.parametrize("runtime", ["openvino", "onnxruntime"])
@pytest.mark.parametrize("model", ["concurrent", "pipeline", "serial"])
def test_nothing_is_said_of_placements_that_were_not_run(run, model, runtime):
    from rich.console import Console

    pytest.importorskip("onnxruntime")
    found, _ = run(Engine(opening=2.0, compiling=3.0, running=0.3), 15.0, model, by=engine(runtime))
    assert not found.pays
    assert "best plan" not in [line.name for line in found.lines]
    console = Console(width=100)
    with console.capture() as capture:
        console.print(optimized_tables({**found.document(), "plan": "plan.json"}))
    text = " ".join(capture.get().split())
    assert (
        "no other placement was measured (round 1, transfer costs x1: the budget has no room for it)" in text
    )
    assert "measurably faster" not in text


def test_what_there_is_no_time_for_is_left_out_and_said(run):
    found, said = run(Engine(opening=1.0, compiling=6.0, running=0.3), 20.0)
    assert any("this model needs at least" in text for text in said)
    assert any("no room" in text for text in found.left_out)
    assert found.document()["left_out"] == list(found.left_out)
