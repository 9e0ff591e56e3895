"""schedule: the ordered merge starts of one run (controls: of every draw)."""

import pyarrow as pa

from safesync.tables.base import Table

SCHEDULE = Table(
    "schedule",
    pa.schema(
        [
            ("draw", pa.int32()),
            ("merge", pa.int32()),
            ("step", pa.int64()),  # inner steps done when the merge starts
            ("start_s", pa.float64()),
            ("reason", pa.string()),  # policy | forced | control
            ("score", pa.float64()),  # null for controls and policies without a score
        ]
    ),
)
