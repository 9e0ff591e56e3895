"""What merges cost: time by phase, bytes, bandwidth, and how often a window merges the model."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import pandas as pd

from safesync.report.figures.base import order
from safesync.report.replay import Replay

_PHASES = ("reduce", "optimizer", "checkpoint")
_FLOAT_BYTES = 4  # of an fp32 parameter, and of the flag that each rank adds to a round


@dataclass(frozen=True)
class MergePlan:
    """The merges that a config asks for: ``merge_s`` and its ``tolerance_s`` in seconds."""

    merge_s: float
    tolerance_s: float
    parameters: int
    ranks: int


def merge_costs(
    replays: Sequence[Replay], policies: Sequence[str], plan: MergePlan
) -> tuple[list[dict], dict | None]:
    """Return the cost per group of replays, and over all blocking merges (None without one).

    Throttled and overlapped merges are groups of their own only: they take their time on purpose.
    """
    groups: dict[str, list[pd.DataFrame]] = {}
    blocking = []
    for replay in order(replays, policies):
        if replay.merges.empty:
            continue
        if replay.style == "blocking":
            group = replay.group
            blocking.append(replay.merges)
        else:
            group = f"{replay.group}, {replay.style}"
        groups.setdefault(group, []).append(replay.merges)
    rows = [
        {"group": group} | cost(pd.concat(tables, ignore_index=True), plan)
        for group, tables in groups.items()
    ]
    if not blocking:
        return rows, None
    every = pd.concat(blocking, ignore_index=True)
    return rows, {"group": "all blocking merges"} | cost(every, plan)


def cost(merges: pd.DataFrame, plan: MergePlan) -> dict:
    """Return what the rows of MERGES cost together.

    ``merges``: how many. Means per merge: ``window_s``, ``reduced_bytes`` (that one rank hands to
    the all-reduce), ``written_bytes``, ``rounds``. Shares of the windows' time: ``reduce_share``,
    ``optimizer_share``, ``checkpoint_share`` and ``other_share`` (inner values, agreement of the
    ranks). Bandwidths, GB/s: ``reduce_gbps``, ``checkpoint_gbps``. ``models``: whole models that
    a merge reduces, so that ``whole_model_s`` is what merging one takes. NaN for no time or byte.
    """
    window_s = float((merges["end_s"] - merges["start_s"]).sum())
    phases = {name: float(merges[f"{name}_s"].sum()) for name in _PHASES}
    reduced, written = float(merges["reduced_bytes"].sum()), float(merges["written_bytes"].sum())
    flags = _FLOAT_BYTES * plan.ranks * float(merges["rounds"].sum())
    models = (reduced - flags) / (_FLOAT_BYTES * plan.parameters)
    shares = {f"{name}_share": _ratio(seconds, window_s) for name, seconds in phases.items()}
    return {
        "merges": len(merges),
        "window_s": window_s / len(merges),
        "reduced_bytes": reduced / len(merges),
        "written_bytes": written / len(merges),
        "rounds": float(merges["rounds"].mean()),
        **shares,
        "other_share": _ratio(window_s - sum(phases.values()), window_s),
        "reduce_gbps": _ratio(reduced / 1e9, phases["reduce"]),
        "checkpoint_gbps": _ratio(written / 1e9, phases["checkpoint"]),
        "models": models / len(merges),
        "whole_model_s": _ratio(window_s, models),
    }


def _ratio(part: float, whole: float) -> float:
    return part / whole if whole > 0 else math.nan
