"""scores: one row per replay, the only table that the judge reads."""

import pyarrow as pa

from safesync.tables.base import Table

_QUANTILES = ("p50", "p95", "p99")
_METRICS = ("e2e", "ttft", "tpot")

SCORES = Table(
    "scores",
    pa.schema(
        [
            ("run", pa.string()),
            ("tier", pa.string()),
            ("regime", pa.string()),
            ("kind", pa.string()),
            ("seed", pa.int64()),
            ("role", pa.string()),
            ("policy", pa.string()),
            ("draw", pa.int32()),
            ("budget", pa.int32()),
            ("control_of", pa.string()),  # matched_spacing: the policy whose gaps it permutes
            ("capture", pa.string()),  # tier of the nosync run that the policy observed
            ("requests", pa.int64()),
            ("ok", pa.int64()),
            ("failed", pa.int64()),
            ("censored", pa.int64()),
            ("violations", pa.int64()),
            ("violation_rate", pa.float64()),
            ("excess_rate", pa.float64()),
            # over all requests, a failure counting as +infinity
            *((f"{m}_{q}_s", pa.float64()) for m in _METRICS for q in _QUANTILES),
            # over successes only
            *((f"{m}_{q}_ok_s", pa.float64()) for m in _METRICS for q in _QUANTILES),
            ("overlap", pa.int64()),
            ("offered_prompt_tokens", pa.int64()),
            ("sent", pa.int64()),
            ("arrivals_sha256", pa.string()),
            ("lateness_p99_s", pa.float64()),
            ("loop_lag_p99_s", pa.float64()),
            ("merge_seconds", pa.float64()),  # actual
            ("planned_merge_seconds", pa.float64()),
            ("feasible", pa.bool_()),  # the schedule stays inside the corridor
            ("valid", pa.bool_()),
            ("invalid_reason", pa.string()),
            ("fingerprint", pa.string()),
        ]
    ),
    version=2,
)
