"""requests: one row per arrival of a replay, whatever happened to it."""

import pyarrow as pa

from safesync.tables.base import Table

STATUSES = ("ok", "error", "timeout", "censored")

REQUESTS = Table(
    "requests",
    pa.schema(
        [
            ("request_id", pa.int64()),
            ("arrival_s", pa.float64()),
            ("sent_s", pa.float64()),  # null when never sent
            ("first_token_s", pa.float64()),  # null without a token
            ("last_token_s", pa.float64()),
            ("done_s", pa.float64()),  # always stamped; censored: the stop
            ("prompt_tokens", pa.int32()),
            ("output_tokens", pa.int32()),  # the server's usage
            ("status", pa.string()),
            ("error", pa.string()),
            ("chunk_s", pa.list_(pa.float32())),  # seconds since sent_s
            ("chunk_tokens", pa.list_(pa.int32())),
        ]
    ),
)
