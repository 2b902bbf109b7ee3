"""A cost model whose errors are learnt from runs."""

from loadmaster.placers.learned.surrogate.surrogate import Surrogate

__all__ = ["Surrogate"]
