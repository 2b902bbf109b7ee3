"""A plan that is kept open for hours, with requests that fail in between: right answers, flat memory.

    python -m campaigns.soak --hours 1 [--share 0.1]

A network with two branches runs on two devices through ``loadmaster.open(...).stream``. Between the good streams there
are bad ones: items of a wrong shape or type, too many of them, an iterator that raises, a stream that is left early, a
submodel that fails. Every output is compared with that of the unplaced model. Every ten seconds the memory of the
process is written to ``memory.csv``; it is flat where the last quarter of the run needs no more than
five megabytes above the second.
"""

from __future__ import annotations

import argparse
import csv
import gc
import os
import random
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from campaigns._campaign import Campaign, parser

__all__ = ["main"]

SAMPLE = 10.0
FLAT = 5 * 2**20
"""Bytes by which memory may differ between the second and the last quarter."""
SHAPE = (1, 8, 12, 12)


class BrokenError(Exception):
    """What a user's own iterator raises."""


def network(path: Path) -> Path:
    """Three blocks of two branches each, with two outputs."""
    import openvino as ov
    from openvino import opset13 as ops

    generator = np.random.default_rng(0)

    def conv(x: Any, name: str, inside: int, channels: int) -> Any:
        weight = generator.normal(size=(channels, inside, 3, 3)).astype(np.float32) * 0.15
        y = ops.convolution(x, ops.constant(weight), [1, 1], [1, 1], [1, 1], [1, 1], name=f"{name}/conv")
        return ops.relu(y, name=f"{name}/relu")

    x = ops.parameter(list(SHAPE), np.float32, name="image")
    y, early = x, None
    for i in range(3):
        left, right = conv(y, f"block{i}/left", 8, 4), conv(y, f"block{i}/right", 8, 4)
        y = ops.concat([left, conv(right, f"block{i}/right2", 4, 4)], 1, name=f"block{i}/concat")
        early = early or ops.result(left, name="early")
    flat = ops.reduce_mean(y, ops.constant(np.array([2, 3])), False, name="mean")
    ov.save_model(ov.Model([ops.result(flat, name="late"), early], [x], "branched"), str(path))
    return path


def plan(model: Path, kind: str) -> Any:
    """A plan with the branches on different devices."""
    from loadmaster.graph import load_openvino
    from loadmaster.hardware import Cluster, Link
    from loadmaster.plan import Plan
    from loadmaster.problem import Concurrent, Pipeline, Placement, Problem, Solution
    from loadmaster.runtime.openvino import parse_devices

    graph = load_openvino(model).graph
    link = Link(1e-6, 1e9)
    devices = tuple(spec.device() for spec in parse_devices(["A=cpu", "B=cpu"]))
    problem = Problem.make(
        graph,
        Cluster("two", devices, ((None, link), (link, None))),
        Concurrent() if kind == "concurrent" else Pipeline(),
        time=np.full((graph.n, 2), 1e-3),
    )
    device = np.array(["right" in name for name in graph.names], np.int32)
    return Plan.from_solution(problem, Solution(Placement(device), 1.0, 1.0, "none", "given"))


class Soak:
    """The open plan, good and bad streams, and what they must do."""

    def __init__(self, campaign: Campaign, kind: str) -> None:
        import openvino as ov

        import loadmaster

        self.campaign = campaign
        model = network(campaign.folder / "model.xml")
        alone = ov.Core().compile_model(str(model), "CPU", {"INFERENCE_PRECISION_HINT": "f32"})
        self.items = [np.random.default_rng(i).standard_normal(SHAPE).astype(np.float32) for i in range(16)]
        self.expected = [[value.copy() for value in alone(item).values()] for item in self.items]
        self.net = loadmaster.open(model, plan(model, kind))
        self._failing = threading.Event()
        self._make_fragile()

    def _make_fragile(self) -> None:
        """One submodel of every slot fails once after ``_failing`` is set, as an engine might."""
        for slot in self.net._running._slots:
            job = slot.jobs[len(slot.jobs) // 2]

            def run(inner: Any = job.run) -> object:
                if self._failing.is_set():
                    self._failing.clear()
                    raise RuntimeError("out of memory on the device")
                return inner()

            job.run = run

    def case(self, number: int) -> None:
        """One stream."""
        rng = random.Random(f"{self.campaign.seed} {number}")
        kind = rng.choice(["good"] * 6 + ["call", "shape", "type", "count", "raises", "left", "fails", "odd"])
        self.campaign.counts[f"streams {kind}"] += 1
        picks = [rng.randrange(len(self.items)) for _ in range(rng.choice([1, 2, 3, 5, 20, 40]))]
        try:
            getattr(self, f"_{kind}")(picks, rng)
        except AssertionError as error:
            self.campaign.finding("soak", repr((kind, picks)).encode(), ".txt", error)

    def _right(self, pick: int, outputs: Any) -> None:
        self.campaign.counts["requests"] += 1
        for found, wanted in zip(outputs, self.expected[pick], strict=True):
            assert np.allclose(found, wanted, rtol=1e-4, atol=1e-4), "a wrong output"

    def _good(self, picks: list[int], rng: random.Random) -> None:
        for pick, outputs in zip(picks, self.net.stream(self.items[p] for p in picks), strict=True):
            self._right(pick, outputs)

    def _call(self, picks: list[int], rng: random.Random) -> None:
        for pick in picks:
            self._right(pick, self.net(self.items[pick]))

    def _odd(self, picks: list[int], rng: random.Random) -> None:
        """Arrays that are right but unusual: read-only, not contiguous, of another byte order or type, lists."""
        for pick in picks:
            item = self.items[pick]
            frozen = item.copy()
            frozen.flags.writeable = False
            forms = [
                frozen,
                np.asfortranarray(item),
                item.astype(">f4"),
                item.astype(np.float64),
                item.tolist(),
            ]
            self._right(pick, self.net(rng.choice(forms)))

    def _until_error(
        self, picks: list[int], items: Iterator[Any], kinds: tuple[type, ...], text: str
    ) -> None:
        self.campaign.counts["requests that fail"] += 1
        taken = 0
        try:
            for pick, outputs in zip(picks, self.net.stream(items), strict=False):
                self._right(pick, outputs)
                taken += 1
        except kinds as error:
            if text not in str(error):
                raise AssertionError(f"it said {error}") from None
            return
        raise AssertionError(f"no error after {taken} outputs")

    def _with(self, picks: list[int], rng: random.Random, bad: Any) -> Iterator[Any]:
        at = rng.randrange(len(picks))
        for place, pick in enumerate(picks):
            yield bad if place == at else self.items[pick]

    def _shape(self, picks: list[int], rng: random.Random) -> None:
        from loadmaster.errors import InputError

        bad = self.items[0][:, : rng.randrange(8)]
        self._until_error(picks, self._with(picks, rng, bad), (InputError,), "must have the shape")

    def _type(self, picks: list[int], rng: random.Random) -> None:
        bad = rng.choice(["text", np.full(SHAPE, "x"), None, object(), {"image": 1}, [[1], [2, 3]]])
        self._until_error(picks, self._with(picks, rng, bad), (ValueError, TypeError), "")

    def _count(self, picks: list[int], rng: random.Random) -> None:
        from loadmaster.errors import InputError

        bad = rng.choice([(), (self.items[0],) * 3])
        self._until_error(picks, self._with(picks, rng, bad), (InputError,), "the model has 1 inputs")

    def _raises(self, picks: list[int], rng: random.Random) -> None:
        def items() -> Iterator[Any]:
            yield from (self.items[pick] for pick in picks)
            raise BrokenError("the camera is gone")

        self._until_error([*picks, 0], items(), (BrokenError,), "the camera is gone")

    def _fails(self, picks: list[int], rng: random.Random) -> None:
        from loadmaster.errors import RunError

        at = rng.randrange(len(picks))

        def items() -> Iterator[Any]:
            for place, pick in enumerate(picks):
                if place == at:
                    self._failing.set()
                yield self.items[pick]

        self._until_error(picks, items(), (RunError,), "failed: out of memory on the device")
        assert not self._failing.is_set(), "no submodel has run"

    def _left(self, picks: list[int], rng: random.Random) -> None:
        stream = self.net.stream(self.items[p] for p in picks * 3)
        for pick, outputs in zip(picks, stream, strict=False):
            self._right(pick, outputs)
        if rng.random() < 0.5:
            stream.close()  # else it is left to the collector


def memory() -> int:
    """Bytes that the process has in memory now."""
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def _options(arguments: list[str] | None) -> argparse.Namespace:
    found = parser("soak", "An open plan under good and bad requests.", hours=1.0)
    found.add_argument("--share", type=float, default=0.1, help="share of a core to use (0.1)")
    found.add_argument("--model", choices=["concurrent", "pipeline"], default="pipeline")
    return found.parse_args(arguments)


def main(arguments: list[str] | None = None) -> int:
    """Run the campaign; 1 where an answer was wrong, or memory grew."""
    options = _options(arguments)
    campaign = Campaign("soak", options)
    soak = Soak(campaign, options.model)
    rows: list[tuple[float, int, int, int]] = []
    last = -SAMPLE

    def case(number: int) -> None:
        nonlocal last
        start = time.process_time(), time.monotonic()
        soak.case(number)
        used = time.process_time() - start[0]
        if options.share < 1:
            time.sleep(max(0.0, used / options.share - (time.monotonic() - start[1])))
        if campaign.awake - last >= SAMPLE:
            last = campaign.awake
            gc.collect()
            rows.append((last, memory(), threading.active_count(), len(os.listdir("/proc/self/fd"))))
            with (campaign.folder / "memory.csv").open("w", newline="") as file:
                csv.writer(file).writerows([("seconds", "bytes", "threads", "files"), *rows])

    code = campaign.run(case)
    soak.net.close()
    if len(rows) < 8:
        return code
    quarter = len(rows) // 4
    second = max(row[1] for row in rows[quarter : 2 * quarter])
    fourth = max(row[1] for row in rows[-quarter:])
    campaign.extra["memory"] = {
        "second quarter": second,
        "last quarter": fourth,
        "threads": sorted({row[2] for row in rows[1:]}),
        "files": sorted({row[3] for row in rows[1:]}),
    }
    if fourth - second > FLAT:
        campaign.finding("memory", b"", ".txt", f"memory grew from {second:,} to {fourth:,} bytes")
        code = 1
    campaign.close()
    return code


if __name__ == "__main__":
    raise SystemExit(main())
