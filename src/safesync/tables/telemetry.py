"""telemetry: what server and host looked like, five times a second."""

import pyarrow as pa

from safesync.tables.base import Table

TELEMETRY = Table(
    "telemetry",
    pa.schema(
        [
            ("t_s", pa.float64()),
            ("running", pa.float64()),
            ("waiting", pa.float64()),
            ("kv_use", pa.float64()),  # share of KV blocks in use
            ("prompt_tokens_total", pa.float64()),
            ("output_tokens_total", pa.float64()),
            ("preemptions_total", pa.float64()),
            ("prefix_hits_total", pa.float64()),
            ("cpu_share", pa.float64()),  # of all cores of the host
            ("network_bytes", pa.int64()),  # cumulative, all interfaces
            ("disk_written_bytes", pa.int64()),  # cumulative, all disks
            ("loop_lag_s", pa.float64()),  # worst of the client's loop since the last row
        ]
    ),
)
