"""What hides a merge instead of scheduling it: each style's harm, bytes, held and trained loss."""

import math
from collections.abc import Iterable, Sequence

import pandas as pd

from safesync.protocol.blocks import NOSYNC, is_policy
from safesync.report.merges import MergePlan, cost
from safesync.report.replay import Replay
from safesync.report.training import TrainingRun

_BLOCKING, _OVERLAPPED = "blocking", "overlapped"
_MEASURED = ("violation_rate", "excess_rate", "e2e_p95_s")
_OF_MERGES = ("style", "reduced_bytes", "models", "delay_s", "held_s")
_SAME_MERGES = ("seed", "training_seed", "merges")


def style_rows(
    replays: Sequence[Replay],
    scores: pd.DataFrame,
    runs: Sequence[TrainingRun],
    policies: Sequence[str],
    plan: MergePlan,
) -> list[dict]:
    """Return a row per policy of one (tier, regime), nosync first; none if all merges are blocking.

    ``replays``: judged ones; ``scores``: their SCORES rows; ``runs``: training runs on the
    regime's schedules; ``policies``: all, in the order of the page.

    Means over the policy's replays: ``violation_rate``, ``excess_rate``, ``e2e_p95_s``,
    ``reduced_bytes`` (that one rank hands to the all-reduce in a replay), ``delay_s`` (from a
    fragment's pseudo-gradient to its update) and ``held_s`` (seconds in which merges hold the
    islands; an overlapped one does not). ``models``: whole models that a merge reduces. They are
    None for nosync. ``loss``: mean of the final held-out losses, nats per token; ``more``: what
    that is more than the mean of blocking runs on the same merges, by block and training seed;
    ``delay_steps``: from pseudo-gradient to update in those runs. None without such a run.
    """
    if all(replay.style == _BLOCKING for replay in replays):
        return []
    found: dict[str, list[Replay]] = {}
    for replay in replays:
        if replay.policy == NOSYNC or is_policy(replay.policy):
            found.setdefault(replay.policy, []).append(replay)
    rows = []
    for policy in sorted(found, key=lambda name: (name != NOSYNC, policies.index(name))):
        own = scores.loc[scores["policy"] == policy, [*_MEASURED]]
        rows.append(
            {"policy": policy, "replays": len(own)}
            | own.mean().to_dict()
            | _merged(found[policy], plan)
            | _trained([run for run in runs if run.policy == policy], runs)
        )
    return rows


def _merged(replays: Sequence[Replay], plan: MergePlan) -> dict:
    """Return how the merges of one policy ran, and what they reduced and held."""
    tables = [replay.merges for replay in replays if len(replay.merges)]
    if not tables:
        return dict.fromkeys(_OF_MERGES)
    style = replays[0].style
    costs = cost(pd.concat(tables, ignore_index=True), plan)
    per_replay = costs["merges"] / len(replays)
    delays_s = [replay.manifest.get("figures", {}).get("merge_delay_s") for replay in replays]
    return {
        "style": style,
        "reduced_bytes": costs["reduced_bytes"] * per_replay,
        "models": costs["models"],
        "delay_s": _mean(delay_s for delay_s in delays_s if delay_s is not None),
        "held_s": 0.0 if style == _OVERLAPPED else costs["window_s"] * per_replay,
    }


def _trained(own: Sequence[TrainingRun], runs: Sequence[TrainingRun]) -> dict:
    """Return how well one policy's runs trained, beside the blocking ones among ``runs``."""
    more = []
    for run in own:
        blocking = _mean(
            other.final_loss
            for other in runs
            if other is not run
            and other.style == _BLOCKING
            and all(other.facts[name] == run.facts[name] for name in _SAME_MERGES)
        )
        if blocking is not None:
            more.append(run.final_loss - blocking)
    return {
        "loss": _mean(run.final_loss for run in own),
        "more": _mean(more),
        "delay_steps": own[0].facts["delay_steps"] if own else None,
    }


def _mean(values: Iterable[float]) -> float | None:
    values = list(values)
    return math.fsum(values) / len(values) if values else None
