"""The figures that a measurement's validity is judged by."""

import numpy as np
import pandas as pd


def figures(
    requests: pd.DataFrame,
    merges: pd.DataFrame,
    telemetry: pd.DataFrame,
    lag: pd.DataFrame,
    background: list[dict],
) -> dict:
    """Return what validity is judged by; the limits are the protocol's, so they stand there.

    ``merge_delay_s`` is the mean time from a fragment's pseudo-gradient to its update.
    ``background``: what each of its processes did, as the manifest holds it.
    """
    hits = telemetry["prefix_hits_total"].dropna()
    lateness = (requests["sent_s"] - requests["arrival_s"]).fillna(np.inf).to_numpy()
    lasted_s = merges["end_s"] - merges["start_s"]
    delays_s = merges["reduce_s"] + merges["optimizer_s"]
    reduced_bytes = int(merges["reduced_bytes"].sum())
    return {
        "lateness_p50_s": _finite(np.quantile(lateness, 0.5, method="higher")),
        "lateness_p99_s": _finite(np.quantile(lateness, 0.99, method="higher")),
        "lateness_max_s": _finite(lateness.max()),
        "never_sent": int(requests["sent_s"].isna().sum()),
        "loop_lag_p99_s": _finite(lag["lag_s"].quantile(0.99)),
        "loop_lag_max_s": _finite(lag["lag_s"].max()),
        "merge_start_error_s": _worst(merges["start_s"] - merges["planned_s"]),
        "merge_seconds": float(lasted_s.sum()),
        "merge_longest_s": _worst(lasted_s),
        "merge_shortest_s": float(lasted_s.min()) if len(merges) else 0.0,
        "merge_rounds_min": int(merges["rounds"].min()) if len(merges) else 0,
        "merge_delay_s": _ratio(delays_s.sum(), merges["rounds"].sum()),
        "reduced_bytes": reduced_bytes,
        "reduced_bytes_per_s": _ratio(reduced_bytes, lasted_s.sum()),
        "written_bytes": int(merges["written_bytes"].sum()),
        "prefix_hits": float(hits.iloc[-1] - hits.iloc[0]) if len(hits) else None,
        "telemetry_rows": len(telemetry),
        "telemetry_missing": int(telemetry["running"].isna().sum()),
        "failed": int((requests["status"] != "ok").sum()),
        "background_processes": len(background),
        "background_cpu_share": _rate(background, "cpu_s"),
        "background_network_bytes_per_s": _rate(background, "sent_bytes"),
        "background_disk_bytes_per_s": _rate(background, "written_bytes"),
        "background_fsync_s": float(sum(process.get("fsync_s", 0) for process in background)),
        "background_steps_per_s": _rate(background, "steps"),
    }


def _rate(background: list[dict], what: str) -> float:
    """Return what all processes together did per second; not every kind does everything."""
    return float(sum(process.get(what, 0) / process["seconds"] for process in background))


def _ratio(part: float, whole: float) -> float | None:
    return float(part / whole) if whole else None


def _finite(value: float) -> float | None:
    return float(value) if np.isfinite(value) else None


def _worst(values: pd.Series) -> float:
    return float(values.abs().max()) if len(values) else 0.0
