"""Whether a real replay was measured within its limits (gate 1, per replay)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from safesync.protocol.percentiles import percentile
from safesync.tables.merges import planned_ends_s

# a server that is only overloaded still listens, and its requests wait
_NO_SERVER = "ConnectionRefusedError"


@dataclass(frozen=True)
class Limits:
    """What a measurement may be off by, seconds.

    ``lateness_s``: client lateness p99 (config: a share of the SLO threshold). ``loop_lag_s``:
    p99 of the client's loop lag. ``merge_tolerance_s``: start and end of a merge against plan.
    """

    lateness_s: float
    loop_lag_s: float
    merge_tolerance_s: float


def faults(
    requests: pd.DataFrame,
    merges: pd.DataFrame,
    manifest: Mapping,
    *,
    arrivals: pd.DataFrame,
    arrivals_sha256: str,
    merge_s: float,
    limits: Limits,
) -> list[str]:
    """Return what makes the replay invalid, a sentence each; empty when it is valid.

    ``manifest``: of the measurement, with ``arrivals_sha256``, ``figures`` (``loop_lag_p99_s`` in
    seconds, ``prefix_hits``; null: the server does not tell) and what ``window_ends_s`` reads.
    ``arrivals``: the block's, which ask every answer's length; ``arrivals_sha256``: their hash. A
    figure at its limit is valid.
    """
    figures = manifest["figures"]
    found = []
    late = percentile(lateness_s(requests), 0.99)
    if late > limits.lateness_s:
        found.append(f"client lateness p99 {_seconds(late)}, limit {_seconds(limits.lateness_s)}")
    lag = figures["loop_lag_p99_s"]
    if lag is None or lag > limits.loop_lag_s:
        said = "unknown" if lag is None else _seconds(lag)
        found.append(f"client loop lag p99 {said}, limit {_seconds(limits.loop_lag_s)}")
    for what, error in merge_errors_s(merges, merge_s, manifest).items():
        if error > limits.merge_tolerance_s:
            found.append(
                f"a merge {what} {_seconds(error)} off plan, "
                f"tolerance {_seconds(limits.merge_tolerance_s)}"
            )
    idle = merges[(merges["rounds"] < 1) | (merges["reduced_bytes"] < 1)]
    if len(idle):
        found.append(f"{len(idle)} of {len(merges)} merges reduced nothing")
    if figures.get("prefix_hits"):
        found.append(f"the server reused {figures['prefix_hits']:g} cached prompt tokens")
    found += _length_faults(requests, arrivals)
    errors = requests["error"].fillna("").astype(str)
    refused = int(errors.str.contains(_NO_SERVER, regex=False).sum())
    if refused:
        found.append(f"no server listened for {refused} of {len(requests)} requests")
    if manifest["arrivals_sha256"] != arrivals_sha256:
        found.append("it was measured on other arrivals than the block's")
    return found


def _length_faults(requests: pd.DataFrame, arrivals: pd.DataFrame) -> list[str]:
    """Return what is wrong with the answers' lengths; only requests that succeeded have one."""
    answers = requests[requests["status"] == "ok"]
    asked = answers["request_id"].map(arrivals.set_index("request_id")["output_tokens"])
    given = answers["output_tokens"]
    other = int((given.notna() & asked.notna() & (given != asked)).sum())
    unknown = int(given.isna().sum())
    found = []
    if other:
        found.append(f"{other} of {len(answers)} answers have another length than asked")
    if unknown:
        found.append(f"{unknown} of {len(answers)} answers have no known length")
    return found


def lateness_s(requests: pd.DataFrame) -> np.ndarray:
    """Return how late the client sent each request, seconds, shape (n,); never sent: +infinity."""
    return (requests["sent_s"] - requests["arrival_s"]).fillna(np.inf).to_numpy(float)


def window_ends_s(starts_s: Sequence[float], merge_s: float, manifest: Mapping) -> np.ndarray:
    """Return when the windows of a replay shall end, seconds, shape (k,), by its merges' style.

    ``manifest``: its ``config`` names the style; without one, as of an engine that computes, a
    window lasts ``merge_s``.
    """
    style = manifest["config"]["merge"]["style"] if "config" in manifest else "blocking"
    return planned_ends_s(
        starts_s, style=style, merge_s=merge_s, horizon_s=manifest.get("horizon_s", np.nan)
    )


def merge_errors_s(merges: pd.DataFrame, merge_s: float, manifest: Mapping) -> dict[str, float]:
    """Return the worst distance from plan at which a merge started and ended, seconds.

    ``manifest``: as in ``window_ends_s``.
    """
    if merges.empty:
        return {"started": 0.0, "ended": 0.0}
    ends_s = window_ends_s(merges["planned_s"], merge_s, manifest)
    return {
        "started": float((merges["start_s"] - merges["planned_s"]).abs().max()),
        "ended": float((merges["end_s"] - ends_s).abs().max()),
    }


def _seconds(value: float) -> str:
    if not np.isfinite(value):
        return "infinite (requests were never sent)"
    return f"{value * 1e3:.1f} ms" if value < 1 else f"{value:.2f} s"
