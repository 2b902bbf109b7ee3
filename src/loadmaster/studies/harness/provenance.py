"""Where numbers come from: the machine and the versions."""

from __future__ import annotations

import importlib.metadata
import os
import platform
from pathlib import Path

from loadmaster import __version__
from loadmaster.cores import allowed_cores

__all__ = ["machine", "versions"]

LIBRARIES = ("numpy", "numba", "ortools", "highspy", "pymetis", "torch", "openvino")


def machine() -> str:
    """Processor, cores (those that this process may use, if fewer) and system."""
    name = platform.processor() or platform.machine()
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                name = line.partition(":")[2].strip()
                break
    except OSError:
        pass
    cores = os.cpu_count() or 1
    usable = len(allowed_cores())
    used = f"{usable} of {cores} cores" if usable < cores else f"{cores} core{'s' if cores > 1 else ''}"
    return f"{name}, {used}, {platform.system()}"


def versions() -> str:
    """Loadmaster, Python, and the libraries that are installed."""
    found = [f"loadmaster {__version__}", f"Python {platform.python_version()}"]
    for library in LIBRARIES:
        try:
            found.append(f"{library} {importlib.metadata.version(library)}")
        except importlib.metadata.PackageNotFoundError:
            continue
    return ", ".join(found)
