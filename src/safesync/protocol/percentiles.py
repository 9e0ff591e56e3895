"""Percentiles from raw rows by nearest rank, so that +infinity (a failure) is an honest value."""

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

_RANK_DIGITS = 9  # 0.95 x 20 must be rank 19, not 20 through a rounding error

EXACT_VALUES = 2**20  # held in full, 8 MB
_MANTISSA_BITS = 11
_DROPPED_BITS = 52 - _MANTISSA_BITS  # of a float64's mantissa
_LOWEST = 2.0**-20  # of seconds, a microsecond
RELATIVE_ERROR = 2.0 ** -(_MANTISSA_BITS + 1)  # half a bucket


def percentile(values: ArrayLike, quantile: float) -> float:
    """Return the smallest value with at least ``quantile`` of all values at or below it.

    ``values`` has shape (n,), may hold +infinity and no NaN; the result is always one of them
    (nearest rank, Hyndman and Fan 1996, definition 1; no interpolation, which infinity would
    turn into NaN). NaN when ``values`` is empty. ``quantile`` is in (0, 1].
    """
    return float(percentile_rows(np.asarray(values, dtype=float)[None, :], (quantile,))[0, 0])


def percentile_rows(values: np.ndarray, quantiles: Sequence[float]) -> np.ndarray:
    """Return ``percentile`` of each row: (rows, n) and k quantiles give shape (rows, k)."""
    rows, size = values.shape
    ranks = [_rank(quantile, size) for quantile in quantiles]
    if size == 0:
        return np.full((rows, len(quantiles)), math.nan)
    return np.sort(values, axis=1)[:, [rank - 1 for rank in ranks]]


class Percentiles:
    """Nearest-rank percentiles of values that come in parts, in bounded memory.

    Up to ``EXACT_VALUES`` finite values they are those of ``percentile``. Beyond, values are
    counted in buckets that share the exponent and the first 11 bits of the mantissa, and a
    percentile is the middle of its bucket, off by at most ``RELATIVE_ERROR`` of itself. Values
    below 2**-20 (of seconds: a microsecond) are then counted as 2**-20.
    """

    def __init__(self):
        self._held: list[np.ndarray] = []
        self._counts: np.ndarray | None = None  # by bucket, once the values are too many to hold
        self._finite = 0
        self._infinite = 0

    @property
    def exact(self) -> bool:
        """Whether every finite value is still held."""
        return self._counts is None

    def add(self, values: np.ndarray) -> None:
        """Take in values, float64 of shape (n,), that may be +infinity and are never NaN."""
        finite = values[np.isfinite(values)]
        self._finite += finite.size
        self._infinite += values.size - finite.size
        if self._counts is None:
            self._held.append(finite)
            if self._finite > EXACT_VALUES:
                held, self._held = np.concatenate(self._held), []
                self._counts = np.bincount(_buckets(held))
            return
        found = np.bincount(_buckets(finite))
        if found.size > self._counts.size:
            found, self._counts = self._counts, found
        self._counts[: found.size] += found

    def at(self, quantile: float, *, finite: bool = False) -> float:
        """Return the percentile at ``quantile`` in (0, 1]; NaN when there is no value.

        ``finite``: of the finite values only.
        """
        size = self._finite + (0 if finite else self._infinite)
        rank = _rank(quantile, size)
        if size == 0:
            return math.nan
        if rank > self._finite:
            return math.inf
        if self._counts is None:
            return float(np.partition(np.concatenate(self._held), rank - 1)[rank - 1])
        return _middle(int(np.searchsorted(np.cumsum(self._counts), rank)))


def _rank(quantile: float, size: int) -> int:
    """Return the rank of a percentile among ``size`` values, from 1."""
    if not 0 < quantile <= 1:
        raise ValueError(f"quantile {quantile!r} is outside (0, 1]")
    return max(math.ceil(round(quantile * size, _RANK_DIGITS)), 1)


# The bits of a positive float64, read as an integer, rise with its value: those that are kept are
# buckets of equal width within an octave.
def _bits(values: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(values, dtype=np.float64).view(np.int64) >> _DROPPED_BITS


def _buckets(values: np.ndarray) -> np.ndarray:
    return _bits(np.maximum(values, _LOWEST)) - _bits(np.array([_LOWEST]))


def _middle(bucket: int) -> float:
    edges = (np.array([bucket, bucket + 1]) + _bits(np.array([_LOWEST]))) << _DROPPED_BITS
    return float(edges.view(np.float64).mean())
