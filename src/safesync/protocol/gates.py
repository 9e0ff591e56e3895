"""The gates of the protocol: small pure functions from score rows to a Gate.

A gate that ``refuses`` and fails makes the verdict REFUSED; one that does not refuse withholds
EARNED only. ``passed`` is None when the gate cannot be computed (yet): the best verdict is then
PROVISIONAL. It is None too where the gate has no object on a tier (``applies`` False): that leaves
nothing open. A figure exactly at its limit passes.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import pandas as pd

from safesync.protocol.blocks import Block

REAL_TIER = "vllm"
OVERLAP_TIER = "overlap"
EMULATED_TIER = "emulator"
SPACING_TIERS = (OVERLAP_TIER, EMULATED_TIER)
# what a replay must share with the capture of its block: column of SCORES, what is said otherwise
LOAD = (
    ("arrivals_sha256", "other arrivals"),
    ("requests", "another number of requests"),
    ("sent", "another number of requests sent"),
    ("offered_prompt_tokens", "other prompt tokens sent"),
)
_SLACK = 1e-12  # a figure computed in floating point still passes at its limit


@dataclass(frozen=True)
class Gate:
    """One condition: its figure against its limit, in the unit that the sentence names."""

    name: str
    passed: bool | None
    figure: float | None
    limit: float | None
    sentence: str
    refuses: bool = True
    applies: bool = True


@dataclass(frozen=True)
class Scope:
    """Which verdicts a gate that was computed elsewhere belongs to; None: all of them."""

    tier: str | None = None
    regime: str | None = None
    policy: str | None = None

    def covers(self, tier: str, regime: str, policy: str) -> bool:
        """Return whether the verdict of (tier, regime, policy) is in this scope."""
        mine = (self.tier, self.regime, self.policy)
        return all(
            own in (None, other) for own, other in zip(mine, (tier, regime, policy), strict=True)
        )


def not_available(name: str, sentence: str, *, refuses: bool = True) -> Gate:
    """Return the gate that nothing has computed: it neither passes nor fails."""
    return Gate(name, None, None, None, sentence, refuses)


def without_replays() -> list[Gate]:
    """Return the gates that have no object on the overlap tier, where no policy is replayed."""
    return [
        Gate(name, None, None, None, sentence, applies=False)
        for name, sentence in (
            ("measurement valid", "Not applicable: no replay of the policy is measured here."),
            ("fingerprint", "Not applicable: all placements are costed on one capture."),
            (
                "effect-size transfer",
                "Not applicable: overlap is counted, and no effect on latency is claimed.",
            ),
            ("no-sync load match", "Not applicable: all placements are costed on one capture."),
        )
    ]


def exact_budget(blocks: int) -> Gate:
    """Gate 4 on the overlap tier: the null holds the feasible schedules of the same budget only."""
    return Gate(
        "budget match",
        True,
        0.0,
        0.0,
        f"In {count(blocks, 'block')} compared with every feasible schedule of as many merges.",
    )


def matched_spacing(p_adjusted: float, gain: float, *, smallest_p: float, alpha: float) -> Gate:
    """Gate 5, awareness: the gain over the policy's own gaps in other orders is no accident.

    Figure: p after Holm, limit ``alpha``; ``gain`` is a rate.
    """
    return Gate(
        "matched spacing",
        p_adjusted <= alpha + _SLACK,
        p_adjusted,
        alpha,
        f"Gain over its own gaps in other orders {gain * 100:+z.2f} points, p after Holm "
        f"{p_adjusted:.3g} (smallest attainable {smallest_p:.3g}), limit {alpha:g}.",
        refuses=False,
    )


def measurement_valid(
    blocks: Sequence[Block],
    *,
    lateness_limit_s: float,
    loop_lag_limit_s: float,
    calibration: pd.DataFrame | None = None,
) -> Gate:
    """Gate 1: every replay behind the verdict was measured within its limits.

    Figure: the worst client lateness p99, seconds. Replays that the measurement itself marked
    invalid fail; so do lateness or loop lag above the limits. Outside the real tier there is no
    client to be late, so only ``valid`` counts. ``calibration``: SCORES rows of the regime's
    calibration captures that the verdict rests on (the real tier by an automatic SLO threshold, the
    emulated one by its model); an invalid one fails.
    """
    name = "measurement valid"
    rows = _replays(blocks)
    invalid = rows[~rows["valid"].astype(bool)]
    if len(invalid):
        first = invalid.iloc[0]
        reason = first["invalid_reason"] or "no reason was recorded"
        return Gate(
            name,
            False,
            _finite(rows["lateness_p99_s"].max()),
            lateness_limit_s,
            f"{len(invalid)} of {len(rows)} replays are invalid; {_which(first)}: {reason}",
        )
    real = bool((rows["tier"] == REAL_TIER).all())
    captures = rows.iloc[:0] if calibration is None else calibration
    invalid = captures[~captures["valid"].astype(bool)]
    if len(invalid):
        first = invalid.iloc[0]
        return Gate(
            name,
            False,
            _finite(captures["lateness_p99_s"].max()),
            lateness_limit_s,
            f"{len(invalid)} of {count(len(captures), 'calibration capture')} "
            f"{'is' if len(captures) == 1 else 'are'} invalid, and the "
            f"{'objective may rest' if real else 'model rests'} on it; "
            f"{_which(first)}: {first['invalid_reason'] or 'no reason was recorded'}",
        )
    if not real:
        return Gate(name, True, None, None, "Computed, not measured: no client to be late.")
    for column, what, limit in (
        ("lateness_p99_s", "client lateness p99", lateness_limit_s),
        ("loop_lag_p99_s", "client loop lag p99", loop_lag_limit_s),
    ):
        values = rows[column].astype(float)
        if values.isna().any():
            return Gate(
                name, None, None, limit, f"{what} is missing for {_which(rows[values.isna()])}."
            )
        worst = rows.loc[values.idxmax()]
        if values.max() > limit + _SLACK:
            figure = _finite(values.max())
            said = "infinite (requests were never sent)" if figure is None else f"{figure:.4g} s"
            return Gate(
                name,
                False,
                figure,
                limit,
                f"{_which(worst)}: {what} is {said}, limit {limit:.4g} s",
            )
    figure = float(rows["lateness_p99_s"].max())
    return Gate(
        name,
        True,
        figure,
        lateness_limit_s,
        f"All {len(rows)} replays valid; worst client lateness p99 {figure * 1e3:.1f} ms, "
        f"limit {lateness_limit_s * 1e3:.1f} ms.",
    )


def same_fingerprint(blocks: Sequence[Block], *, noise: float) -> Gate:
    """Gate 1, machine: a block's replays ran on one machine state, or its anchors agree.

    Figure: the largest difference of violation rate between nosync anchors of a block that mixes
    fingerprints; limit: ``noise`` (a rate). Every fingerprint of such a block needs an anchor.
    """
    name = "fingerprint"
    worst = 0.0
    mixed = 0
    for block in blocks:
        if block.replays["fingerprint"].isna().any():
            return not_available(name, f"Block {block.seed}: the machine was not recorded.")
        found = set(block.replays["fingerprint"])
        if len(found) == 1:
            continue
        mixed += 1
        unanchored = found - set(block.nosync["fingerprint"])
        if unanchored:
            return Gate(
                name,
                False,
                None,
                noise,
                f"Block {block.seed} mixes {len(found)} fingerprints of machine and software, and "
                f"{len(unanchored)} of them have no nosync anchor.",
            )
        rates = block.nosync["violation_rate"]
        worst = max(worst, float(rates.max() - rates.min()))
    if worst > noise + _SLACK:
        return Gate(
            name,
            False,
            worst,
            noise,
            f"nosync anchors of one block differ by {worst * 100:.2f} points, more than the noise "
            f"of {noise * 100:.2f}.",
        )
    said = (
        f"anchors agree in {count(mixed, 'mixed block')}" if mixed else "one fingerprint per block"
    )
    return Gate(name, True, worst, noise, f"{said[0].upper()}{said[1:]}.")


def load_match(blocks: Sequence[Block]) -> Gate:
    """Gate 3: every replay carried the offered load of its block's nosync capture.

    Compared: arrivals hash, requests, requests sent, prompt tokens sent. Figure: how many replays
    differ; limit 0. What was *completed* is an outcome and never a reason to refuse.
    """
    name = "no-sync load match"
    replays = 0
    differing = []
    for block in blocks:
        if block.nosync.empty:
            return not_available(name, f"Block {block.seed} has no nosync capture to match.")
        capture = block.nosync.iloc[0]
        rows = block.replays
        replays += len(rows)
        for column, what in LOAD:
            other = rows[rows[column] != capture[column]]
            differing += [(_which(row), what) for _, row in other.iterrows()]
    count = len({replay for replay, _ in differing})
    if differing:
        replay, what = differing[0]
        return Gate(
            name,
            False,
            count,
            0,
            f"{count} of {replays} replays did not carry the capture's load; {replay}: {what}.",
        )
    return Gate(name, True, 0, 0, f"All {replays} replays carried the load of their capture.")


def budget_match(blocks: Sequence[Block], *, tolerance: float) -> Gate:
    """Gate 4: policy and draws merged as often and as long, and inside the corridor.

    Figure: the largest relative difference of actual merge seconds between the policy and the
    mean of its draws; limit ``tolerance`` (a share). None when a block has no control at all.
    """
    name = "budget match"
    worst = 0.0
    for block in blocks:
        budget = int(block.policy["budget"])
        if block.draws.empty and block.control_budgets:
            others = " or ".join(map(str, block.control_budgets))
            return Gate(
                name,
                False,
                None,
                tolerance,
                f"Block {block.seed}: the policy made {count(budget, 'merge')}, its control "
                f"{others}.",
            )
        if block.draws.empty:
            return not_available(name, f"Block {block.seed} has no matched-random draw.")
        both = pd.concat([block.own, block.draws])
        outside = both[~both["feasible"].astype(bool)]
        if len(outside):
            return Gate(name, False, None, tolerance, f"{_which(outside)}: leaves the corridor.")
        planned = float(block.policy["planned_merge_seconds"])
        if (block.draws["planned_merge_seconds"] - planned).abs().max() > 1e-6:
            return Gate(
                name,
                False,
                None,
                tolerance,
                f"Block {block.seed}: planned merge seconds of policy and draws differ.",
            )
        if both["merge_seconds"].isna().any():
            return not_available(name, f"Block {block.seed}: actual merge seconds are missing.")
        control = float(block.draws["merge_seconds"].mean())
        actual = float(block.policy["merge_seconds"])
        if control > 0:
            worst = max(worst, abs(actual / control - 1))
        elif actual > 0:
            worst = math.inf
    if worst > tolerance + _SLACK:
        return Gate(
            name,
            False,
            _finite(worst),
            tolerance,
            f"Actual merge seconds differ from the draws' by {worst:.1%}, limit {tolerance:.0%}.",
        )
    return Gate(
        name,
        True,
        worst,
        tolerance,
        f"Same merges, inside the corridor; actual merge seconds within {worst:.1%}.",
    )


def resolution(blocks: int, smallest_p: float, *, level: float, min_blocks: int) -> Gate:
    """Gate 5, design: enough blocks and draws that the claim's p could fall to ``level``.

    Figure: the smallest attainable p_claim; limit: alpha over the number of claims.
    """
    enough = blocks >= min_blocks and smallest_p <= level * (1 + _SLACK)
    return Gate(
        "resolution",
        enough,
        smallest_p,
        level,
        f"{count(blocks, 'block')}: smallest attainable p {smallest_p:.3g}, needed {level:.3g} "
        f"and {count(min_blocks, 'block')}.",
        refuses=False,
    )


def envelope(p_adjusted: float, *, alpha: float) -> Gate:
    """Gate 5, evidence: p_claim after Holm is at most ``alpha``."""
    return Gate(
        "envelope",
        p_adjusted <= alpha + _SLACK,
        p_adjusted,
        alpha,
        f"p_claim after Holm {p_adjusted:.3g}, limit {alpha:g}.",
        refuses=False,
    )


def minimum_gain(gain: float, *, min_gain: float) -> Gate:
    """Gate 5, size: the gain over the mean of the draws (a rate) is at least ``min_gain``."""
    return Gate(
        "gain",
        gain >= min_gain - _SLACK,
        gain,
        min_gain,
        f"Gain {gain * 100:+z.2f} points, at least {min_gain * 100:g} needed.",
        refuses=False,
    )


def later_gates(tier: str) -> list[Gate]:
    """Return the gates that other stages compute, as not computed."""
    gates = [
        not_available(
            "causality", "Not computed: whether the policy's decisions use the past only."
        ),
        not_available(
            "training parity",
            "Not computed: whether the schedule trains as well as its draws.",
        ),
    ]
    if tier != OVERLAP_TIER:
        gates.append(
            not_available(
                "effect-size transfer",
                "Not computed: whether the merges hurt the real sidecar as the model predicts.",
            )
        )
    spacing = "matched spacing"
    if tier in SPACING_TIERS:
        gates.append(
            not_available(
                spacing,
                "Not computed: whether the gain is more than even spacing gives.",
                refuses=False,
            )
        )
    else:
        gates.append(
            Gate(
                spacing,
                None,
                None,
                None,
                "Not applicable: other orders of a policy's gaps are measured where the config's "
                "controls.spacing asks for them. What is earned here may be its rhythm's.",
                refuses=False,
                applies=False,
            )
        )
    return gates


def count(number: int, noun: str) -> str:
    """Return ``number`` with its noun, plural where due."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def points(rate: float) -> str:
    """Return a rate in percentage points, in words: "1 point", "0.5 points"."""
    said = f"{100 * rate:g}"
    return f"{said} point" if said == "1" else f"{said} points"


def _replays(blocks: Sequence[Block]) -> pd.DataFrame:
    return pd.concat([block.replays for block in blocks], ignore_index=True)


def _which(rows: pd.DataFrame | pd.Series) -> str:
    row = rows.iloc[0] if isinstance(rows, pd.DataFrame) else rows
    return f"{row['policy']} draw {row['draw']}, seed {row['seed']}"


def _finite(value: float) -> float | None:
    return float(value) if math.isfinite(value) else None
