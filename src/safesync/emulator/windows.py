"""Merge windows: when the sidecar shares its machine, and with which phase of a merge."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pandas as pd


@dataclass(frozen=True)
class Windows:
    """Contended intervals `[start_s, end_s)` in ascending order; adjacent ones may touch.

    start_s, end_s: float64, shape (windows,), seconds since t0. phase: int64, shape (windows,),
    the entry of the model's `contention` that applies in each window (0: its first). A merge whose
    phases are told apart is several adjacent windows. stretch: float64, shape (windows,), by how
    much more each window contends than the model says (1: as much); None: 1 throughout.

    ValueError: shapes differ, a time is not finite, a window does not end after it starts, two
    windows overlap, or a stretch is not above 0.
    """

    start_s: np.ndarray
    end_s: np.ndarray
    phase: np.ndarray
    stretch: np.ndarray | None = None

    def __post_init__(self):
        if self.stretch is None:
            object.__setattr__(self, "stretch", np.ones(self.start_s.shape))
        if self.start_s.ndim != 1 or not self.start_s.shape == self.end_s.shape == self.phase.shape:
            raise ValueError(
                f"start_s, end_s and phase must be columns of one length, not of shapes "
                f"{self.start_s.shape}, {self.end_s.shape} and {self.phase.shape}."
            )
        if not (np.isfinite(self.start_s) & np.isfinite(self.end_s)).all():
            raise ValueError("a window's start or end is not finite; expected seconds since t0.")
        if self.stretch.shape != self.start_s.shape or not (self.stretch > 0).all():
            raise ValueError("a window's stretch is missing or not above 0; expected one each.")
        if (self.end_s <= self.start_s).any():
            at = int(np.flatnonzero(self.end_s <= self.start_s)[0])
            raise ValueError(
                f"window {at} ends at {self.end_s[at]:.10g} s, not after its start at "
                f"{self.start_s[at]:.10g} s."
            )
        if (self.start_s[1:] < self.end_s[:-1]).any():
            at = int(np.flatnonzero(self.start_s[1:] < self.end_s[:-1])[0])
            raise ValueError(
                f"window {at + 1} starts at {self.start_s[at + 1]:.10g} s, before window {at} ends "
                f"at {self.end_s[at]:.10g} s; expected ascending windows that do not overlap."
            )

    @classmethod
    def of(cls, start_s, end_s, phase=None) -> Windows:
        """Return windows from any array-likes; without `phase` all are of phase 0."""
        start_s = np.array(start_s, dtype=np.float64)
        phase = np.zeros(start_s.shape) if phase is None else phase
        return cls(start_s, np.array(end_s, dtype=np.float64), np.array(phase, dtype=np.int64))

    @classmethod
    def none(cls) -> Windows:
        """Return no windows: the nosync replay."""
        return cls.of([], [])

    @classmethod
    def planned(cls, start_s, merge_s: float) -> Windows:
        """Return windows of `merge_s` seconds each from the starts of a schedule."""
        start_s = np.array(start_s, dtype=np.float64)
        return cls.of(start_s, start_s + merge_s)

    @classmethod
    def measured(cls, merges: pd.DataFrame) -> Windows:
        """Return the windows that the rows of a MERGES table really occupied."""
        rows = merges.sort_values("start_s")
        return cls.of(rows["start_s"], rows["end_s"])

    def varied(self, spread: float, rng: np.random.Generator) -> Windows:
        """Return the windows as one repetition of the measurement could meet them.

        spread: standard deviation of the logarithm of a window's factor, which is drawn from a
        normal distribution, so that its mean is what it is here. The k-th window takes the k-th
        number of `rng`: generators of one seed give schedules of one budget the same luck.
        """
        drawn = np.exp(spread * rng.standard_normal(self.start_s.size) - spread**2 / 2)
        return replace(self, stretch=self.stretch * drawn)

    def hold(self, at_s: np.ndarray) -> np.ndarray:
        """Return which instants lie inside a window, bool of the shape of `at_s`."""
        started = np.searchsorted(self.start_s, at_s, side="right")
        return started > np.searchsorted(self.end_s, at_s, side="right")

    def overlap_s(self, start_s: np.ndarray, end_s: np.ndarray) -> np.ndarray:
        """Return the seconds that each interval `[start_s, end_s)` spends inside windows.

        start_s, end_s: shape (intervals,); the result too.
        """
        return self._contended_before(end_s) - self._contended_before(start_s)

    def _contended_before(self, at_s: np.ndarray) -> np.ndarray:
        total = np.concatenate([[0.0], np.cumsum(self.end_s - self.start_s)])
        started = np.searchsorted(self.start_s, at_s, side="right")
        inside = np.zeros(np.shape(at_s))
        last = started > 0
        end_s = self.end_s[started[last] - 1]
        inside[last] = np.minimum(at_s[last] - end_s, 0.0)
        return total[started] + inside
