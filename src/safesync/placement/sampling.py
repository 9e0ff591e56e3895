"""Uniform sampling of feasible gap sequences, without rejection.

Write each gap as `h_min + x` with `0 <= x <= w`. Let `W_k(s)` be the number of ways in which k such
x sum to s, and `C_k` its cumulative sum. A uniform schedule has its total drawn with weight `W_n`
on the feasible totals, and then, walking back, the partial sum of k gaps is drawn with weight
`W_k` on the window `s_{k+1} - w .. s_{k+1}`. Each draw is one uniform number and one search in the
monotone `C_k`, whatever the window. `W_{k+1}(s) = C_k(s) - C_k(s - w - 1)`, so all tables take
`O(n * S)`.

Accuracy. Where the number of schedules stays below 2**53 the tables are exact integers. Beyond, a
schedule's probability is off by a relative error of some n * 1e-14 (tests hold the tables against
the exact count). Budgets nearer to `h_max` than to `h_min` are reflected, `x -> w - x`, so
that the tables never resolve the small upper tail of a large cumulative sum.

Long horizons. `(w+1)**n` leaves the range of float64 near n = 115 for a width of 384. Tables then
hold `C_k(s) * t**s / Z**k`, the cumulative weights under an exponential tilt t that puts the mean
of one gap where the budget puts it (uniformity given the total is untouched by a tilt), and are
searched by their logarithm. Of the n rows only about sqrt(n) are kept; the rows between two of
them are computed anew for each call, so a day with 1,800 merges needs some 300 MB, not 5 GB.
"""

from __future__ import annotations

import functools
import math

import numpy as np

# exp(650) = 1e282: the largest table entry, (w+1)**n, must stay below the float64 limit of 1e308.
_LOG_LIMIT = 650.0
# Bounds the working memory of a large sample; 2,048 to 131,072 run equally fast (measured).
_CHUNK = 16_384


@functools.lru_cache(maxsize=4)
def sampler(n: int, width: int, low: int, high: int) -> PlainSampler | TiltedSampler:
    """The sampler of n integers in `0..width` with a sum in `low..high`; the last four are kept."""
    kind = PlainSampler if n * math.log(width + 1) < _LOG_LIMIT else TiltedSampler
    return kind(n, width, low, high)


class _Sampler:
    """What both tables share: reflection, and the walk from the total back to the first gap."""

    def __init__(self, n: int, width: int, low: int, high: int) -> None:
        self.n, self.width = n, width
        self.reflected = low + high > n * width
        self.low, self.high = (n * width - high, n * width - low) if self.reflected else (low, high)

    def _within(self, k: int, last: np.ndarray) -> np.ndarray:
        """Cap at the largest sum of k values, beyond which rounding may leave a trace of weight."""
        return last if k * self.width >= self.high else np.minimum(last, k * self.width)

    def _unreflect(self, excess: np.ndarray) -> np.ndarray:
        return self.width - excess if self.reflected else excess


class PlainSampler(_Sampler):
    """Tables of plain cumulative counts; row k holds `C_k(-1), C_k(0), ..., C_k(high)`."""

    def __init__(self, n: int, width: int, low: int, high: int) -> None:
        super().__init__(n, width, low, high)
        ways = np.zeros(self.high + 1)
        ways[0] = 1.0
        self.rows = []
        for _ in range(n):
            cumulative = np.cumsum(ways)
            ways = cumulative.copy()
            ways[width + 1 :] -= cumulative[: -width - 1]
            self.rows.append(np.concatenate([[0.0], np.cumsum(ways)]))

    def excess(self, uniforms: np.ndarray) -> np.ndarray:
        """Map uniforms (draws, n) in [0, 1) to excesses (draws, n) over `h_min`, int64."""
        out = np.empty(uniforms.shape, dtype=np.int64)
        for begin in range(0, len(uniforms), _CHUNK):
            part = slice(begin, begin + _CHUNK)
            out[part] = self._walk(uniforms[part].T).T
        return self._unreflect(out)

    def _walk(self, uniforms: np.ndarray) -> np.ndarray:
        sums = np.zeros((self.n + 1, uniforms.shape[1]), dtype=np.int64)
        below = np.full(uniforms.shape[1], self.low, dtype=np.int64)
        last = np.full(uniforms.shape[1], self.high, dtype=np.int64)
        for k in range(self.n, 0, -1):
            row = self.rows[k - 1]
            last = self._within(k, last)
            top = row[last + 1]
            target = top - uniforms[k - 1] * (top - row[below])
            # Row index i holds C(i - 1); rounding may land one step outside the window.
            found = np.searchsorted(row, target) - 1
            last = np.minimum(np.maximum(found, below), last)
            sums[k] = last
            below = np.maximum(last - self.width, 0)
        return np.diff(sums, axis=0)


class TiltedSampler(_Sampler):
    """Tables under an exponential tilt, searched by logarithm, with checkpointed rows."""

    def __init__(self, n: int, width: int, low: int, high: int) -> None:
        super().__init__(n, width, low, high)
        mean = (self.low + self.high) / 2 / n
        self.log_tilt = min(0.0, tilt_for_mean(width, mean))
        self.stride = math.isqrt(n) + 1
        self.checkpoints = {}
        row = np.exp(self.log_tilt * np.arange(self.high + 1))  # C_0(s) = 1 for every s >= 0
        for k in range(n + 1):
            if k % self.stride == 0:
                self.checkpoints[k] = row
            row = self._next(row)

    def _next(self, row: np.ndarray, base: int = 0) -> np.ndarray:
        """Row k + 1 from row k, whose first entry is `C_k(base)`.

        Nothing lies below 0. For a base above it, the `width + 1` entries that would need what lies
        below are dropped, and the new row counts from there: the searches use differences only.
        """
        step = self.width + 1
        ways = row.copy()
        ways[step:] -= math.exp(self.log_tilt * step) * row[:-step]
        np.maximum(ways, 0.0, out=ways)
        if base > 0:
            ways = ways[step:]
        return decayed_cumsum(ways, self.log_tilt) / tilted_total(self.width, self.log_tilt)

    def _block(self, first: int, lowest: int, highest: int) -> list[tuple[int, np.ndarray]]:
        """Rows `first, first + 1, ...` up to the next checkpoint, as (base, row).

        lowest, highest: the partial sums in question in the last of them; the rows hold what the
        search for those and, going back, for all smaller partial sums can ask for.
        """
        count = min(self.stride, self.n + 1 - first)
        base = max(0, lowest - 1 - (count - 1) * (self.width + 1))
        block = [(base, self.checkpoints[first][base : highest + 1])]
        for _ in range(count - 1):
            base, row = block[-1]
            block.append((base + self.width + 1 if base else 0, self._next(row, base)))
        return block

    def _logs(self, base: int, row: np.ndarray, lowest: int, highest: int) -> np.ndarray:
        """`log C_k(s) + constant` for s = lowest - 1 .. highest, monotone."""
        sums = np.arange(max(lowest - 1, 0), highest + 1)
        with np.errstate(divide="ignore"):
            logs = np.log(row[sums[0] - base : highest + 1 - base]) - self.log_tilt * sums
        if lowest == 0:
            logs = np.concatenate([[-np.inf], logs])
        return np.maximum.accumulate(logs, out=logs)

    def excess(self, uniforms: np.ndarray) -> np.ndarray:
        """Map uniforms (draws, n) in [0, 1) to excesses (draws, n) over `h_min`, int64."""
        draws = len(uniforms)
        sums = np.zeros((self.n + 1, draws), dtype=np.int64)
        if draws == 0:
            return np.zeros((0, self.n), dtype=np.int64)
        below = np.full(draws, self.low, dtype=np.int64)
        last = np.full(draws, self.high, dtype=np.int64)
        for first in sorted(self.checkpoints, reverse=True):
            block = self._block(first, int(below.min()), int(last.max()))
            while block and first + len(block) > 1:
                k = first + len(block) - 1
                last = self._within(k, last)
                lowest = int(below.min())
                logs = self._logs(*block.pop(), lowest, int(last.max()))
                last = self._search(logs, lowest, below, last, uniforms[:, k - 1])
                sums[k] = last
                below = np.maximum(last - self.width, 0)
        return self._unreflect(np.diff(sums, axis=0).T)

    @staticmethod
    def _search(
        logs: np.ndarray, lowest: int, below: np.ndarray, last: np.ndarray, uniforms: np.ndarray
    ) -> np.ndarray:
        # Entry i of logs belongs to the partial sum lowest - 1 + i.
        top = logs[last - lowest + 1]
        share = np.exp(logs[below - lowest] - top)
        target = top + np.log1p(-uniforms * (1.0 - share))
        found = np.searchsorted(logs, target) + lowest - 1
        return np.minimum(np.maximum(found, below), last)


def tilt_for_mean(width: int, mean: float) -> float:
    """Log of the tilt t for which weights `t**x` on `0..width` have the given mean."""
    from scipy.optimize import brentq  # only long horizons need it; the import takes 0.2 s

    x = np.arange(width + 1)

    def surplus(log_tilt: float) -> float:
        log_weights = log_tilt * x
        weights = np.exp(log_weights - log_weights.max())
        return float(weights @ x / weights.sum()) - mean

    if width == 0 or abs(mean - width / 2) < 1e-9 * width:
        return 0.0
    limit = 30.0
    if surplus(-limit) >= 0:
        return -limit
    if surplus(limit) <= 0:
        return limit
    return float(brentq(surplus, -limit, limit))


def tilted_total(width: int, log_tilt: float) -> float:
    """`sum of t**x over x = 0..width`."""
    return float(np.exp(log_tilt * np.arange(width + 1)).sum())


def decayed_cumsum(values: np.ndarray, log_tilt: float) -> np.ndarray:
    """`y[i] = values[i] + t * y[i-1]` along the last axis, for a tilt t <= 1."""
    if log_tilt == 0.0:
        return np.cumsum(values, axis=-1)
    from scipy.signal import lfilter  # only long horizons need it; the import takes 0.4 s

    return lfilter([1.0], [1.0, -math.exp(log_tilt)], values, axis=-1)
