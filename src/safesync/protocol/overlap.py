"""The tier "overlap": exact evidence from arrivals alone, no replay of the policy needed.

A schedule costs the requests that its merge windows meet in the block's capture without merges
(in flight at a window's start, or arriving inside it). That cost is compared with *every* feasible
schedule of as many merges (the exact null) and with every order of the schedule's own gaps
(matched spacing). It says nothing of latency: a window met is not a request made late.

Rates here are overlapped requests as a share of all requests of the block, so that gains are in
points as on the other tiers. A request that meets two windows counts twice.
"""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pandas as pd

from safesync.placement import Corridor, Null, overlap_cost
from safesync.tables.overlap import OVERLAP
from safesync.workload.streams import stream

IDENTITY = ("run", "regime", "kind", "seed", "role")
MAX_ORDERS = 100_000


@dataclass(frozen=True, eq=False)
class OverlapBlock:
    """One (regime, seed) as seen by one policy: ``policy`` is its row of OVERLAP."""

    policy: pd.Series

    @property
    def seed(self) -> int:
        """The block's seed."""
        return int(self.policy["seed"])

    @property
    def requests(self) -> int:
        """Requests of the block."""
        return int(self.policy["requests"])

    @property
    def overlap(self) -> int:
        """Requests that the policy's windows meet."""
        return int(self.policy["overlap"])

    @property
    def rate(self) -> float:
        """Overlapped requests of the policy, a share of all requests."""
        return self.overlap / self.requests

    @property
    def control_rate(self) -> float:
        """The same for the mean over all placements of its budget."""
        return float(self.policy["null_mean"]) / self.requests

    @property
    def difference(self) -> float:
        """d_b as a share of all requests (negative: better)."""
        return self.rate - self.control_rate

    @property
    def room(self) -> float:
        """The most that a placement could gain over the mean of all, a share of all requests."""
        return self.control_rate - int(self.policy["optimum"]) / self.requests

    @property
    def alike(self) -> bool:
        """Whether every placement of the budget meets as many requests."""
        return self.null.values.size == 1

    @cached_property
    def null(self) -> Null:
        """Overlap over all feasible schedules of the budget."""
        return _stored(self.policy, "null")

    @cached_property
    def spacing(self) -> Null:
        """Overlap over the orders of the policy's own gaps."""
        return _stored(self.policy, "spacing")


def overlap_rows(
    schedules: Mapping[str, np.ndarray],
    nosync_requests: pd.DataFrame,
    corridor: Corridor,
    *,
    identity: Mapping,
    facts: Mapping[str, Mapping] | None = None,
    max_orders: int = MAX_ORDERS,
) -> pd.DataFrame:
    """Return the OVERLAP rows of one block, in the order of ``schedules``.

    ``schedules``: policy id -> merge starts (N,), seconds. ``nosync_requests``: REQUESTS of the
    block's capture without merges. ``identity``: the values of ``IDENTITY``. ``facts``: policy id
    -> metadata of its schedule (``policy``, ``parameters``, ``forced_share``, ``inert_signals``
    are read where they stand). ``max_orders``: above so many distinct orders of the gaps a seeded
    sample of that many stands for them, the schedule's own order among it.

    Raises ValueError for a block without requests, an identity that lacks a field, a schedule
    outside the corridor, or a null beyond memory (``Corridor.null``).
    """
    missing = [name for name in IDENTITY if name not in identity]
    if missing:
        raise ValueError(f"the block's identity lacks {missing}")
    block = f"{identity['regime']}, seed {identity['seed']}"
    if nosync_requests.empty:
        raise ValueError(f"{block}: the capture without merges holds no request")
    cost = overlap_cost(
        nosync_requests["arrival_s"].to_numpy(), nosync_requests["done_s"].to_numpy(), corridor
    )
    nulls: dict[int, Null] = {}
    rows = []
    for policy, starts_s in schedules.items():
        starts_s = np.asarray(starts_s, dtype=np.float64)
        outside = corridor.feasible(starts_s)
        if outside is not None:
            raise ValueError(f"{policy}, {block}: the schedule leaves the corridor: {outside}")
        gaps = corridor.gaps_from_starts(starts_s)
        budget = len(gaps)
        if budget not in nulls:
            nulls[budget] = corridor.null(budget, cost)
        null = nulls[budget]
        rng = stream("spacing", identity["regime"], int(identity["seed"]), policy)
        orders, exact = gap_orders(gaps, max_orders, rng)
        costs, counts = np.unique(corridor.total_cost(orders, cost), return_counts=True)
        overlap = int(corridor.total_cost(gaps, cost))
        optimum = int(corridor.total_cost(corridor.optimum(budget, cost), cost))
        rows.append(
            {name: identity[name] for name in IDENTITY}
            | _facts(policy, (facts or {}).get(policy, {}))
            | {
                "budget": budget,
                "freedom": corridor.budgets(among=[budget])[0].freedom,
                "requests": len(nosync_requests),
                "overlap": overlap,
                "null_mean": null.mean,
                "null_sd": null.sd,
                "p_at_most": null.p_at_most(overlap),
                "optimum": optimum,
                "regret": overlap - optimum,
                "null_values": null.values,
                "null_probabilities": null.probabilities,
                "spacing_values": costs,
                "spacing_probabilities": counts / len(orders),
                "spacing_orders": len(orders),
                "spacing_exact": exact,
            }
        )
    return pd.DataFrame(rows, columns=OVERLAP.schema.names)


def gap_orders(gaps: np.ndarray, most: int, rng: np.random.Generator) -> tuple[np.ndarray, bool]:
    """Return orders of ``gaps`` (N,), shape (orders, N), and whether they are all distinct ones.

    Every order has the same sum, so it ends where the schedule ends and is as feasible. Each
    distinct order has as many permutations of the merges, so uniform over one is uniform over the
    other. Above ``most`` distinct orders: the given one and ``most - 1`` random ones, so that a
    tail share of them is the valid (r + 1) / (n + 1).
    """
    values, counts = np.unique(gaps, return_counts=True)
    distinct = math.factorial(len(gaps))
    for count in Counter(gaps.tolist()).values():
        distinct //= math.factorial(count)
    if distinct > most:
        random = rng.permuted(np.tile(gaps, (most - 1, 1)), axis=1)
        return np.vstack([gaps, random]), False
    orders, left = np.empty((1, 0), dtype=np.int64), counts[None, :]
    for _ in range(len(gaps)):
        row, value = np.nonzero(left)
        orders = np.column_stack([orders[row], values[value]])
        left = left[row]
        left[np.arange(len(row)), value] -= 1
    return orders, True


def collect_overlap(rows: pd.DataFrame, regime: str, policy: str) -> Sequence[OverlapBlock]:
    """Return the blocks of ``policy``, by seed; ``rows`` holds judge rows of OVERLAP only."""
    own = rows[(rows["regime"] == regime) & (rows["policy"] == policy)].sort_values("seed")
    return [OverlapBlock(row) for _, row in own.iterrows()]


def check_unique_blocks(rows: pd.DataFrame) -> None:
    """Raise ValueError when a policy stands twice in a block: it would count double."""
    twice = rows[rows.duplicated(["regime", "seed", "policy"])]
    if len(twice):
        first = twice.iloc[0]
        raise ValueError(
            f"the overlap table holds {len(twice)} rows twice, the first: {first['policy']}, "
            f"{first['regime']}, seed {first['seed']}"
        )


def _facts(policy: str, facts: Mapping) -> dict:
    error = facts.get("parameters", {}).get("forecast_error")
    return {
        "policy": policy,
        "method": facts.get("policy", policy),
        "forced_share": np.nan if (share := facts.get("forced_share")) is None else float(share),
        "inert_signals": ", ".join(facts.get("inert_signals", ())),
        "forecast_error": np.nan if error is None else float(error),
    }


def _stored(row: pd.Series, name: str) -> Null:
    return Null(
        np.asarray(row[f"{name}_values"], dtype=np.int64),
        np.asarray(row[f"{name}_probabilities"], dtype=np.float64),
    )
