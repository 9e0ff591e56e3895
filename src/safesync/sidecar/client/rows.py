"""One row per arrival while the load runs, and the tables that come out of them."""

from dataclasses import dataclass, field

import numpy as np
import pandas as pd
import pyarrow as pa

from safesync.sidecar.client.stream import Tokens
from safesync.tables import Table
from safesync.tables.requests import REQUESTS

LOOP_LAG = Table(
    "loop_lag",
    pa.schema(
        [
            ("t_s", pa.float64()),  # when the probe was due, since t0
            ("lag_s", pa.float64()),  # how late the event loop served it
        ]
    ),
)


@dataclass(slots=True)
class Row:
    """What is known about one arrival; times in seconds since t0, ``status`` None until it ends."""

    request_id: int
    arrival_s: float
    prompt_tokens: int  # asked for
    body: bytes
    sent_s: float | None = None
    done_s: float | None = None
    status: str | None = None
    error: str | None = None
    tokens: Tokens = field(default_factory=Tokens)


def requests_frame(rows: list[Row]) -> pd.DataFrame:
    """Return the finished rows in the columns of REQUESTS; what never happened is null."""
    chunk_s = [row.tokens.chunk_s for row in rows]
    return pd.DataFrame(
        {
            "request_id": [row.request_id for row in rows],
            "arrival_s": [row.arrival_s for row in rows],
            "sent_s": _floats(row.sent_s for row in rows),
            "first_token_s": _floats(times[0] if times else None for times in chunk_s),
            "last_token_s": _floats(times[-1] if times else None for times in chunk_s),
            "done_s": _floats(row.done_s for row in rows),
            "prompt_tokens": _integers(row.tokens.prompt_tokens for row in rows),
            "output_tokens": _integers(row.tokens.output_tokens for row in rows),
            "status": [row.status for row in rows],
            "error": pd.Series([row.error for row in rows], dtype=object),
            "chunk_s": [
                np.asarray(times, dtype=np.float64) - (row.sent_s or 0.0)
                for row, times in zip(rows, chunk_s, strict=True)
            ],
            "chunk_tokens": [np.asarray(row.tokens.chunk_tokens, dtype=np.int32) for row in rows],
        },
        columns=REQUESTS.schema.names,
    )


def _floats(values) -> pd.Series:
    return pd.Series(list(values), dtype=np.float64)


def _integers(values) -> pd.Series:
    return pd.Series(list(values), dtype="Int32")
