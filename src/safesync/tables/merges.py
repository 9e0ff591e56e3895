"""merges: what each merge window of a replay really did."""

import pyarrow as pa

from safesync.tables.base import Table

MERGES = Table(
    "merges",
    pa.schema(
        [
            ("merge", pa.int32()),
            ("step", pa.int64()),
            ("planned_s", pa.float64()),
            ("start_s", pa.float64()),  # first rank
            ("end_s", pa.float64()),  # last rank
            ("reduce_s", pa.float64()),
            ("optimizer_s", pa.float64()),
            ("checkpoint_s", pa.float64()),
            ("reduced_bytes", pa.int64()),
            ("written_bytes", pa.int64()),
            ("rounds", pa.int32()),
        ]
    ),
)
