"""Shapes that no rule tells: seen in one run of ONNX Runtime on inputs that are drawn.

How often a ``Loop`` turns depends on data, and what an operator of another domain makes is known to its engine alone.
The run has a process of its own, with limits, because a file may hold anything.
"""

from __future__ import annotations

import io
import json
import math
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from loadmaster.errors import InputError
from loadmaster.graph._drawing import draw_input, length_of
from loadmaster.graph._given import Given
from loadmaster.graph.onnx._file import read_model
from loadmaster.graph.onnx._infer import Guess, schema_of
from loadmaster.graph.onnx._value import Value
from loadmaster.graph.onnx._values import set_values

__all__ = ["Observer"]

SECONDS, PER_BYTE = 6.0, 1e-7
"""On the core, for reading the model and running it once: so long, and so much more per byte of it. A small file must
not cost much, whatever is in it."""
MEMORY, COPIES = 700 << 20, 12
"""Bytes of data that the process may have: so many, and so many times the size of model and inputs."""
PATIENCE = 10
"""On the clock, so many times what it may take on the core."""
MOST = 1 << 24
"""Elements of all inputs together that are drawn."""
UNTOLD = frozenset(
    [
        "Compress",
        "If",
        "Loop",
        "NonMaxSuppression",
        "NonZero",
        "Resize",
        "Scan",
        "StringSplit",
        "TopK",
        "Unique",
    ]
)
"""Standard operators whose shapes may depend on data: all of them are looked at together."""


class Seen(Guess):
    """What a run gave: all of it is known."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Its sizes."""
        return tuple([size for size in self.sizes or () if size is not None])

    def fits(self, inferred: Guess) -> bool:
        """Whether it is a case of what is inferred."""
        if inferred.sizes is None:
            return True
        pairs = zip(self.shape, inferred.sizes, strict=False)
        return len(self.shape) == len(inferred.sizes) and all(known in (None, size) for size, known in pairs)


class Observer:
    """Runs a model when it is first asked, and again for what was not looked at then."""

    def __init__(self, source: Any, path: str | Path, given: Given) -> None:
        self._source, self._path, self._given = source, path, given
        self._seen: dict[str, Seen] = {}
        self._failed = False

    def see(self, name: str, inputs: Sequence[Value]) -> Seen | None:
        """The tensor of this name; None where it is inside another graph, or where the model cannot be run."""
        if name not in self._seen and not self._failed:
            try:
                self._look(name, inputs)
            except (InputError, OSError, ValueError, subprocess.SubprocessError):
                self._failed = True
        return self._seen.get(name)

    def _look(self, name: str, inputs: Sequence[Value]) -> None:
        model = read_model(self._source, whole=True)
        set_values(model, self._path, self._given.constants)
        nodes = model.graph.node
        if not any(name in node.output for node in nodes):
            return
        versions = {entry.domain: entry.version for entry in model.opset_import}
        wanted = [
            name,
            *(output for node in nodes if _untold(node, versions) for output in node.output if output),
        ]
        del model.graph.output[:]
        model.graph.output.extend(onnx.ValueInfoProto(name=output) for output in dict.fromkeys(wanted))
        shapes = [value.tensor.shape for value in inputs]
        if sum(map(math.prod, shapes)) > MOST:
            raise InputError(f"the inputs have over {MOST:,} elements")
        drawn = {
            value.name: draw_input(
                value.tensor.shape,
                onnx.helper.tensor_dtype_to_np_dtype(value.elem),
                seed=0,
                at=at,
                length=length_of(at, shapes),
            )
            for at, value in enumerate(inputs)
        }
        for output, (kind, sizes) in _run(model, drawn).items():
            elem = onnx.helper.np_dtype_to_tensor_dtype(np.dtype(kind))
            self._seen[output] = Seen(elem, tuple(sizes))


def _untold(node: Any, versions: dict[str, int]) -> bool:
    domain = "" if node.domain == "ai.onnx" else node.domain
    if domain == "" and node.op_type in UNTOLD:
        return True
    return schema_of(node.op_type, domain, versions.get(node.domain, 0)) is None


def _run(model: Any, inputs: dict[str, Any]) -> dict[str, tuple[str, list[int]]]:
    """Output -> its type and shape; nothing where ONNX Runtime is not installed or does not run the model."""
    drawn = io.BytesIO()
    np.savez(drawn, **{f"a{at}": array for at, array in enumerate(inputs.values())})
    content, arrays = model.SerializeToString(), drawn.getvalue()
    size = len(content) + len(arrays)
    seconds = math.ceil(SECONDS + PER_BYTE * size)
    limits = {"memory": MEMORY + COPIES * size, "seconds": seconds}
    head = json.dumps({"model": len(content), "names": list(inputs), **limits}).encode() + b"\n"
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", RUN],
        input=head + content + arrays,
        capture_output=True,
        timeout=PATIENCE * seconds,
        check=False,
    )
    found: dict[str, tuple[str, list[int]]] = json.loads(done.stdout) if done.returncode == 0 else {}
    return found


RUN = """
import io, json, resource, sys
given = json.loads(sys.stdin.buffer.readline())
resource.setrlimit(resource.RLIMIT_DATA, (given["memory"],) * 2)
resource.setrlimit(resource.RLIMIT_CPU, (given["seconds"],) * 2)
model = sys.stdin.buffer.read(given["model"])
import numpy, onnxruntime
arrays = numpy.load(io.BytesIO(sys.stdin.buffer.read()), allow_pickle=False)
inputs = {name: arrays[f"a{at}"] for at, name in enumerate(given["names"])}
options = onnxruntime.SessionOptions()
options.log_severity_level = 4
options.intra_op_num_threads = 1
session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
names = [port.name for port in session.get_outputs()]
found = zip(names, session.run(None, inputs))
print(json.dumps({name: (array.dtype.str, array.shape) for name, array in found if hasattr(array, "dtype")}))
"""
"""What the process runs: the model's bytes and its inputs come in, types and shapes go out."""
