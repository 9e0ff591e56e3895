"""What the published study saw of a kind of regime, beside what this run measured of it."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from safesync.protocol.blocks import NOSYNC
from safesync.protocol.percentiles import percentile
from safesync.protocol.scores import exposed, metric_s, violates
from safesync.protocol.validity import window_ends_s
from safesync.report.figures.base import order
from safesync.report.replay import Replay
from safesync.report.wording import NOTHING, fixed, percent, spread

SAID = {
    "ordinary": "Under light contention the study reported that requests during a merge were as "
    "fast as the others: p95 ratios of about 1.0. It published no violation rates for these runs.",
    "pressure": "Under pressure that no merge causes the study reported every policy saturated "
    "and none ahead of the others, with p95 ratios of about 1.0.",
    "steady": "Under constant load the study reported large differences between policies. They "
    "are differences in how much of the load meets a merge, not in placement: over its 30 runs "
    "the share of requests during a merge explains 99 % of the variance of the violation rate.",
    "bursty": "Under bursts the study reported fewest violations for its two calibrated "
    "schedules, then for random placement, then for wa_diloco; fixed_h_256, with 14 merges "
    "instead of 8, had most.",
}


@dataclass(frozen=True)
class Outcome:
    """What one policy came to, as means over ``runs`` runs or replays; NaN: not known.

    ``p95_ratio``: p95 latency of requests during a merge over that of the others.
    ``violation_rate``, ``met``: shares of all requests, those that violated and those that were
    served during a merge. ``quiet_ratio``: what ``p95_ratio`` is of the same requests in the
    capture without merges: what the load alone makes of it. ``unmet``: share of all requests that
    violated though no merge met them: carried over from one, or the run's own.
    """

    policy: str
    runs: int
    p95_ratio: float
    violation_rate: float
    met: float
    quiet_ratio: float = np.nan
    unmet: float = np.nan


@dataclass(frozen=True)
class Comparison:
    """One regime beside the study: ``rows`` are (quantity, the study saw, this run measured)."""

    said: str
    rows: list[tuple[str, str, str]]
    study: list[Outcome]
    own: list[Outcome]


def during_merges(
    quiet: pd.DataFrame, starts_s: Sequence[float], ends_s: Sequence[float]
) -> np.ndarray:
    """Return which requests a merge meets, bool, shape (n,), in the order of ``request_id``.

    ``quiet``: REQUESTS of the block's capture without merges, where a request's interval must meet
    a window; windows are [start, end), ``starts_s`` and ``ends_s`` of shape (k,), s.
    """
    return exposed(quiet.sort_values("request_id"), starts_s, ends_s).any(axis=0)


def p95_ratio(requests: pd.DataFrame, during: np.ndarray) -> float:
    """Return the p95 latency of requests during merges over the p95 of the others, no unit.

    ``requests``: REQUESTS of the replay. ``during``: of ``during_merges``. Latency is from the
    scheduled arrival, by nearest rank, a request that failed at +infinity. NaN when either group is
    empty or the others' p95 is infinite.
    """
    latency = metric_s(requests.sort_values("request_id"), "e2e")
    others = percentile(latency[~during], 0.95)
    return percentile(latency[during], 0.95) / others if np.isfinite(others) else np.nan


def study_outcomes(figures: pd.DataFrame, kind: str) -> list[Outcome]:
    """Return what the study saw of ``kind``, a policy each in the order of its figures.

    ``figures``: of ``protocol.published.read_figures``. Of ordinary load it has calibration runs,
    each a setting of its own; those made with heavy pressure or heavy merges are not ordinary.
    """
    rows = figures[figures["basis"].isin(["run", "mean"])]
    if kind == "ordinary":
        rows = rows[(rows["regime"] == "calibration") & ~rows["policy"].str.endswith("-heavy")]
    else:
        rows = rows[rows["regime"] == kind]
    return [
        Outcome(
            policy=str(policy),
            runs=int(here["runs"].sum()),
            p95_ratio=_mean(here["p95_ratio_merge"]),
            violation_rate=_mean(here["violation_rate"]),
            met=_mean(here["requests_in_merge"] / here["requests"]),
        )
        for policy, here in rows.groupby("policy", sort=False)
    ]


def own_outcomes(
    replays: Sequence[Replay],
    nosync: Mapping[int, Replay],
    policies: Sequence[str],
    *,
    metric: str,
    threshold_s: float,
    merge_s: float,
) -> list[Outcome]:
    """Return what the replays of one (tier, regime) came to, a policy or control budget each.

    ``nosync``: seed -> capture; a replay without one, or without a merge, is not counted.
    """
    found: dict[str, list[tuple[float, ...]]] = {}
    for replay in order(replays, policies):
        if replay.seed not in nosync or replay.merges.empty:
            continue
        starts = replay.merges["planned_s"].to_numpy()
        ends = window_ends_s(starts, merge_s, replay.manifest)
        quiet = nosync[replay.seed].requests
        during = during_merges(quiet, starts, ends)
        violated = violates(replay.requests.sort_values("request_id"), metric, threshold_s)
        found.setdefault(replay.group, []).append(
            (
                p95_ratio(replay.requests, during),
                float(violated.mean()),
                float(during.mean()),
                p95_ratio(quiet, during),
                float((violated & ~during).mean()),
            )
        )
    return [
        Outcome(group, len(seen), *(_mean(values) for values in zip(*seen, strict=True)))
        for group, seen in found.items()
    ]


def compare(
    figures: pd.DataFrame,
    kind: str,
    replays: Sequence[Replay],
    nosync: Mapping[int, Replay],
    policies: Sequence[str],
    *,
    metric: str,
    threshold_s: float,
    merge_s: float,
) -> Comparison | None:
    """Return one regime of ``kind`` beside the study; None for a kind it has no figures of.

    ``replays``: judged ones of the regime, of one tier, those that count.
    """
    study = study_outcomes(figures, kind)
    if not study:
        return None
    own = own_outcomes(
        [replay for replay in replays if replay.policy != NOSYNC],
        nosync,
        policies,
        metric=metric,
        threshold_s=threshold_s,
        merge_s=merge_s,
    )
    seeds = {replay.seed for replay in replays}
    quiet = [
        float(violates(capture.requests, metric, threshold_s).mean())
        for seed, capture in nosync.items()
        if seed in seeds
    ]
    both = (study, own)
    rows = [
        ("p95 during a merge / p95 of the others", *(_span(o, "p95_ratio", fixed) for o in both)),
        ("of the same requests without merges", "not published", _span(own, "quiet_ratio", fixed)),
        ("violations, by policy", *(_span(o, "violation_rate", percent) for o in both)),
        (
            "violations during no merge, of all requests",
            "not published",
            _span(own, "unmet", percent),
        ),
        ("between policies, points", *(_apart(o) for o in both)),
        ("requests during a merge, by policy", *(_span(o, "met", percent) for o in both)),
        ("violations without merges", "not published", percent(_mean(quiet))),
    ]
    return Comparison(SAID[kind], rows, study, own)


def _span(outcomes: Sequence[Outcome], name: str, said: Callable[[float], str]) -> str:
    """Return the range of a figure over policies, and of how many when it is not known of all."""
    values = [getattr(outcome, name) for outcome in outcomes]
    known = sum(not np.isnan(value) for value in values)
    partly = f" ({known} of {len(values)})" * (0 < known < len(values))
    return spread(values, said) + partly


def _apart(outcomes: Sequence[Outcome]) -> str:
    rates = [o.violation_rate for o in outcomes if np.isfinite(o.violation_rate)]
    return fixed(100 * (max(rates) - min(rates)), 1) if len(rates) > 1 else NOTHING


def _mean(values) -> float:
    """Return the mean of what is known, NaN when nothing is."""
    values = np.asarray(values, dtype=float)
    values = values[~np.isnan(values)]
    return float(values.mean()) if values.size else np.nan
