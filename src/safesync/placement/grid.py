"""The corridor in whole steps: the integer arithmetic that the rest of the room rests on.

Two clocks meet here. *Inner steps* are what learners do; *grid steps* are wall time divided by
`step_s`. They differ by the pauses: learners that block during a merge do no inner step in it.
With `pause` the grid steps that a merge adds between two starts (`merge` when learners block,
0 when merges overlap training), merge k of a schedule with gaps `g_1..g_N` starts at grid step
`g_1 + ... + g_k + (k-1)*pause` (design section 6).
"""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True)
class Grid:
    """A corridor on its step grid; every field is a whole number of steps."""

    h_min: int
    h_max: int
    merge: int
    horizon: int
    pause: int

    @property
    def width(self) -> int:
        """Inner steps by which one gap may exceed `h_min`."""
        return self.h_max - self.h_min

    @property
    def last_start(self) -> int:
        """The last grid step at which a merge can start and still end inside the horizon."""
        return self.horizon - self.merge

    def final_starts(self) -> tuple[int, int]:
        """First and last grid step at which the *last* merge may start.

        It must end inside the horizon, and one more merge, forced `h_max` inner steps later,
        must not: `start_N + pause + h_max > last_start`.
        """
        return self.last_start - self.pause - self.h_max + 1, self.last_start

    def excess(self, n: int) -> tuple[int, int]:
        """Lowest and highest sum of `g_k - h_min` over a feasible schedule of n merges.

        Every sum between them occurs. The budget is infeasible when the first exceeds the second.
        """
        if n == 0:
            return 0, 0 if self.h_max > self.last_start else -1
        tightest = n * self.h_min + (n - 1) * self.pause
        first, last = self.final_starts()
        return max(0, first - tightest), min(n * self.width, last - tightest)

    def starts(self, n: int, k: int) -> tuple[int, int]:
        """First and last grid step at which merge k = 1..n of a feasible schedule of n starts.

        Every grid step between them occurs in some feasible schedule (for a feasible n).
        """
        first, last = self.final_starts()
        shortest, longest = self.h_min + self.pause, self.h_max + self.pause
        later = n - k
        low = max(k * shortest - self.pause, first - later * longest)
        high = min(k * longest - self.pause, last - later * shortest)
        return low, high

    def budgets(self) -> range:
        """The numbers of merges that have a feasible schedule (they are contiguous)."""
        most = max(0, (self.last_start + self.pause) // (self.h_min + self.pause))
        # The first gap must reach far enough that the last merge can be a final one.
        due = self.last_start - self.h_max + 1
        fewest = max(0, -(-due // (self.h_max + self.pause)))
        return range(fewest, most + 1)

    def count(self, n: int) -> int:
        """Exact number of feasible schedules of n merges, by inclusion-exclusion.

        Sequences of n integers in `0..w` whose sum is at most s number
        `sum_j (-1)^j C(n, j) C(s - j(w+1) + n, n)` (stars and bars with one free slack variable);
        the terminal rule makes the sum an interval, hence a difference of two such terms.
        """
        low, high = self.excess(n)
        if low > high:
            return 0
        if n == 0:
            return 1
        if low + high > n * self.width:  # x -> w - x maps the set onto itself; fewer terms to add
            low, high = n * self.width - high, n * self.width - low
        return _bounded_sums(n, self.width, high) - _bounded_sums(n, self.width, low - 1)


def _bounded_sums(n: int, width: int, most: int) -> int:
    """Number of sequences of n integers in `0..width` whose sum is at most `most`."""
    if most < 0:
        return 0
    total, sign, choices = 0, 1, 1
    for j in range(min(n, most // (width + 1)) + 1):
        total += sign * choices * math.comb(most - j * (width + 1) + n, n)
        choices = choices * (n - j) // (j + 1)
        sign = -sign
    return total


def whole_steps(name: str, seconds: float, step_s: float) -> int:
    """`seconds / step_s` as an integer; ValueError when it is none, float rounding aside."""
    ratio = seconds / step_s
    steps = round(ratio)
    if math.isclose(ratio, steps, rel_tol=1e-9, abs_tol=1e-9):
        return steps
    below = math.floor(ratio)
    nearest = " and ".join(f"{n} steps ({n * step_s:.10g} s)" for n in (below, below + 1))
    raise ValueError(
        f"{name} = {seconds:g} s is not a whole number of steps of step_s = {step_s:g} s: "
        f"{seconds:g} / {step_s:g} = {ratio:.10g}; the nearest: {nearest}."
    )
