"""The cheapest feasible schedule, by dynamic programming with a sliding-window minimum.

`f_k(t)`, the least cost of k merges of which the last starts at grid step t, is
`cost(t) + min f_{k-1}` over the window of starts one gap earlier. Rows hold only starts that occur
in a feasible schedule. Of n rows about `2 * sqrt(n)` are in memory at once: every sqrt(n)-th is
kept, and the rows between two of them are computed again on the way back.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
from scipy.ndimage import minimum_filter1d

from safesync.placement.grid import Grid

# Below this many merges every row is kept: memory is no concern and nothing is computed twice.
_KEEP_ALL = 64
_EXACT = 2**53


def cheapest_gaps(grid: Grid, n: int, cost: np.ndarray) -> np.ndarray:
    """Gaps (n,), int64, of the cheapest schedule; ties: the earliest last merge, and so on back.

    cost: one finite value per start step. ValueError: integers too large to add exactly.
    """
    if np.issubdtype(cost.dtype, np.integer) and n:
        largest = max(int(cost.max()), -int(cost.min()))
        if n * largest >= _EXACT:
            raise ValueError(
                f"costs as large as {largest} cannot be added exactly over {n} merges; "
                f"scale them so that their sum stays below 2**53."
            )
    cost = cost.astype(np.float64)
    starts = np.empty(n, dtype=np.int64)
    window = None
    for k, row in _rows_backwards(grid, n, cost):
        first = grid.starts(n, k)[0]
        low, high = (0, len(row) - 1) if window is None else (window[0] - first, window[1] - first)
        low, high = max(low, 0), min(high, len(row) - 1)
        starts[k - 1] = first + low + int(np.argmin(row[low : high + 1]))
        earlier = starts[k - 1] - grid.pause
        window = (earlier - grid.h_max, earlier - grid.h_min)
    gaps = np.diff(starts, prepend=0)
    gaps[1:] -= grid.pause
    return gaps


def _rows_backwards(grid: Grid, n: int, cost: np.ndarray) -> Iterator[tuple[int, np.ndarray]]:
    stride = n if n <= _KEEP_ALL else math.isqrt(n) + 1
    kept: dict[int, np.ndarray] = {}
    row = None
    for k in range(1, n + 1):
        row = _row(grid, n, k, cost, row)
        if (k - 1) % max(stride, 1) == 0:
            kept[k] = row
    for begin in sorted(kept, reverse=True):
        block = [kept.pop(begin)]
        for k in range(begin + 1, min(begin + stride, n + 1)):
            block.append(_row(grid, n, k, cost, block[-1]))
        while block:
            yield begin + len(block) - 1, block.pop()


def _row(grid: Grid, n: int, k: int, cost: np.ndarray, before: np.ndarray | None) -> np.ndarray:
    low, high = grid.starts(n, k)
    own = cost[low : high + 1]
    if before is None:
        return own.copy()
    # Window of the earlier starts for start t: t - pause - h_max .. t - pause - h_min.
    first = grid.starts(n, k - 1)[0]
    offset = first - (low - grid.pause - grid.h_max)
    size = grid.width + 1
    padded = np.full(len(own) + grid.width, np.inf)
    begin, end = max(offset, 0), min(offset + len(before), len(padded))
    padded[begin:end] = before[begin - offset : end - offset]
    least = minimum_filter1d(padded, size, mode="constant", cval=np.inf, origin=-(size // 2))
    return own + least[: len(own)]
