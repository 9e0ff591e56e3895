"""Controls: schedules placed by chance alone, drawn uniformly from the feasible set."""

import numpy as np
import pandas as pd

from safesync.placement import Corridor
from safesync.policies.schedule import budget_warnings, schedule_facts, schedule_rows
from safesync.workload.streams import stream


def matched_random(
    corridor: Corridor, budget: int, count: int, regime: str, seed: int
) -> pd.DataFrame:
    """Return ``count`` schedules of ``budget`` merges, uniform over all feasible ones.

    Rows: SCHEDULE schema, draws 0..count - 1, reason "control". Draw k depends on (regime, seed,
    budget, k) alone: every policy of that budget shares it, and more draws change no earlier one.

    Raises ValueError when the corridor has no schedule of that budget.
    """
    uniforms = np.empty((count, budget))
    for index in range(count):
        uniforms[index] = stream("matched_random", regime, seed, budget, index).random(budget)
    return schedule_rows(corridor, corridor.transform(budget, uniforms), "control")


def probe(corridor: Corridor, regime: str, seed: int) -> pd.DataFrame:
    """Return one schedule, uniform over the feasible set of *all* budgets, as draw 0.

    A budget is drawn with the share of schedules that have it, then a schedule. Its stream is the
    probe's own, so that calibration never sees a draw that a policy is judged against. Rows:
    SCHEDULE schema, reason "control".

    Raises ValueError when the corridor has no schedule at all.
    """
    budgets = list(corridor.grid.budgets())
    counts = [corridor.count(budget) for budget in budgets]
    if not sum(counts):
        raise ValueError("probe: the corridor has no feasible schedule")
    rng = stream("probe", regime, seed)
    shares = [count / sum(counts) for count in counts]
    budget = budgets[int(np.searchsorted(np.cumsum(shares[:-1]), rng.random(), side="right"))]
    return schedule_rows(corridor, corridor.sample(budget, 1, rng), "control")


def control_facts(control: str, corridor: Corridor, budget: int, regime: str, seed: int) -> dict:
    """Return the facts of a control's schedules, in the form of a policy's (JSON-serialisable)."""
    return schedule_facts(corridor, budget) | {
        "policy": control,
        "parameters": {},
        "deployable": False,
        "regime": regime,
        "seed": seed,
        "forced_share": 0.0,
        "warnings": budget_warnings(corridor, budget),
    }
