"""seeded_arrivals: the arrival traces of several seeds, for replays that are only emulated."""

import pyarrow as pa

from safesync.tables.arrivals import ARRIVALS
from safesync.tables.base import Table

SEEDED_ARRIVALS = Table(
    "seeded_arrivals", pa.schema([pa.field("seed", pa.int64()), *ARRIVALS.schema])
)
