"""Blocks with bursts and the schedules of policies whose verdict on the overlap tier is known."""

import numpy as np
import pandas as pd

from safesync.placement import Corridor, overlap_cost
from safesync.protocol.overlap import overlap_rows

CORRIDOR = Corridor(h_min=8, h_max=32, step_s=1.0, merge_s=4.0, horizon_s=200.0)
PERIOD_S = 20.0
BUDGET = 8
FACTS = {
    "oracle": {
        "policy": "wa_offline",
        "parameters": {},
        "forced_share": 0.0,
        "inert_signals": ["network", "checkpoint"],
    }
}


def requests_of(seed: int, *, locked: bool) -> pd.DataFrame:
    """Return requests of 1 per second, and 8 per second in bursts of 6 s; each stays 2 s.

    ``locked``: bursts begin at multiples of ``PERIOD_S``, the same in every block; else 8 of them
    at random times.
    """
    rng = np.random.default_rng(seed)
    at = np.sort(rng.uniform(0, CORRIDOR.horizon_s, rng.poisson(8 * CORRIDOR.horizon_s)))
    begins = np.arange(0, 200, PERIOD_S) if locked else rng.uniform(0, 200, 8)
    busy = ((at[:, None] >= begins) & (at[:, None] < begins + 6)).any(axis=1)
    at = at[busy | (rng.uniform(size=at.size) < 1 / 8)]
    return pd.DataFrame({"arrival_s": at, "done_s": at + 2.0})


def block(seed: int, *, locked: bool = False, run: str = "planted", **changes) -> pd.DataFrame:
    """Return the OVERLAP rows of one block.

    ``oracle``: the optimum; ``seeker``: the dearest schedule; ``blind``: a random one; ``even``: a
    period of ``PERIOD_S``, whose windows end where locked bursts begin; ``fixed_h_12``: a baseline
    with another budget. ``changes`` are schedules by policy, merge starts in seconds.
    """
    requests = requests_of(seed, locked=locked)
    cost = overlap_cost(*(requests[name].to_numpy() for name in ("arrival_s", "done_s")), CORRIDOR)
    rng = np.random.default_rng(seed + 1000)
    gaps = {
        "oracle": CORRIDOR.optimum(BUDGET, cost),
        "seeker": CORRIDOR.optimum(BUDGET, -cost),
        "blind": CORRIDOR.sample(BUDGET, 1, rng)[0],
        "even": np.full(9, 16),
        "fixed_h_12": np.full(12, 12),
    }
    schedules = {policy: CORRIDOR.starts(values) for policy, values in gaps.items()} | changes
    return overlap_rows(
        schedules,
        requests,
        CORRIDOR,
        identity={"run": run, "regime": "bursty", "kind": "bursty", "seed": seed, "role": "judge"},
        facts=FACTS,
        max_orders=5000,
    )


def overlap_study(*, blocks: int = 6, first: int = 0, locked: bool = False) -> pd.DataFrame:
    """Return the OVERLAP rows of a study of ``blocks`` blocks."""
    return pd.concat(
        [block(seed, locked=locked) for seed in range(first, first + blocks)], ignore_index=True
    )
