"""A client that sees every chunk late, as a busy machine makes it."""

import numpy as np


def late(rows, mean_s, seed=1):
    """Return the REQUESTS rows with chunks late by exponential times, in their order."""
    rng = np.random.default_rng(seed)
    chunk_s = [
        np.maximum.accumulate(times + rng.exponential(mean_s, times.size).astype(np.float32))
        for times in rows["chunk_s"]
    ]
    first_token_s = rows["sent_s"] + [times[0] for times in chunk_s]
    return rows.assign(chunk_s=chunk_s, first_token_s=first_token_s)
