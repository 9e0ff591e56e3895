"""Gap sequences as rows of the schedule table, with the facts and warnings that go with them."""

from collections.abc import Sequence

import numpy as np
import pandas as pd

from safesync.placement import Corridor
from safesync.tables.schedule import SCHEDULE


def schedule_rows(
    corridor: Corridor,
    gaps: np.ndarray,
    reasons: Sequence[str] | str,
    scores: Sequence[float | None] | None = None,
) -> pd.DataFrame:
    """Return the SCHEDULE rows of ``gaps``, int64 of shape (draws, N), ordered by draw and merge.

    ``reasons`` is one string for all rows, or one per row; ``scores`` likewise, None for null.
    """
    draws, merges = gaps.shape
    rows = pd.DataFrame(
        {
            "draw": np.repeat(np.arange(draws, dtype=np.int32), merges),
            "merge": np.tile(np.arange(merges, dtype=np.int32), draws),
            "step": corridor.steps(gaps).ravel(),
            "start_s": corridor.starts(gaps).ravel(),
        }
    )
    rows["reason"] = pd.Series(
        [reasons] * len(rows) if isinstance(reasons, str) else list(reasons), dtype=object
    )
    rows["score"] = pd.Series([None] * len(rows) if scores is None else scores, dtype=np.float64)
    return rows[SCHEDULE.schema.names]


def repeated(rows: pd.DataFrame, count: int) -> pd.DataFrame:
    """Return a policy's schedule (draw 0) as ``count`` draws that are all the same."""
    draws = [rows.assign(draw=np.int32(draw)) for draw in range(count)]
    return pd.concat(draws, ignore_index=True)


def first_draw(rows: pd.DataFrame) -> pd.DataFrame:
    """Return the schedule of a policy, without its repeats."""
    return rows[rows["draw"] == 0]


def schedule_facts(corridor: Corridor, budget: int) -> dict:
    """Return the facts that any schedule of ``budget`` merges shares, JSON-serialisable.

    ``budget``; ``corridor`` (its bounds, s and steps); ``budget_range`` (fewest and most merges
    that the corridor takes); ``freedom`` (slack beyond the tightest feasible schedule, in merge
    windows) and ``freedom_s`` (s), both None for a budget outside the corridor.
    """
    feasible = corridor.grid.budgets()
    found = corridor.budgets(among=[budget])
    return {
        "budget": budget,
        "corridor": {
            "h_min": corridor.h_min,
            "h_max": corridor.h_max,
            "step_s": corridor.step_s,
            "merge_s": corridor.merge_s,
            "horizon_s": corridor.horizon_s,
            "blocking": corridor.blocking,
        },
        "budget_range": [feasible[0], feasible[-1]] if feasible else None,
        "freedom": found[0].freedom if found else None,
        "freedom_s": found[0].slack_s if found else None,
    }


def budget_warnings(corridor: Corridor, budget: int) -> list[str]:
    """Return the sentence that a budget without placement freedom earns, if it does."""
    found = corridor.budgets(among=[budget])
    if not found or not found[0].pinned:
        return []
    feasible = corridor.grid.budgets()
    return [
        f"budget {budget} (the corridor takes {feasible[0]} to {feasible[-1]}) is pinned near "
        f"{found[0].edge}: {found[0].slack_s:g} s of slack for {budget} merges of "
        f"{corridor.merge_s:g} s leave next to no placement to test."
    ]
