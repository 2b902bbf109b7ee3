"""The network in the rule of both of ``gdp``'s decoders: what it adds to the score of an (op, device) pair.

The first layer is a sum of three parts: of the op, once per problem, of the device, and of the pair, whose features
the decoder computes. The two numbers that come out are in units of the op and of the mean op.
"""

from __future__ import annotations

from numba import njit

__all__ = ["advice", "squash"]


@njit(cache=True, nogil=True)
def squash(x):  # type: ignore[no-untyped-def]
    """Into (-1, 1), and 0 to 0."""
    return x / (1.0 + abs(x))


@njit(cache=True, nogil=True)
def advice(x, of_op, of_device, pair_weights, out_weights, unit, common, hidden):  # type: ignore[no-untyped-def]
    """What is added to the score of a pair with features ``x``; ``hidden``, (H,), is scratch.

    ``of_op``, ``of_device`` : (H,) parts of the hidden layer. ``pair_weights`` : (features, H).
    ``out_weights`` : (2, H).
    """
    width = len(hidden)
    for j in range(width):
        hidden[j] = of_op[j] + of_device[j]
    for k in range(len(x)):
        for j in range(width):
            hidden[j] += x[k] * pair_weights[k, j]
    own = shared = 0.0
    for j in range(width):
        h = max(hidden[j], 0.0)
        own += h * out_weights[0, j]
        shared += h * out_weights[1, j]
    return own * unit + shared * common
