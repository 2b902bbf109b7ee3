"""The worker process: it is pinned, opens one model, and does what its parent asks, until the parent is gone.

Started as ``python -m loadmaster.runtime._worker_main CORES HOST``, where ``HOST`` is the engine's
:class:`~loadmaster.runtime._host.ModelHost` as ``module:class``. Requests and answers are pickles behind their length,
on standard input and on what was standard output (which an engine is free to write to otherwise).
"""

from __future__ import annotations

import importlib
import os
import pickle
import struct
import sys
from typing import Any, BinaryIO

from loadmaster.errors import LoadmasterError
from loadmaster.runtime._cores import end_with_parent, pin

__all__ = ["LENGTH", "receive", "send"]

LENGTH = struct.Struct("<Q")


def send(stream: BinaryIO, value: Any) -> None:
    """Write one message."""
    content = pickle.dumps(value, protocol=pickle.HIGHEST_PROTOCOL)
    stream.write(LENGTH.pack(len(content)) + content)
    stream.flush()


def receive(stream: BinaryIO) -> Any:
    """Read one message; EOFError where the other side is gone."""
    head = _exactly(stream, LENGTH.size)
    return pickle.loads(_exactly(stream, LENGTH.unpack(head)[0]))


def _exactly(stream: BinaryIO, count: int) -> bytes:
    content = bytearray()
    while len(content) < count:
        part = stream.read(count - len(content))
        if not part:
            raise EOFError
        content += part
    return bytes(content)


def main() -> None:
    """Answer requests until standard input ends."""
    end_with_parent()
    pin(int(core) for core in sys.argv[1].split(","))  # before the engine counts the cores
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    requests = sys.stdin.buffer
    module, _, name = sys.argv[2].partition(":")
    host = getattr(importlib.import_module(module), name)()
    while True:
        try:
            command, arguments = receive(requests)
        except EOFError:
            return
        try:
            answer = (True, getattr(host, command)(**arguments))
        except Exception as error:
            ours = isinstance(error, LoadmasterError)
            option = getattr(error, "option", "")
            answer = (False, (type(error).__name__, str(error) if ours else host.said(error), option))
        send(answers, answer)


if __name__ == "__main__":
    main()
