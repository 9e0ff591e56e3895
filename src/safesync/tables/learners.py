"""learners: progress of each island by inner step."""

import pyarrow as pa

from safesync.tables.base import Table

LEARNERS = Table(
    "learners",
    pa.schema(
        [
            ("island", pa.int32()),
            ("step", pa.int64()),
            ("loss", pa.float64()),
            ("tokens", pa.int64()),  # cumulative
            ("step_s", pa.float64()),
        ]
    ),
)
