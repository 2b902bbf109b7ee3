"""Several machines: the engine that runs models, connected to a Ray cluster where one is named."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from loadmaster.errors import InputError


@contextmanager
def machines(on: str | None, runtime: str = "openvino") -> Iterator[Any]:
    """The engine that runs models (:func:`loadmaster.runtime.engine`), connected to a Ray cluster where one is named.

    ``on`` is ``HOST:PORT`` of a cluster, ``auto`` (the one that runs here), ``local`` or ``local:N``: a node or N nodes
    of this machine, which are started for this and end with it.
    """
    from loadmaster.runtime import engine

    if on is None:
        yield engine(runtime)
        return
    if runtime not in ("openvino", "ray"):
        raise InputError(f"devices of several machines run OpenVINO, not {runtime}", option="--runtime")
    by = engine("ray")
    with by.connected(on):
        yield by
