"""Percentiles from raw rows by nearest rank, so that +infinity (a failure) is an honest value."""

import math

import numpy as np
from numpy.typing import ArrayLike

_RANK_DIGITS = 9  # 0.95 x 20 must be rank 19, not 20 through a rounding error


def percentile(values: ArrayLike, quantile: float) -> float:
    """Return the smallest value with at least ``quantile`` of all values at or below it.

    ``values`` has shape (n,), may hold +infinity and no NaN; the result is always one of them
    (nearest rank, Hyndman and Fan 1996, definition 1; no interpolation, which infinity would
    turn into NaN). NaN when ``values`` is empty. ``quantile`` is in (0, 1].
    """
    if not 0 < quantile <= 1:
        raise ValueError(f"quantile {quantile!r} is outside (0, 1]")
    ordered = np.sort(np.asarray(values, dtype=float))
    if ordered.size == 0:
        return math.nan
    rank = math.ceil(round(quantile * ordered.size, _RANK_DIGITS))
    return float(ordered[max(rank, 1) - 1])
