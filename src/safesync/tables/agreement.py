"""agreement: emulated against measured, one row per real replay and figure."""

import pyarrow as pa

from safesync.tables.base import Table

AGREEMENT = Table(
    "agreement",
    pa.schema(
        [
            ("run", pa.string()),
            ("regime", pa.string()),
            ("seed", pa.int64()),
            ("policy", pa.string()),
            ("draw", pa.int32()),
            ("budget", pa.int32()),
            ("schedule", pa.string()),  # the same for repeats of one schedule in one block
            ("requests", pa.int64()),
            ("lost", pa.int64()),  # measured ones that failed: violations, but no latency
            ("figure", pa.string()),  # violation_rate (share), or a latency such as e2e_p95_s
            ("measured", pa.float64()),
            ("emulated", pa.float64()),
            ("error", pa.float64()),  # emulated - measured, in the figure's unit
            ("relative_error", pa.float64()),  # emulated / measured - 1; null for rates
        ]
    ),
)
