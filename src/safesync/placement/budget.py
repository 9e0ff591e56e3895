"""What a budget leaves to place: one row of `Corridor.budgets`."""

from __future__ import annotations

import functools
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np

    from safesync.placement.corridor import Corridor


@dataclass(frozen=True, eq=False)
class Budget:
    """A feasible number of merges and the placement freedom that it leaves.

    merges: number of merges N.
    slack_s: seconds beyond the tightest feasible schedule, measured from the nearer end of the
        corridor: how far the training time of the N gaps can lie above N gaps of `h_min`, or below
        N gaps of `h_max`, whichever is less.
    freedom: `slack_s / merge_s`, how many merge windows fit into that slack.
    edge: the end of the corridor that is nearer, "h_min" or "h_max".
    pinned: the slack is less than one merge window per merge, so that on average a merge cannot
        move by its own length; such a budget has next to no placement to test. Always true of
        the empty schedule.
    """

    merges: int
    slack_s: float
    freedom: float
    edge: str
    pinned: bool
    corridor: Corridor = field(repr=False)
    cost: np.ndarray | None = field(default=None, repr=False)

    @functools.cached_property
    def count(self) -> int:
        """Exact number of feasible schedules, computed when first asked (slow for thousands)."""
        return self.corridor.count(self.merges)

    @functools.cached_property
    def null_sd(self) -> float | None:
        """Standard deviation of the cost under uniform placement, None without a cost.

        Exact up to float64, in `O(merges * horizon)`; computed when first asked.
        """
        if self.cost is None:
            return None
        return self.corridor.moments(self.merges, self.cost)[1]
