"""A block's share of the evidence on one policy: its row, its draws, its capture."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pandas as pd

NOSYNC = "nosync"
CONTROL = "matched_random"
SPACING = "matched_spacing"
PROBE = "probe"
CAPTURES = (NOSYNC, PROBE)

_CONTROLS = "matched_"  # no policy id begins so
_KEY = ["tier", "regime", "seed", "policy", "control_of", "budget", "draw"]


@dataclass(frozen=True, eq=False)
class Block:
    """One (regime, seed) on one tier, as seen by one policy.

    ``own``: its SCORES row, as a frame of one row. ``draws``: the matched-random rows of its own
    budget (K rows, possibly none). ``spacing``: the rows of its own gaps in other orders (possibly
    none). ``nosync``: the capture's rows (more than one when an anchor was repeated).
    ``control_budgets``: the budgets for which the block has any matched-random row.
    """

    seed: int
    own: pd.DataFrame
    draws: pd.DataFrame
    spacing: pd.DataFrame
    nosync: pd.DataFrame
    control_budgets: tuple[int, ...]

    @property
    def policy(self) -> pd.Series:
        """The policy's SCORES row."""
        return self.own.iloc[0]

    @property
    def requests(self) -> int:
        """Requests offered in the block."""
        return int(self.policy["requests"])

    @property
    def rate(self) -> float:
        """The policy's violation rate."""
        return float(self.policy["violation_rate"])

    @property
    def control_rate(self) -> float | None:
        """The mean violation rate of its draws; None without one."""
        return float(self.draws["violation_rate"].mean()) if len(self.draws) else None

    @property
    def room(self) -> float | None:
        """The most that a placement could gain over its draws, a rate: all that they violate."""
        return self.control_rate

    @property
    def alike(self) -> bool:
        """Whether every draw comes out as the policy does; False without a draw."""
        rates = self.draws["violation_rate"]
        return bool(len(rates)) and bool((rates == self.policy["violation_rate"]).all())

    @property
    def replays(self) -> pd.DataFrame:
        """Every SCORES row that the evidence rests on: capture, policy, controls."""
        parts = (self.nosync, self.own, self.draws, self.spacing)
        frames = [rows for rows in parts if len(rows)]
        return pd.concat(frames, ignore_index=True)

    @property
    def difference(self) -> float:
        """d_b: the policy's violation rate minus the mean of its draws (negative: better).

        The excess differs from the rate by the capture of the same block, which cancels.
        """
        return self.rate - self.control_rate


def is_control(policy: str) -> bool:
    """Return whether replays of this name are a control's, in a row or in a path."""
    return policy.startswith(_CONTROLS)


def is_policy(policy: str) -> bool:
    """Return whether replays of this name are a policy's: neither a capture's nor a control's."""
    return policy not in CAPTURES and not is_control(policy)


def replayed_policy(facts: Mapping, path_policy: str) -> tuple[str, str | None]:
    """Return ``policy`` and ``control_of`` of a replay's row of SCORES.

    A control's path names a budget, or the policy whose gaps it permutes, as well. ``facts``: of
    its schedule. ``path_policy``: the policy in the replay's paths.
    """
    if is_control(path_policy):
        return facts["policy"], facts.get("spacing_of")
    return path_policy, None


def judged_policy(path_policy: str) -> str:
    """Return under which name a block's replays stand side by side, from that in their paths.

    Matched random has one name for all budgets, matched spacing one for each policy.
    """
    return CONTROL if path_policy.startswith(f"{CONTROL}_") else path_policy


def told_apart(scores: pd.DataFrame) -> pd.DataFrame:
    """Return SCORES rows under the names of ``judged_policy``: spacing says whose gaps it has."""
    names = scores["policy"].astype(object).copy()
    orders = names == SPACING
    names[orders] = [f"{SPACING}_{policy}" for policy in scores.loc[orders, "control_of"]]
    return scores.assign(policy=names)


def check_unique(scores: pd.DataFrame) -> None:
    """Raise ValueError when a replay stands twice: it would count double in every mean."""
    twice = scores[scores.duplicated(_KEY)]
    if len(twice):
        found = ", ".join(f"{name} {twice.iloc[0][name]}" for name in _KEY)
        raise ValueError(f"scores hold {len(twice)} replays twice, the first: {found}")


def collect(scores: pd.DataFrame, tier: str, regime: str, policy: str) -> Sequence[Block]:
    """Return the blocks of ``policy``, by seed; ``scores`` holds judge rows only.

    Of a policy with repeated replays in a block the lowest ``draw`` is the evidence: a mean of
    repeats is not exchangeable with single draws.
    """
    whose = (scores["policy"] != SPACING) | (scores["control_of"] == policy)
    here = scores[(scores["tier"] == tier) & (scores["regime"] == regime) & whose]
    blocks = []
    for seed, rows in here.groupby("seed", sort=True):
        own = rows[rows["policy"] == policy].sort_values("draw")
        if own.empty:
            continue
        controls = rows[rows["policy"] == CONTROL]
        budget = own["budget"].iloc[0]
        blocks.append(
            Block(
                seed=int(seed),
                own=own.head(1),
                draws=controls[controls["budget"] == budget].sort_values("draw"),
                spacing=rows[rows["policy"] == SPACING].sort_values("draw"),
                nosync=rows[rows["policy"] == NOSYNC].sort_values("draw"),
                control_budgets=tuple(sorted({int(b) for b in controls["budget"]})),
            )
        )
    return blocks
