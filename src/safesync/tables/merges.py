"""merges: what each merge window of a replay really did."""

from collections.abc import Sequence

import numpy as np
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


def planned_ends_s(
    planned_s: Sequence[float], *, style: str, merge_s: float, horizon_s: float
) -> np.ndarray:
    """Return when the windows planned at ``planned_s`` shall end, seconds, shape (k,).

    After ``merge_s``; but an ``overlapped`` merge lasts until the next one begins, and the last
    until ``horizon_s``.
    """
    starts_s = np.asarray(planned_s, float)
    if style == "overlapped":
        return np.append(starts_s[1:], horizon_s)[: len(starts_s)]
    return starts_s + merge_s
