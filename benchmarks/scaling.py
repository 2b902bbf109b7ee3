"""Searches and tasks on many cores: what the exchange costs here, and where it stops scaling elsewhere.

    python -m benchmarks.scaling --parts place --seconds 10 --rounds 3
    python -m benchmarks.scaling --parts calls
    python -m benchmarks.scaling --parts tasks,generations,bulletin

``place`` compares ``place --on local`` with as many independent processes, in turn, in one run. ``calls`` measures what
a task costs the process that gives it out, and what an exchange costs both sides, in CPU time. The others are
simulated: the real scheduler, bulletin and correspondents, whose workers, calls and clocks take simulated seconds
(``--call``, ``--exchange``: put in what ``calls`` says).
"""

from __future__ import annotations

import argparse
import heapq
import json
import subprocess
import sys
import time
from collections.abc import Sequence
from functools import partial
from itertools import count

import numpy as np

from loadmaster import api
from loadmaster.api._bulletin import Bulletin, Correspondent
from loadmaster.api._placing import configured, warm_for
from loadmaster.api._together import Effort, Job, place_together
from loadmaster.placers.frame.board import Board
from loadmaster.placers.learned.gdp._evolution import (
    Evolution,
    cost_table,
    ends_of,
    families_without,
    pretrain_tasks,
    threads,
)
from loadmaster.placers.learned.gdp._weights import new_weights
from loadmaster.problem import Placement
from loadmaster.problem.bounds import Bound
from loadmaster.runtime.ray import Scheduler, SimulatedCrew, crew, shared_actor
from loadmaster.studies import Case, Page, Row, Scope, Study

PARTS = ("place", "calls", "tasks", "generations", "bulletin")
WORKERS = (1, 2, 8, 64, 512, 2048)
SECONDS = (0.01, 0.1, 1.0, 10.0)
DECODINGS = 26
"""Sets of weights of a generation of ``pretrain`` with its usual settings, on each of"""
PROBLEMS = 12
RUN = 60.0
"""Seconds of a simulated search."""


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--parts", default="tasks,generations,bulletin", help=", ".join(PARTS))
    parser.add_argument("--seconds", type=float, default=10.0, help="place: budget of a search")
    parser.add_argument("--rounds", type=int, default=3, help="place: rounds, in turn")
    parser.add_argument("--file", default="zoo:layered-1000", help="place: the graph")
    parser.add_argument("--method", default="local-search", help="place: the method")
    parser.add_argument("--call", type=float, default=6.3e-4, help="CPU seconds of the driver for a task")
    parser.add_argument(
        "--exchange", type=float, default=7.8e-4, help="CPU seconds of the bulletin for an exchange"
    )
    parser.add_argument(
        "--decoding", type=float, default=4.8e-3, help="CPU seconds of one decoding of pretrain"
    )


def cases(scope: Scope) -> Sequence[Case]:
    parts = scope["parts"].split(",")
    found: list[Case] = []
    workers = WORKERS[:4] if scope.quick else WORKERS
    if "place" in parts:
        for number in range(scope["rounds"]):
            key = {
                "part": "place",
                "file": scope["file"],
                "method": scope["method"],
                "seconds": scope["seconds"],
            }
            found.append(Case({**key, "round": number}, partial(place, scope, number), here=True))
    if "calls" in parts:
        found.append(Case({"part": "calls"}, calls, here=True))
    if "tasks" in parts:
        for seconds in SECONDS:
            for number in workers:
                for life in (None, 600.0):
                    key = {
                        "part": "tasks",
                        "task": seconds,
                        "workers": number,
                        "call": scope["call"],
                        "life": life,
                    }
                    found.append(Case(key, partial(tasks, number, seconds, scope["call"], life)))
    if "generations" in parts:
        for number in workers:
            key = {
                "part": "generations",
                "workers": number,
                "call": scope["call"],
                "decoding": scope["decoding"],
            }
            found.append(Case(key, partial(generations, number, scope["call"], scope["decoding"])))
    if "bulletin" in parts:
        for number in workers:
            key = {"part": "bulletin", "workers": number, "exchange": scope["exchange"]}
            found.append(Case(key, partial(bulletin, number, scope["exchange"])))
    return [case for case in found if scope.only in case.title]


# -- measured ------------------------------------------------------------------------------------------------


def place(scope: Scope, number: int) -> Row:
    """Evaluations per second: 1 worker, 2 workers, and 2 independent processes, each round in another order."""
    found: Row = {}
    kinds = ["apart", "one", "two"]
    with api.machines("local"):
        for kind in kinds[number % 3 :] + kinds[: number % 3]:
            if kind == "apart":
                found[kind] = _apart(scope)
                continue
            problem = api.problem(scope["file"], model="concurrent")
            job = Job(
                problem,
                configured(scope["method"]),
                None,
                None,
                scope["seconds"],
                None,
                0,
                1 + (kind == "two"),
            )
            effort = Effort()
            solution = place_together("local", job, place=api.place, warm=warm_for, effort=effort)
            found[kind] = effort.rate
            if kind == "two":
                found |= {
                    "exchanges": effort.exchanges,
                    "board": (effort.told + effort.kept) / effort.work,
                    "cost": solution.cost,
                }
    return found | {"ratio": found["two"] / found["apart"]}


def _apart(scope: Scope) -> float:
    command = [
        sys.executable, "-m", "loadmaster.cli", "place", scope["file"], "--model", "concurrent",
        "--method", scope["method"], "--budget", f"{scope['seconds']:g}s", "--json",
    ]  # fmt: skip
    started = [
        subprocess.Popen([*command, "--seed", str(seed)], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        for seed in range(2)
    ]
    documents = [json.loads(one.communicate()[0]) for one in started]
    return sum(document["evaluations"] / document["seconds"] for document in documents)


def nothing() -> None:
    """A task."""


def calls(tasks: int = 400) -> Row:
    """CPU seconds of the driver for a task that does nothing, and of an exchange on both sides."""
    problem = api.problem("zoo:layered-1000", "2acc+1cpu", model="concurrent")
    with api.machines("local"), crew() as workers:
        workers.map(nothing, [()] * 10)
        began = time.process_time()
        workers.map(nothing, [()] * tasks, ahead=2)
        each = (time.process_time() - began) / tasks
        with shared_actor(Bulletin, 1e-6) as actor:
            board = Board(problem, Bound(0.0, "nothing"), 1e-6)
            one = Correspondent("one", board)
            actor("begin", "one")
            told = 0.0
            for number in range(tasks):
                board.offer(Placement(np.full(problem.n, number % 3, np.int32)), 1.0 / (number + 1), "test")
                before = time.thread_time()
                one.hear(actor("exchange", one.message()))
                told += time.thread_time() - before
            exchanges, kept = actor("effort")
    return {"call": each, "exchange": kept / exchanges, "told": told / tasks, "decoding": _decoding()}


def _decoding() -> float:
    """CPU seconds of a decoding of ``pretrain`` with its usual settings, without making the problems."""
    source, vectors = pretrain_tasks(0, Evolution(), families_without(())), np.stack([new_weights(0)] * 4)
    drawn = [(task, 0) for kind in range(2) for task in source(0, kind)]
    cost_table(drawn, vectors[:1], threads(1), 1)
    began = time.process_time()
    cost_table(drawn, vectors, threads(1), 1)
    return (time.process_time() - began) / (len(drawn) * len(vectors))


# -- simulated -----------------------------------------------------------------------------------------------


def tasks(workers: int, seconds: float, call: float, life: float | None) -> Row:
    """Independent tasks, twenty for each worker, whose times are lognormal: how much of the workers' time is used."""
    number = 20 * workers
    rng = np.random.default_rng(workers)
    times = seconds * np.exp(0.5 * rng.standard_normal(number) - 0.125)
    lives = np.random.default_rng(1)

    def dies(worker: int, before: int) -> float:
        return np.inf if life is None else float(lives.exponential(life))

    hands = SimulatedCrew(
        workers, times.__getitem__, give=call / 2, take=call / 2, way=1e-3, startup=5.0, life=dies
    )
    scheduler = Scheduler(hands, number, ahead=2 if seconds < 1 else 1)
    began = time.process_time()
    scheduler.run()
    real = time.process_time() - began
    took = hands.now - 5.0  # what the workers themselves need to begin is not the scheduler's
    return {
        "tasks": number,
        "ended": len(scheduler.results),
        "deaths": scheduler.deaths,
        "took": took,
        "used": float(times.sum()) / (workers * took),
        "busy": hands.busy / took,
        "scheduler": real / number,
    }


def generations(workers: int, call: float, decoding: float) -> Row:
    """Generations of ``pretrain``: each begins when the one before has ended. How much faster than one worker."""
    ends = ends_of(PROBLEMS, DECODINGS, workers)
    jobs = PROBLEMS * (len(ends) - 1)
    rng = np.random.default_rng(3)
    took, alone = 0.0, 0.0
    for _ in range(10):
        size = decoding * np.exp(
            0.5 * rng.standard_normal(PROBLEMS) - 0.125
        )  # problems differ, decodings of one do not
        times = (size[:, None] * np.diff(ends)[None, :]).reshape(-1)
        hands = SimulatedCrew(workers, times.__getitem__, give=call / 2, take=call / 2, way=1e-3)
        Scheduler(hands, jobs).run()
        took += hands.now
        alone += float(times.sum())
    return {"jobs": jobs, "took": took / 10, "faster": alone / took, "used": alone / took / workers}


def bulletin(workers: int, exchange: float) -> Row:
    """Searches that improve now and then: how busy the bulletin is, and how soon all know of an improvement."""
    problem = api.problem("zoo:layered-24", "2acc+1cpu", model="concurrent")
    state = {"now": 0.0, "busy": 0.0}
    board = Bulletin(1e-6, clock=lambda: state["now"], cpu=lambda: state["busy"])
    runs = [Correspondent(str(n), Board(problem, Bound(0.0, "nothing"), 1e-6)) for n in range(workers)]
    rng = np.random.default_rng(workers)
    order = count()
    # Everybody begins at about the same time; one improvement a second, by whoever is lucky.
    events = [(float(rng.random() * 0.5), next(order), run) for run in range(workers)]
    heapq.heapify(events)
    improved = {1.0 / (2 + k): float(k + rng.random()) for k in range(int(RUN))}
    waiting = sorted(((at, cost) for cost, at in improved.items()), reverse=True)
    known: dict[float, list[float]] = {cost: [] for cost in improved}
    placement = Placement(np.zeros(problem.n, np.int32))
    free, waited, exchanges = 0.0, 0.0, 0
    began = time.process_time()
    while events and events[0][0] < RUN:
        at, _, run = heapq.heappop(events)
        while waiting and waiting[-1][0] <= at:
            runs[int(rng.integers(workers))].board.offer(placement, waiting.pop()[1], "search")
        begin = max(at + 5e-4, free)
        free = begin + exchange
        waited += begin - at
        exchanges += 1
        state["now"], state["busy"] = free, state["busy"] + exchange
        before = runs[run].board.cost
        runs[run].hear(board.exchange(runs[run].message()))
        if runs[run].board.cost < before:
            for cost, times in known.items():
                if runs[run].board.cost <= cost < before:
                    times.append(free - improved[cost])
        heapq.heappush(events, (free + 5e-4 + runs[run].period, next(order), run))
    ages = [age for cost, times in known.items() if improved[cost] < 0.8 * RUN for age in times]
    return {
        "exchanges": exchanges,
        "period": runs[0].period,
        "busy": exchanges * exchange / RUN,
        "waited": waited / max(exchanges, 1),
        "age": float(np.mean(ages)) if ages else 0.0,
        "age95": float(np.quantile(ages, 0.95)) if ages else 0.0,
        "code": (time.process_time() - began) / max(exchanges, 1),
    }


# -- the page ------------------------------------------------------------------------------------------------


def write(page: Page, scope: Scope, rows: Sequence[Row]) -> None:
    of = {part: [row for row in rows if row["part"] == part] for part in PARTS}
    if of["place"]:
        page.section("place --on local: evaluations per second")
        page.table(
            ("round", "1 worker", "2 workers", "2 processes", "ratio", "exchange % of CPU time", "exchanges"),
            [
                (r["round"], round(r["one"]), round(r["two"]), round(r["apart"]), f"{r['ratio']:.3f}",
                 f"{100 * r['board']:.2f}", r["exchanges"])
                for r in of["place"]
            ],
        )  # fmt: skip
    if of["calls"]:
        page.section("CPU time of a call, ms")
        names = ("call", "exchange", "told", "decoding")
        page.table(
            ("driver, for a task", "bulletin, for an exchange", "search, for an exchange", "one decoding"),
            [[f"{1e3 * row[name]:.2f}" for name in names] for row in of["calls"]],
        )
    if of["tasks"]:
        page.section("Independent tasks (simulated): share of the workers' time that is used, %")
        numbers = sorted({row["workers"] for row in of["tasks"]})
        for life in (None, 600.0):
            page.text("No worker dies." if life is None else f"Workers live {life:g} s on average.")
            lines = []
            for seconds in SECONDS:
                chosen = {r["workers"]: r for r in of["tasks"] if r["task"] == seconds and r["life"] == life}
                lines.append(
                    [f"{seconds:g} s", *(f"{100 * chosen[n]['used']:.0f}" for n in numbers if n in chosen)]
                )
            page.table(("a task takes", *(f"{n} workers" for n in numbers)), lines)
        lost = [row for row in of["tasks"] if row["ended"] < row["tasks"]]
        page.text(
            f"Workers that died: {sum(row['deaths'] for row in of['tasks'])}; tasks without a result: {len(lost)}."
        )
    if of["generations"]:
        page.section("Generations of pretrain (simulated)")
        page.table(
            ("workers", "jobs of a generation", "s a generation", "faster than one", "time used %"),
            [
                (r["workers"], r["jobs"], f"{r['took']:.3f}", f"{r['faster']:.1f}", f"{100 * r['used']:.0f}")
                for r in of["generations"]
            ],
        )
    if of["bulletin"]:
        page.section("The bulletin of a search (simulated)")
        page.table(
            ("workers", "s between exchanges", "bulletin busy %", "wait ms", "age of news s", "95 % of them"),
            [
                (r["workers"], f"{r['period']:.2f}", f"{100 * r['busy']:.1f}", f"{1e3 * r['waited']:.1f}",
                 f"{r['age']:.2f}", f"{r['age95']:.2f}")
                for r in of["bulletin"]
            ],
        )  # fmt: skip


STUDY = Study("scaling", "Searches and tasks on many cores", cases, write, options)

if __name__ == "__main__":
    raise SystemExit(STUDY.main())
