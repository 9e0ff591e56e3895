"""The corridor and its feasible schedules (definitions: design section 6)."""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from safesync.placement import null as null_module
from safesync.placement.budget import Budget
from safesync.placement.grid import Grid, whole_steps
from safesync.placement.null import Null
from safesync.placement.optimum import cheapest_gaps
from safesync.placement.sampling import sampler


@dataclass(frozen=True)
class Corridor:
    """The bounds between which merges may be placed, and everything that is feasible in them.

    h_min, h_max: fewest and most inner steps since the last merge (`1 <= h_min <= h_max`).
    step_s: seconds of one inner step.
    merge_s: seconds of one merge window, a multiple of `step_s`.
    horizon_s: seconds of the run, a multiple of `step_s`.
    blocking: whether learners pause during a merge. If not, merge k starts at
        `sum(g_1..g_k) * step_s`, and `h_min` steps must last at least one merge window.

    A schedule of N merges is a sequence of N integer gaps. It is feasible when every gap lies in
    `h_min..h_max`, every merge ends inside the horizon, and no further merge was due: one forced
    `h_max` inner steps after the last would not end inside the horizon. With blocking learners that
    reads `end_N + h_max*step_s + merge_s > horizon_s`; with overlapped merges the gap already runs
    during the last merge, hence `end_N + h_max*step_s > horizon_s`.

    Three ways to say when a merge happens, all int64 or float64 arrays of shape (..., N): `gaps`
    (inner steps since the last merge), `steps` (inner steps since the start of the run) and
    `starts` (seconds). Costs are indexed by *start step*, the start in seconds divided by `step_s`:
    `start_steps`, an index into arrays of length `n_starts`.

    ValueError: a bound, duration or grid that makes no corridor, in one sentence with the figures.
    """

    h_min: int
    h_max: int
    step_s: float
    merge_s: float
    horizon_s: float
    blocking: bool = True

    def __post_init__(self) -> None:
        for name in ("step_s", "merge_s", "horizon_s"):
            value = getattr(self, name)
            if not (math.isfinite(value) and value > 0):
                raise ValueError(f"{name} = {value} must be a positive number of seconds.")
        for name in ("h_min", "h_max"):
            try:
                object.__setattr__(self, name, operator.index(getattr(self, name)))
            except TypeError:
                value = getattr(self, name)
                raise ValueError(f"{name} = {value!r} must be a whole number of steps.") from None
        if not 1 <= self.h_min <= self.h_max:
            raise ValueError(
                f"h_min = {self.h_min} and h_max = {self.h_max} must satisfy 1 <= h_min <= h_max."
            )
        merge = self.grid.merge
        if not self.blocking and self.h_min < merge:
            raise ValueError(
                f"h_min = {self.h_min} steps is shorter than a merge of {merge} steps "
                f"({self.merge_s:g} s / {self.step_s:g} s), so overlapped merge windows would "
                f"meet; with blocking=False h_min must be at least {merge}."
            )

    # --- the grid ---------------------------------------------------------------------------

    @functools.cached_property
    def grid(self) -> Grid:
        """The corridor in whole steps."""
        merge = whole_steps("merge_s", self.merge_s, self.step_s)
        horizon = whole_steps("horizon_s", self.horizon_s, self.step_s)
        return Grid(self.h_min, self.h_max, merge, horizon, merge if self.blocking else 0)

    @property
    def n_starts(self) -> int:
        """Number of start steps at which a merge can end inside the horizon: a cost's length."""
        return max(0, self.grid.last_start + 1)

    def steps(self, gaps: np.ndarray) -> np.ndarray:
        """Inner steps completed when each merge starts: the cumulative gaps, shape (..., N)."""
        return np.cumsum(_integers("gaps", gaps), axis=-1)

    def start_steps(self, gaps: np.ndarray) -> np.ndarray:
        """Start step of each merge, int64 of shape (..., N): the index into a cost."""
        steps = self.steps(gaps)
        return steps + self.grid.pause * np.arange(steps.shape[-1])

    def starts(self, gaps: np.ndarray) -> np.ndarray:
        """Start of each merge in seconds, shape (..., N): `sum(g_1..g_k)*step_s + (k-1)*merge_s`.

        With overlapped merges the second term falls away.
        """
        return self.start_steps(gaps) * self.step_s

    def gaps_from_starts(self, starts_s: np.ndarray) -> np.ndarray:
        """Gaps (inner steps, int64, shape (..., N)) of merges that start at `starts_s` seconds.

        The inverse of `starts`; it does not judge the gaps. ValueError for a start off the grid.
        """
        starts_s = np.asarray(starts_s, dtype=np.float64)
        ratio = starts_s / self.step_s
        steps = np.rint(ratio)
        on_grid = np.isclose(ratio, steps, rtol=1e-9, atol=1e-9)
        if not on_grid.all():
            at = tuple(int(i[0]) for i in np.nonzero(~on_grid))
            raise ValueError(
                f"merge {at[-1] + 1} of {starts_s.shape[-1]} starts at {starts_s[at]:.10g} s, "
                f"which is not a whole number of steps of step_s = {self.step_s:g} s."
            )
        gaps = np.diff(steps.astype(np.int64), axis=-1, prepend=0)
        gaps[..., 1:] -= self.grid.pause
        return gaps

    # --- the feasible set -------------------------------------------------------------------

    def feasible(self, schedule: np.ndarray) -> str | None:
        """None when the schedule is feasible, else one sentence: the merge and the violated bound.

        schedule: shape (N,). Integers are read as gaps in inner steps, floats as starts in seconds.
        """
        schedule = np.asarray(schedule)
        if schedule.ndim != 1:
            raise ValueError(f"a schedule has one dimension, not shape {schedule.shape}.")
        if not np.issubdtype(schedule.dtype, np.integer):
            try:
                schedule = self.gaps_from_starts(schedule)
            except ValueError as reason:
                return str(reason)
        return self._violation(schedule.astype(np.int64))

    def _violation(self, gaps: np.ndarray) -> str | None:
        n, grid = len(gaps), self.grid
        for k in np.flatnonzero((gaps < grid.h_min) | (gaps > grid.h_max))[:1]:
            bound = "below h_min" if gaps[k] < grid.h_min else "above h_max"
            limit = grid.h_min if gaps[k] < grid.h_min else grid.h_max
            return f"merge {k + 1} of {n} has a gap of {gaps[k]} steps, {bound} = {limit}."
        starts = self.start_steps(gaps)
        for k in np.flatnonzero(starts > grid.last_start)[:1]:
            end_s = (starts[k] + grid.merge) * self.step_s
            return (
                f"merge {k + 1} of {n} would end at {end_s:.10g} s, "
                f"after the horizon of {self.horizon_s:g} s."
            )
        forced = int(starts[-1]) + grid.pause + grid.h_max if n else grid.h_max
        if forced <= grid.last_start:
            begin_s, end_s = forced * self.step_s, (forced + grid.merge) * self.step_s
            after = f"after merge {n} of {n}" if n else "in the empty schedule"
            return (
                f"{after} one more merge is due: forced at h_max = {grid.h_max} steps, "
                f"at {begin_s:.10g} s, it would end at {end_s:.10g} s, "
                f"inside the horizon of {self.horizon_s:g} s."
            )
        return None

    def count(self, n: int) -> int:
        """Exact number of feasible schedules of n merges (a Python int, by inclusion-exclusion)."""
        return self.grid.count(self._whole(n))

    def sample(self, n: int, draws: int, rng: np.random.Generator) -> np.ndarray:
        """Schedules drawn uniformly from all feasible ones: gaps, int64 of shape (draws, n).

        Every draw takes the next n uniforms of `rng`, so fewer draws are a prefix of more.
        The method and its accuracy are in `safesync.placement.sampling`.
        ValueError when the corridor has no schedule of n merges.
        """
        self._require(n)
        return self.transform(n, rng.random((draws, n)))

    def transform(self, n: int, uniforms: np.ndarray) -> np.ndarray:
        """Schedules from uniforms in [0, 1) of shape (draws, n), one row each: gaps, (draws, n).

        Independent uniforms give uniform schedules. For draws that each have their own seed:
        `transform(n, np.stack([rng.random(n) for rng in rngs]))`, which builds long tables once.
        """
        self._require(n)
        uniforms = np.asarray(uniforms, dtype=np.float64)
        if uniforms.ndim != 2 or uniforms.shape[1] != n:
            raise ValueError(f"uniforms must have shape (draws, {n}), not {uniforms.shape}.")
        if n == 0:
            return np.empty(uniforms.shape, dtype=np.int64)
        low, high = self.grid.excess(n)
        return self.h_min + sampler(n, self.grid.width, low, high).excess(uniforms)

    def budgets(
        self, cost: np.ndarray | None = None, among: Iterable[int] | None = None
    ) -> list[Budget]:
        """The feasible numbers of merges, ascending, with the freedom that each leaves.

        cost: as for `optimum`; fills `Budget.null_sd`. among: only these numbers of merges.
        """
        if cost is not None:
            cost = self._cost(cost)
        feasible = self.grid.budgets()
        wanted = feasible if among is None else [n for n in feasible if n in set(among)]
        return [self._budget(n, cost) for n in wanted]

    def _budget(self, n: int, cost: np.ndarray | None) -> Budget:
        low, high = self.grid.excess(n)
        above, below = high, n * self.grid.width - low
        slack = min(above, below)
        return Budget(
            merges=n,
            slack_s=slack * self.step_s,
            freedom=slack / self.grid.merge,
            edge="h_min" if above <= below else "h_max",
            pinned=n == 0 or slack < n * self.grid.merge,
            corridor=self,
            cost=cost,
        )

    def fixed_period(self, gaps: np.ndarray) -> str | None:
        """A sentence when most gaps sit at exactly `h_min` or `h_max`, else None.

        Such a schedule is a fixed period in disguise: the corridor placed it, not a policy.
        gaps: any shape; "most" is more than half of all gaps.
        """
        gaps = _integers("gaps", gaps)
        at_min, at_max = int((gaps == self.h_min).sum()), int((gaps == self.h_max).sum())
        if 2 * (at_min + at_max) <= gaps.size:
            return None
        return (
            f"{at_min + at_max} of {gaps.size} gaps sit at a bound of the corridor "
            f"({at_min} at h_min = {self.h_min}, {at_max} at h_max = {self.h_max}): "
            f"a fixed period in disguise."
        )

    # --- costs ------------------------------------------------------------------------------

    def total_cost(self, gaps: np.ndarray, cost: np.ndarray) -> np.ndarray:
        """Sum over the merges of `cost[start step]`, shape (...) for gaps of shape (..., N)."""
        return self._cost(cost)[self.start_steps(gaps)].sum(axis=-1)

    def optimum(self, n: int, cost: np.ndarray) -> np.ndarray:
        """The cheapest feasible schedule of n merges: gaps, int64 of shape (n,).

        cost: shape (n_starts,), integers or floats, what a merge costs at each start step; a
        schedule costs the sum. Exact, by dynamic programming (float costs up to the rounding of
        their sums).
        Among equals the one with the earliest last merge is taken, then the earliest last but one,
        and so on.
        ValueError when n is infeasible, or the cost has the wrong length or a value not finite.
        """
        self._require(n)
        return cheapest_gaps(self.grid, n, self._cost(cost))

    def null(self, n: int, cost: np.ndarray) -> Null:
        """The exact distribution of a schedule's total cost when it is drawn uniformly.

        cost: shape (n_starts,), non-negative integers.
        ValueError as for `optimum`, and when the table over (start, total) would exceed 2 GB.
        """
        self._require(n)
        return null_module.distribution(self.grid, n, self._cost(cost))

    def moments(self, n: int, cost: np.ndarray) -> tuple[float, float]:
        """Mean and standard deviation of a uniform schedule's total cost, in `O(n * horizon)`.

        The first two moments of `null`, also where the whole distribution is out of reach: for
        float costs, and for long horizons. The variance is accurate to some 1e-14 of the square of
        n times the largest cost: a deviation that is truly 0 may come out as 1e-6.
        """
        self._require(n)
        return null_module.moments(self.grid, n, self._cost(cost))

    # --- checks -----------------------------------------------------------------------------

    def _whole(self, n: int) -> int:
        n = operator.index(n)
        if n < 0:
            raise ValueError(f"a number of merges cannot be negative: {n}.")
        return n

    def _require(self, n: int) -> None:
        feasible = self.grid.budgets()
        if self._whole(n) not in feasible:
            raise ValueError(
                f"no feasible schedule has {n} merges: a corridor of {self.h_min}..{self.h_max} "
                f"steps of {self.step_s:g} s, with merges of {self.merge_s:g} s "
                f"in {self.horizon_s:g} s, takes {feasible[0]} to {feasible[-1]}."
            )

    def _cost(self, cost: np.ndarray) -> np.ndarray:
        cost = np.asarray(cost)
        if cost.shape != (self.n_starts,):
            raise ValueError(
                f"cost has shape {cost.shape}, expected ({self.n_starts},): one value for each "
                f"start step from 0 to (horizon_s - merge_s) / step_s = {self.n_starts - 1}."
            )
        if not np.issubdtype(cost.dtype, np.number) or not np.isfinite(cost).all():
            raise ValueError("cost must hold finite numbers only.")
        return cost


def _integers(name: str, values: np.ndarray) -> np.ndarray:
    values = np.asarray(values)
    if values.size == 0:
        return values.astype(np.int64)
    if not np.issubdtype(values.dtype, np.integer):
        raise ValueError(f"{name} must be integers (inner steps), not {values.dtype}.")
    return values.astype(np.int64, copy=False)
