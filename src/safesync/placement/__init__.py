"""Placement: where the merges of a budget may go, which placements are best, and what chance gives.

The room answers questions about *schedules* alone; it knows nothing of policies, requests tables
or engines, and imports nothing else of safesync.

- `Corridor`: the exact feasible set of a corridor on its step grid: count, uniform sampling,
  the cheapest schedule, the exact null distribution of an additive cost, and the budgets with
  the freedom that each leaves.
- `overlap_cost`: what a merge window costs at every possible start, in overlapped requests.
- `Budget`, `Null`: what `Corridor.budgets` and `Corridor.null` return.
"""

from safesync.placement.budget import Budget
from safesync.placement.corridor import Corridor
from safesync.placement.null import Null
from safesync.placement.overlap import overlap_cost

__all__ = ["Budget", "Corridor", "Null", "overlap_cost"]
