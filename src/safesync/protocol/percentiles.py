"""Percentiles from raw rows by nearest rank, so that +infinity (a failure) is an honest value."""

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

_RANK_DIGITS = 9  # 0.95 x 20 must be rank 19, not 20 through a rounding error


def percentile(values: ArrayLike, quantile: float) -> float:
    """Return the smallest value with at least ``quantile`` of all values at or below it.

    ``values`` has shape (n,), may hold +infinity and no NaN; the result is always one of them
    (nearest rank, Hyndman and Fan 1996, definition 1; no interpolation, which infinity would
    turn into NaN). NaN when ``values`` is empty. ``quantile`` is in (0, 1].
    """
    return float(percentile_rows(np.asarray(values, dtype=float)[None, :], (quantile,))[0, 0])


def percentile_rows(values: np.ndarray, quantiles: Sequence[float]) -> np.ndarray:
    """Return ``percentile`` of each row: (rows, n) and k quantiles give shape (rows, k)."""
    for quantile in quantiles:
        if not 0 < quantile <= 1:
            raise ValueError(f"quantile {quantile!r} is outside (0, 1]")
    rows, size = values.shape
    if size == 0:
        return np.full((rows, len(quantiles)), math.nan)
    ranks = [math.ceil(round(quantile * size, _RANK_DIGITS)) for quantile in quantiles]
    return np.sort(values, axis=1)[:, [max(rank, 1) - 1 for rank in ranks]]
