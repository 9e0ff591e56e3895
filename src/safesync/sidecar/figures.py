"""The figures that a measurement's validity is judged by."""

import numpy as np
import pandas as pd


def figures(
    requests: pd.DataFrame, merges: pd.DataFrame, telemetry: pd.DataFrame, lag: pd.DataFrame
) -> dict:
    """Return what validity is judged by; the limits are the protocol's, so they stand there."""
    hits = telemetry["prefix_hits_total"].dropna()
    lateness = (requests["sent_s"] - requests["arrival_s"]).fillna(np.inf).to_numpy()
    ends = merges["end_s"] - merges["start_s"]
    return {
        "lateness_p50_s": _finite(np.quantile(lateness, 0.5, method="higher")),
        "lateness_p99_s": _finite(np.quantile(lateness, 0.99, method="higher")),
        "lateness_max_s": _finite(lateness.max()),
        "never_sent": int(requests["sent_s"].isna().sum()),
        "loop_lag_p99_s": _finite(lag["lag_s"].quantile(0.99)),
        "loop_lag_max_s": _finite(lag["lag_s"].max()),
        "merge_start_error_s": _worst(merges["start_s"] - merges["planned_s"]),
        "merge_seconds": float(ends.sum()),
        "merge_longest_s": _worst(ends),
        "merge_shortest_s": float(ends.min()) if len(ends) else 0.0,
        "merge_rounds_min": int(merges["rounds"].min()) if len(merges) else 0,
        "reduced_bytes": int(merges["reduced_bytes"].sum()),
        "written_bytes": int(merges["written_bytes"].sum()),
        "prefix_hits": float(hits.iloc[-1] - hits.iloc[0]) if len(hits) else None,
        "telemetry_rows": len(telemetry),
        "telemetry_missing": int(telemetry["running"].isna().sum()),
        "failed": int((requests["status"] != "ok").sum()),
    }


def _finite(value: float) -> float | None:
    return float(value) if np.isfinite(value) else None


def _worst(values: pd.Series) -> float:
    return float(values.abs().max()) if len(values) else 0.0
