"""The evidence on one policy: its blocks, the tests on them, and the split of its effect."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd
from pydantic import BaseModel, ConfigDict, Field

from safesync.placement import Null
from safesync.protocol import document as doc
from safesync.protocol.blocks import Block, collect, is_policy
from safesync.protocol.gates import EMULATED_TIER, OVERLAP_TIER, REAL_TIER
from safesync.protocol.overlap import OverlapBlock, collect_overlap
from safesync.protocol.statistics import (
    Interval,
    PValue,
    bootstrap_interval,
    convolved_null_test,
    mean_interval,
    pooled_sd,
    randomization_test,
    sign_flip_test,
)

TIERS = (REAL_TIER, EMULATED_TIER, OVERLAP_TIER)  # strongest evidence first
TEN_MINUTES_S = 600.0


class Rules(BaseModel):
    """The values that verdicts rest on (config section ``protocol``); unknown names are refused."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    alpha: float = Field(0.05, gt=0, lt=1)
    min_gain: float = Field(0.01, ge=0, lt=1)  # of the tier's rate: 0.01 is 1 point
    min_blocks: int = Field(5, ge=1)
    lateness_limit: float = Field(0.02, gt=0)  # share of the SLO threshold
    loop_lag_limit_s: float = Field(0.1, gt=0)
    merge_seconds_tolerance: float = Field(0.05, gt=0)
    anchor_noise: float = Field(0.01, ge=0)  # violation rate between repeated captures
    interval_level: float = Field(0.90, gt=0, lt=1)
    transfer_delta: float = Field(0.10, ge=0)  # exposed requests take at least 1 + delta as long
    transfer_tolerance: float = Field(0.15, gt=0)  # of the emulator's effect, a share
    monte_carlo: int = Field(99_999, ge=1)
    monte_carlo_seed: int = 0


@dataclass(frozen=True, eq=False)
class Study:
    """What every case of a run shares.

    ``judged``: SCORES rows of role judge; ``overlap``: OVERLAP rows of it. ``thresholds_s``:
    regime -> SLO threshold, seconds. ``horizon_s``: length of a trace. ``replay_s``: wall time of
    one replay, seconds. ``calibration``: SCORES rows of the calibration captures.
    ``caveats``: regime -> how far the emulator is off there.
    """

    judged: pd.DataFrame
    overlap: pd.DataFrame
    rules: Rules
    thresholds_s: dict[str, float]
    horizon_s: float
    replay_s: float
    baselines: tuple[str, ...]
    calibration: pd.DataFrame
    caveats: dict[str, str]


@dataclass(frozen=True, eq=False)
class Case:
    """One policy's evidence in one (tier, regime).

    ``differences``: d_b per block (a rate; negative: better). ``bootstrap``: the BCa interval of
    their mean. ``better`` and ``worse``: blocked
    randomization test and sign-flip test of a gain and of a harm. ``spacing``: the same two of a
    gain over the policy's own gaps in other orders, and ``spacing_gains`` that gain per block, a
    rate.
    ``run_sd``: what one replay scatters by from run to run, a rate (see ``run_noise``). Without a
    block, or with a block that lacks draws, there are no differences, interval and tests.
    """

    tier: str
    regime: str
    policy: str
    blocks: Sequence[Block] | Sequence[OverlapBlock]
    differences: list[float]
    interval: Interval | None
    bootstrap: tuple[float, float] | None
    better: tuple[PValue, PValue] | None
    worse: tuple[PValue, PValue] | None
    spacing: tuple[PValue, PValue] | None = None
    spacing_gains: Sequence[float] = ()
    run_sd: float | None = None

    @property
    def gain(self) -> float | None:
        """Mean over blocks of draws minus policy, a rate; positive: fewer violations."""
        return None if self.interval is None else -self.interval.mean

    @property
    def spacing_gain(self) -> float | None:
        """Mean over blocks of the gain over the policy's own gaps in other orders, a rate."""
        return float(np.mean(self.spacing_gains)) if self.spacing_gains else None

    @property
    def room(self) -> float:
        """Mean over blocks of the most that any placement could gain, a rate; needs draws."""
        return float(np.mean([block.room for block in self.blocks]))

    @property
    def alike(self) -> int:
        """Blocks in which every placement comes out as the policy does, so none can be better."""
        return sum(block.alike for block in self.blocks)

    @property
    def draws(self) -> int | None:
        """K: the fewest draws that any block has; None where the null is exact and needs none."""
        if self.tier == OVERLAP_TIER:
            return None
        return min((len(block.draws) for block in self.blocks), default=0)

    @property
    def orders(self) -> int:
        """The fewest other orders of its gaps that any block measured; 0 where none takes that."""
        if self.tier != REAL_TIER or self.spacing is None:
            return 0
        return min(len(block.spacing) for block in self.blocks)

    @property
    def draw_rates(self) -> list[list[float]]:
        """Rates of the draws, block by block; none at all where the null is exact."""
        if self.tier == OVERLAP_TIER:
            return []
        return [block.draws["violation_rate"].tolist() for block in self.blocks]


def pairs_of(judged: pd.DataFrame, overlap: pd.DataFrame) -> list[tuple[str, str]]:
    """Return (tier, regime) in the rows of SCORES and OVERLAP, strongest tier first."""
    replayed = [tier for tier in TIERS if tier != OVERLAP_TIER]
    unknown = sorted(set(judged["tier"]) - set(replayed))
    if unknown:
        raise ValueError(f"unknown tier {unknown} of replays; expected one of {replayed}")
    found = {(str(t), str(r)) for t, r in zip(judged["tier"], judged["regime"], strict=True)}
    found |= {(OVERLAP_TIER, str(regime)) for regime in overlap["regime"]}
    return sorted(found, key=lambda pair: (TIERS.index(pair[0]), pair[1]))


def gather(study: Study, tier: str, regime: str, policy: str) -> Case:
    """Return the evidence on ``policy``, tested by the rules of the study."""
    blocks = blocks_of(study, tier, regime, policy)
    if blocks and tier == OVERLAP_TIER:
        return _exact_case(study.rules, regime, policy, blocks)
    if not blocks or any(block.draws.empty for block in blocks):
        return Case(tier, regime, policy, blocks, [], None, None, None, None)
    differences = [block.difference for block in blocks]
    rules = study.rules
    run_sd = run_noise(study.judged, regime) if tier == REAL_TIER else None
    # each difference is one run of the policy less the mean of one run of each draw
    runs = 1 + float(np.mean([1 / len(block.draws) for block in blocks]))
    least_sd = (run_sd or 0.0) * math.sqrt(runs)
    interval = mean_interval(differences, rules.interval_level, least_sd)
    case = Case(
        tier,
        regime,
        policy,
        blocks,
        differences,
        interval,
        bootstrap_interval(differences, rules.interval_level, seed=rules.monte_carlo_seed),
        better=_tests(rules, blocks, "draws", "less"),
        worse=_tests(rules, blocks, "draws", "greater"),
        run_sd=run_sd,
    )
    if any(block.spacing.empty for block in blocks):
        return case
    gains = [float(block.spacing["violation_rate"].mean()) - block.rate for block in blocks]
    return replace(
        case,
        spacing=_tests(rules, blocks, "spacing", "less"),
        spacing_gains=gains,
    )


def run_noise(judged: pd.DataFrame, regime: str) -> float | None:
    """Return the SD of one real replay's violation rate from run to run; None without repeats.

    ``judged``: SCORES rows of role judge. Further rows of a policy in a block are repeats of its
    one schedule; the spread of the valid ones is pooled over the policies and blocks of the regime.
    Runs without merges do not count: what merges do is the larger part of the noise.
    """
    policies = [policy for policy in judged["policy"].unique() if is_policy(policy)]
    mine = (judged["tier"] == REAL_TIER) & (judged["regime"] == regime)
    mine &= judged["valid"].astype(bool) & judged["policy"].isin(policies)
    schedules = judged[mine].groupby(["seed", "policy"], observed=True)["violation_rate"]
    return pooled_sd(rates.tolist() for _, rates in schedules)


def _tests(rules: Rules, blocks: Sequence[Block], control: str, side: str) -> tuple[PValue, PValue]:
    """Return the two parts of p_claim against the rows of ``control`` (draws or spacing)."""
    own = [block.rate for block in blocks]
    others = [getattr(block, control)["violation_rate"].tolist() for block in blocks]
    differences = [rate - float(np.mean(rates)) for rate, rates in zip(own, others, strict=True)]
    return (
        randomization_test(own, others, alternative=side, **_chance(rules)),
        sign_flip_test(differences, alternative=side, **_chance(rules)),
    )


def blocks_of(
    study: Study, tier: str, regime: str, policy: str
) -> Sequence[Block] | Sequence[OverlapBlock]:
    """Return the blocks of ``policy`` on ``tier``, by seed."""
    if tier == OVERLAP_TIER:
        return collect_overlap(study.overlap, regime, policy)
    return collect(study.judged, tier, regime, policy)


def _exact_case(rules: Rules, regime: str, policy: str, blocks: Sequence[OverlapBlock]) -> Case:
    """Return the evidence of the overlap tier: exact nulls, and matched spacing by its side."""
    costs = [block.overlap for block in blocks]

    def tests(nulls: Sequence[Null], side: str, exact: bool) -> tuple[PValue, PValue]:
        away = [cost - null.mean for cost, null in zip(costs, nulls, strict=True)]
        return (
            convolved_null_test(costs, nulls, alternative=side, exact=exact),
            sign_flip_test(away, alternative=side, **_chance(rules)),
        )

    nulls = [block.null for block in blocks]
    orders = [block.spacing for block in blocks]
    differences = [block.difference for block in blocks]
    return Case(
        OVERLAP_TIER,
        regime,
        policy,
        blocks,
        differences,
        mean_interval(differences, rules.interval_level),
        bootstrap_interval(differences, rules.interval_level, seed=rules.monte_carlo_seed),
        better=tests(nulls, "less", True),
        worse=tests(nulls, "greater", True),
        spacing=tests(orders, "less", all(block.policy["spacing_exact"] for block in blocks)),
        spacing_gains=[block.spacing.mean / block.requests - block.rate for block in blocks],
    )


def _chance(rules: Rules) -> dict:
    return {"monte_carlo": rules.monte_carlo, "seed": rules.monte_carlo_seed}


def describe_block(block: Block | OverlapBlock) -> doc.PolicyBlock | doc.OverlapBlock:
    """Return the block's figures as the verdict document lists them."""
    if isinstance(block, OverlapBlock):
        row = block.policy
        return doc.OverlapBlock(
            seed=block.seed,
            budget=int(row["budget"]),
            requests=block.requests,
            overlap=block.overlap,
            overlap_rate=block.rate,
            null_mean=float(row["null_mean"]),
            null_sd=float(row["null_sd"]),
            optimum=int(row["optimum"]),
            regret=int(row["regret"]),
            difference=block.difference,
            conditional_p=float(row["p_at_most"]),
        )
    row, rates = block.policy, block.draws["violation_rate"]
    excess = float(row["excess_rate"])
    facts = {
        "seed": block.seed,
        "budget": int(row["budget"]),
        "draws": len(rates),
        "violation_rate": block.rate,
        "excess_rate": excess if np.isfinite(excess) else None,
        "capture": str(row["capture"]),
        "spacing_violation_rate": (
            float(block.spacing["violation_rate"].mean()) if len(block.spacing) else None
        ),
    }
    if rates.empty:
        names = ("draws_violation_rate", "draws_low", "draws_high", "difference", "conditional_p")
        return doc.PolicyBlock(**facts, **dict.fromkeys(names))
    return doc.PolicyBlock(
        **facts,
        draws_violation_rate=block.control_rate,
        draws_low=float(rates.min()),
        draws_high=float(rates.max()),
        difference=block.difference,
        conditional_p=randomization_test([block.rate], [rates.tolist()]).p,
    )


def offered_10min(case: Case, horizon_s: float) -> float:
    """Return how many requests one sidecar is offered in 600 s, by the mean of the blocks."""
    return float(np.mean([block.requests for block in case.blocks])) / horizon_s * TEN_MINUTES_S


def decompose(study: Study, case: Case) -> list[doc.Decomposition]:
    """Split policy - baseline into budget and placement, over the blocks that hold both."""
    parts = []
    for baseline in study.baselines:
        if baseline == case.policy:
            continue
        others = {
            block.seed: block.rate for block in blocks_of(study, case.tier, case.regime, baseline)
        }
        shared = [b for b in case.blocks if b.seed in others and b.control_rate is not None]
        if not shared:
            continue
        placement = 100 * float(np.mean([block.difference for block in shared]))
        budget = 100 * float(np.mean([b.control_rate - others[b.seed] for b in shared]))
        parts.append(
            doc.Decomposition(
                baseline=baseline,
                blocks=len(shared),
                total_points=budget + placement,
                budget_points=budget,
                placement_points=placement,
            )
        )
    return parts
