"""arrivals: one row per request that the workload will send."""

import hashlib

import numpy as np
import pandas as pd
import pyarrow as pa

from safesync.tables.base import Table

ARRIVALS = Table(
    "arrivals",
    pa.schema(
        [
            ("request_id", pa.int64()),
            ("arrival_s", pa.float64()),
            ("prompt_tokens", pa.int32()),
            ("output_tokens", pa.int32()),
        ]
    ),
)


def arrivals_sha256(rows: pd.DataFrame) -> str:
    """Return the hash of the rows' values, little-endian and in schema order."""
    digest = hashlib.sha256()
    for name, kind in (
        ("request_id", "<i8"),
        ("arrival_s", "<f8"),
        ("prompt_tokens", "<i4"),
        ("output_tokens", "<i4"),
    ):
        digest.update(np.ascontiguousarray(rows[name].to_numpy(), dtype=kind).tobytes())
    return digest.hexdigest()
