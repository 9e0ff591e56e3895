"""Controls: schedules placed by chance alone.

``matched_random`` and ``probe`` are uniform over the feasible set, ``matched_spacing`` over the
orders of a policy's own gaps.
"""

import math
from collections import Counter

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


def matched_spacing(
    corridor: Corridor, gaps: np.ndarray, count: int, regime: str, seed: int
) -> pd.DataFrame:
    """Return ``count`` schedules of the same gaps in random order, as draws 0..count - 1.

    gaps: shape (N,), inner steps, a feasible schedule. Every order of it is feasible: each gap lies
    in the corridor, and the last merge starts after their sum, whatever the order. A uniform
    permutation gives every *distinct* order the same chance, for each stands for as many
    permutations as its equal gaps can be exchanged. Draw k depends on (regime, seed, the gaps
    without their order, k) alone: policies with the same gaps share it, and more draws change no
    earlier one. Rows: SCHEDULE schema, reason "control".

    Raises ValueError when ``gaps`` are not feasible.
    """
    broken = corridor.feasible(gaps)
    if broken is not None:
        raise ValueError(f"matched_spacing: {broken}")
    ordered = np.sort(gaps)
    orders = np.empty((count, len(ordered)), dtype=np.int64)
    for index in range(count):
        rng = stream("matched_spacing", regime, seed, *ordered.tolist(), index)
        orders[index] = rng.permutation(ordered)
    return schedule_rows(corridor, orders, "control")


def arrangements(gaps: np.ndarray) -> int:
    """Return how many distinct orders ``gaps`` (shape (N,)) have: the multinomial coefficient."""
    counts = Counter(np.asarray(gaps).tolist()).values()
    return math.factorial(len(gaps)) // math.prod(math.factorial(count) for count in counts)


def spacing_facts(
    corridor: Corridor, gaps: np.ndarray, policy: str, regime: str, seed: int
) -> dict:
    """Return the facts of ``matched_spacing`` schedules of policy id ``policy``, JSON-serialisable.

    Those of ``control_facts``, ``spacing_of``, and ``arrangements``: capped at 2**53.
    """
    orders = min(arrangements(gaps), 2**53)
    facts = control_facts("matched_spacing", corridor, len(gaps), regime, seed)
    facts |= {"spacing_of": policy, "arrangements": orders}
    if orders == 1:
        facts["warnings"].append(
            f"the gaps of {policy} have one order only: it is its own matched spacing, and no "
            f"awareness of the load can be told from its rhythm."
        )
    return facts


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
