"""The arrays of a problem must have the shapes that its graph and its cluster ask for."""

from __future__ import annotations

from typing import TYPE_CHECKING

from loadmaster.errors import InputError

if TYPE_CHECKING:
    from loadmaster.problem._problem import Problem

__all__ = ["reject_bad_shapes"]


def reject_bad_shapes(problem: Problem) -> None:
    """Raise :class:`InputError` if an array does not fit the graph and the cluster."""
    n, m, size = problem.graph.n, problem.graph.tensors, len(problem.cluster)
    shapes: dict[str, tuple[int, ...]] = {
        "time": (n, size),
        "size": (m,),
        "latency": (size, size),
        "rate": (size, size),
        "send_latency": (size,),
        "send_rate": (size,),
        "recv_latency": (size,),
        "recv_rate": (size,),
        "memory": (n,),
        "capacity": (size,),
        "resident": (n,),
        "class_of": (n,),
        "pin": (n,),
        "forbidden": (n, size),
    }
    if problem.origin is not None:
        shapes["origin"] = (n, size)
    if problem.kept is not None:
        shapes["kept"] = (n,)
    for name, shape in shapes.items():
        array = getattr(problem, name)
        if array.shape != shape:
            raise InputError(
                f"{name} has shape {array.shape}, but {n} ops, {m} tensors and {size} devices need {shape}"
            )
