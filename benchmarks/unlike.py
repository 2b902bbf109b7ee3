"""Devices that are unlike: f32 beside half the speed, f32 beside bf16.

    python -m benchmarks.unlike
    python -m benchmarks.unlike --models inception-v3,resnet-50,bert-base --execution pipeline --setting half
    python -m benchmarks.unlike --models 'resnet-50?size=64' --budget 10 --samples 3 --clock core   # does it run?

Two devices of one core each; what ``optimize`` finds under each execution model, beside the best single device and
OpenVINO on all cores. In bf16 plans keep the last ops at f32 by pins, and outputs within --tolerance of the f32 model.
A CPU without bf16 refuses that device, and the row says so.
"""

from __future__ import annotations

import argparse
from functools import partial

from benchmarks.openvino_runs import Options, common, interval, model_file, short
from loadmaster.errors import BusyError, InputError, RunError
from loadmaster.graph import load_openvino
from loadmaster.optimize import MODELS, Optimized, optimize
from loadmaster.runtime import Cache, Line
from loadmaster.runtime.openvino import parse_devices
from loadmaster.studies import Case, Row, Scope, Study

__all__ = ["STUDY"]

SETTINGS = {
    "half": ["A=cpu:core=0", "B=cpu:core=1,speed=0.5"],
    "bf16": ["A=cpu:core=0", "B=cpu:core=1,precision=bf16"],
}
LAST = 6
"""Ops at the end that stay at f32."""


def measured(name: str, setting: str, execution: str, scope: Scope, options: Options) -> Row:
    """What ``optimize`` finds."""
    path = model_file(name, options)
    pins: list[str] = []
    if setting == "bf16":
        graph = load_openvino(path).graph
        pins = [f"{graph.names[v]}=A" for v in graph.topological_order[-LAST:]]
    try:
        found = optimize(
            path,
            parse_devices(SETTINGS[setting]),
            budget=scope["budget"],
            model=execution,
            pins=pins,
            tolerance=scope["tolerance"] if setting == "bf16" else None,
            samples=options.samples,
            clock=options.clock,
            cache=Cache(options.folder / "measured.sqlite"),
        )
    except BusyError:  # no result: the row is still to be measured
        raise
    except (InputError, RunError) as error:
        return {"result": str(error)}
    found.plan.save(options.folder / f"plan-{short(name)}-{setting}-{execution}.json")
    return row_of(found)


def row_of(found: Optimized) -> Row:
    """The lines of one table row: times, and speed-ups against the best single device that the pins allow."""
    alone = found.line(f"{found.alone} alone").measurement
    assert alone is not None

    def against(name: str) -> str | None:
        line: Line | None = next((line for line in found.lines if line.name.startswith(name)), None)
        if line is None or line.measurement is None:
            return None
        return f"{interval(line.measurement)} ({alone.median / line.measurement.median:.2f}x)"

    others = [
        line.name for line in found.lines if " alone" in line.name and line.name != f"{found.alone} alone"
    ]
    best = next((line for line in found.lines if line.name == "best plan"), None)
    off = None if best is None or best.verification is None else best.verification.error.relative
    return {
        "best single device": f"{found.alone}: {interval(alone)}",
        "the other alone": against(others[0]) if others else None,
        "OpenVINO on all cores": against("OpenVINO on"),
        "OpenVINO, streams": against("OpenVINO, "),
        "best plan": against("best plan"),
        "submodels": None if best is None or best.measurement is None else best.measurement.submodels,
        "error at the outputs": None if off is None else f"{off:.1e}",
        "result": "a plan pays" if found.pays else f"one device ({found.alone}) is the answer",
        "left out": "; ".join(found.left_out),
        "seconds": round(found.seconds, 1),
    }


def options(parser: argparse.ArgumentParser) -> None:
    """What is shown, and how it is searched for."""
    common(parser, "inception-v3,two-tower,resnet-50", 30)
    parser.add_argument("--setting", default=",".join(SETTINGS), help="of half, bf16")
    parser.add_argument("--execution", default=",".join(("serial", "concurrent", "pipeline")))
    parser.add_argument("--budget", type=float, default=120.0, help="seconds for optimize")
    parser.add_argument("--tolerance", default="3%", help="bf16: how far the outputs may be from f32")


def cases(scope: Scope) -> list[Case]:
    """A case per model, setting and execution model."""
    given = Options.of(scope, 0)
    for option, known in (("setting", SETTINGS), ("execution", MODELS)):
        for word in scope[option].split(","):
            if word not in known:
                raise InputError(f"--{option} {word!r}: choose from {', '.join(known)}")
    more = {name: scope[name] for name in ("budget", "tolerance")} | {
        "samples": given.samples,
        "clock": given.clock,
    }
    return [
        Case(
            {"setting": setting, "execution": execution, "model": name, **more},
            partial(measured, name, setting, execution, scope, given),
        )
        for setting in scope["setting"].split(",")
        for execution in scope["execution"].split(",")
        for name in scope["models"].split(",")
    ]


STUDY = Study("unlike", "Unlike devices", cases, options=options, here=True)

if __name__ == "__main__":
    raise SystemExit(STUDY.main())
