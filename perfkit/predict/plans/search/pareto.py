"""Pareto front: the points of which no other one is better in both time and memory."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt


def pareto_front(time: npt.ArrayLike, memory: npt.ArrayLike) -> npt.NDArray[np.intp]:
    """Indices of the front in order of rising time, so falling memory; of equal points the one with the smallest index stays."""
    times, sizes = np.asarray(time), np.asarray(memory)
    order = np.lexsort((np.arange(len(times)), sizes, times))
    if not len(order):
        return order
    lowest = np.minimum.accumulate(sizes[order])
    drops = np.concatenate(([True], lowest[1:] < lowest[:-1]))
    return order[drops]
