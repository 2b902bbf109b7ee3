"""Drawing devices from probabilities, with random numbers that are given."""

from __future__ import annotations

import numpy as np
from numba import njit

__all__ = ["sample_devices"]


@njit(cache=True, nogil=True)
def sample_devices(probability, uniform):  # type: ignore[no-untyped-def]
    """(rows,) a device for each row of the (rows, devices) ``probability``, never one of probability 0.

    ``uniform`` : (rows,) random numbers in [0, 1).
    """
    rows, devices = probability.shape
    device = np.empty(rows, np.int32)
    for row in range(rows):
        left = uniform[row]
        last = 0
        for d in range(devices):
            if probability[row, d] > 0.0:
                last = d
                if left < probability[row, d]:
                    break
                left -= probability[row, d]
        device[row] = last
    return device
