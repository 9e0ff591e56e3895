"""The distribution of an additive cost over uniformly placed schedules.

`distribution` counts schedules by (start of the k-th merge, total cost so far). The sums over a
window of earlier starts are put together from prefix and suffix sums of blocks (the sliding-window
scheme of van Herk and Gil & Werman), so that only non-negative numbers are ever added: small tail
probabilities keep their relative accuracy, and no total appears that no schedule has. Counts below
2**53 are exact; above, every probability has a relative error of some n * 1e-13. Powers of two are
divided out as counts grow, which changes no digit, and the sum over all totals is held against the
exact count.

`moments` needs no axis for the cost: it carries the number of ways and the first two moments.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from safesync.placement.grid import Grid
from safesync.placement.sampling import decayed_cumsum, tilt_for_mean, tilted_total

_MEMORY_LIMIT_BYTES = 2e9
_LOG_LIMIT = 650.0  # see sampling


@dataclass(frozen=True, eq=False)
class Null:
    """A discrete distribution on integers.

    values: shape (m,), int64, ascending: every total that some feasible schedule has.
    probabilities: shape (m,), float64, positive, summing to 1.
    """

    values: np.ndarray
    probabilities: np.ndarray

    @property
    def mean(self) -> float:
        """Expected value."""
        return float(self.values @ self.probabilities)

    @property
    def sd(self) -> float:
        """Standard deviation."""
        return float(math.sqrt((self.values - self.mean) ** 2 @ self.probabilities))

    def p_at_most(self, value: float) -> float:
        """Probability that a uniformly placed schedule costs at most `value`."""
        return self._clip(self.probabilities[: np.searchsorted(self.values, value, "right")].sum())

    def p_at_least(self, value: float) -> float:
        """Probability that a uniformly placed schedule costs at least `value`."""
        return self._clip(self.probabilities[np.searchsorted(self.values, value, "left") :].sum())

    @staticmethod
    def _clip(p: float) -> float:
        return float(min(p, 1.0))

    @staticmethod
    def convolve(nulls: Sequence[Null]) -> Null:
        """Distribution of the sum of independent totals, one from each null (one per block)."""
        low, dense = 0, np.ones(1)
        for null in nulls:
            dense = np.convolve(dense, null._dense())
            low += int(null.values[0])
        return _from_dense(low, dense)

    def _dense(self) -> np.ndarray:
        dense = np.zeros(int(self.values[-1] - self.values[0]) + 1)
        dense[self.values - self.values[0]] = self.probabilities
        return dense


def _from_dense(low: int, weights: np.ndarray) -> Null:
    present = np.flatnonzero(weights)
    return Null(present + low, weights[present] / weights.sum())


def distribution(grid: Grid, n: int, cost: np.ndarray) -> Null:
    """Exact distribution of the total cost of a uniform schedule of n merges.

    cost: one non-negative integer per start step.
    ValueError when it is not that, or when the table over (start, total) would exceed 2 GB.
    """
    if not np.issubdtype(cost.dtype, np.integer) or (cost.size and cost.min() < 0):
        raise ValueError("the exact null needs a cost of non-negative integers.")
    if n == 0:
        return Null(np.zeros(1, dtype=np.int64), np.ones(1))
    cost = cost.astype(np.int64)
    _check_memory(grid, n, cost)
    low, high = grid.starts(n, 1)
    # Row i: ways in which merge k starts at low + i, by total cost less `base`.
    base, table = _shift(np.ones((high - low + 1, 1)), 0, cost[low : high + 1])
    scale = 0
    for k in range(2, n + 1):
        earlier = low
        low, high = grid.starts(n, k)
        offset = earlier - (low - grid.pause - grid.h_max)
        windows = _window_sums(table, offset, high - low + 1, grid.width + 1)
        base, table = _shift(windows, base, cost[low : high + 1])
        # A power of two is exact; without it, counts overflow beyond some 115 merges.
        exponent = math.frexp(float(table.max()))[1]
        table *= 2.0**-exponent
        scale += exponent
    weights = table.sum(axis=0)
    _check_total(grid, n, float(weights.sum()), scale)
    return _from_dense(base, weights)


def _check_total(grid: Grid, n: int, weight: float, scale: int) -> None:
    """ValueError when `weight * 2**scale` is not the number of schedules: some were lost."""
    exact = grid.count(n)
    shift = max(0, exact.bit_length() - 64)
    if abs(math.log2(weight) + scale - math.log2(exact >> shift) - shift) > 1e-9 * n:
        raise ValueError(
            f"the exact null of {n} merges leaves the range of float64; use moments()."
        )


def _check_memory(grid: Grid, n: int, cost: np.ndarray) -> None:
    totals, rows = 1, 0
    for k in range(1, n + 1):
        low, high = grid.starts(n, k)
        reach = cost[low : high + 1]
        totals += int(reach.max() - reach.min())
        rows = max(rows, high - low + 1 + 2 * grid.width)
    # The table, its window sums, and the prefix and suffix sums of blocks.
    needed = 4 * 8 * rows * totals
    if needed > _MEMORY_LIMIT_BYTES:
        raise ValueError(
            f"the exact null of {n} merges needs some {needed / 1e9:.0f} GB "
            f"({rows} starts by {totals} totals); use moments(), or a coarser cost."
        )


def _shift(windows: np.ndarray, base: int, cost: np.ndarray) -> tuple[int, np.ndarray]:
    """Move row i up by `cost[i]` totals; columns no schedule reaches are cut at both ends."""
    least = int(cost.min())
    width = windows.shape[1]
    moved = np.zeros((len(windows), width + int(cost.max()) - least))
    for i, by in enumerate((cost - least).tolist()):
        moved[i, by : by + width] = windows[i]
    present = np.flatnonzero(moved.any(axis=0))
    return base + least + int(present[0]), moved[:, present[0] : present[-1] + 1]


def _window_sums(table: np.ndarray, offset: int, count: int, size: int) -> np.ndarray:
    """Sums of `size` consecutive rows of a zero-padded table, for `count` windows in a row.

    Row r of `table` is row `r + offset` of the padded one; window i holds its rows i..i+size-1.
    """
    blocks = -(-(count + size - 1) // size)
    padded = np.zeros((blocks * size, table.shape[1]))
    begin, end = max(offset, 0), min(offset + len(table), len(padded))
    padded[begin:end] = table[begin - offset : end - offset]
    suffix = padded.reshape(blocks, size, -1)
    prefix = suffix.copy()
    for j in range(1, size):
        prefix[:, j] += prefix[:, j - 1]
        suffix[:, -j - 1] += suffix[:, -j]
    sums = padded[:count]
    # Window i is the suffix of its first block and the prefix of the next; at i = 0, size, 2*size,
    # ... the suffix is the whole window.
    ends = prefix.reshape(blocks * size, -1)[size - 1 : size - 1 + count]
    split = np.arange(count) % size != 0
    sums[split] += ends[split]
    return sums


def moments(grid: Grid, n: int, cost: np.ndarray) -> tuple[float, float]:
    """Mean and standard deviation of the total cost of a uniform schedule of n merges."""
    if n == 0:
        return 0.0, 0.0
    low, high = grid.excess(n)
    log_tilt = 0.0
    if n * math.log(grid.width + 1) >= _LOG_LIMIT:
        log_tilt = tilt_for_mean(grid.width, (low + high) / 2 / n)
    # Centred costs keep the variance from vanishing in the difference of two large numbers.
    centre = float(cost.mean())
    cost = cost - centre
    first = grid.starts(n, 1)
    start = np.arange(first[0], first[1] + 1)
    ways = np.exp(log_tilt * (start - grid.h_min)) / tilted_total(grid.width, log_tilt)
    table = _add_cost(np.stack([ways, 0 * ways, 0 * ways]), cost[first[0] : first[1] + 1])
    for k in range(2, n + 1):
        before, first = first, grid.starts(n, k)
        offset = before[0] - (first[0] - grid.pause - grid.h_max)
        windows = _tilted_windows(table, offset, first[1] - first[0] + 1, grid.width, log_tilt)
        table = _add_cost(windows, cost[first[0] : first[1] + 1])
    with np.errstate(divide="ignore"):
        log_ways = np.log(table[0]) - log_tilt * np.arange(table.shape[1])
    weights = np.exp(log_ways - log_ways.max())
    present = weights > 0
    by_end = table[1:, present] / table[0, present]
    mean, square = by_end @ weights[present] / weights[present].sum()
    return float(n * centre + mean), math.sqrt(max(0.0, square - mean**2))


def _add_cost(table: np.ndarray, cost: np.ndarray) -> np.ndarray:
    """Moments 0, 1, 2 after adding `cost[i]` to every total in column i."""
    ways, first, second = table
    return np.stack([ways, first + cost * ways, second + cost * (2 * first + cost * ways)])


def _tilted_windows(
    table: np.ndarray, offset: int, count: int, width: int, log_tilt: float
) -> np.ndarray:
    """Mean over x = 0..width, weighted by `t**x`, of `padded[:, i + width - x]`, for i < count.

    Column c of `table` is column c + offset of the zero-padded one.
    """
    size = width + 1
    padded = np.zeros((len(table), count + width))
    begin, end = max(offset, 0), min(offset + table.shape[1], padded.shape[1])
    padded[:, begin:end] = table[:, begin - offset : end - offset]
    total = tilted_total(width, log_tilt)
    backwards = log_tilt > 0  # t**x grows with x: run the recursion from the other end
    if backwards:
        padded = padded[:, ::-1]
    decay = -abs(log_tilt)
    sums = decayed_cumsum(padded, decay)
    sums[:, size:] -= math.exp(decay * size) * sums[:, :-size].copy()
    windows = sums[:, width:]
    if backwards:
        return windows[:, ::-1] * (math.exp(log_tilt * width) / total)
    return windows / total
