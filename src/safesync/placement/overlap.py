"""What a merge window costs, in overlapped requests (definition: design section 6)."""

from __future__ import annotations

import numpy as np

from safesync.placement.corridor import Corridor


def overlap_cost(arrival_s: np.ndarray, done_s: np.ndarray, corridor: Corridor) -> np.ndarray:
    """Requests that a merge window meets, for every possible start: int64, shape (n_starts,).

    arrival_s, done_s: shape (requests,), seconds since t0, from the nosync capture, any order.
    Entry j is the number of requests in flight at `j * step_s` (`arrival <= start < done`) or
    arriving in `[start, start + merge_s)`; each is counted once. A request that meets two windows
    of a schedule counts in both, so that the cost of a schedule is the sum over its windows.

    ValueError: shapes differ, a time is not finite, or a request is done before it arrives.
    """
    arrival_s = np.asarray(arrival_s, dtype=np.float64)
    done_s = np.asarray(done_s, dtype=np.float64)
    _check(arrival_s, done_s)
    start_steps = np.arange(corridor.n_starts)
    start_s = start_steps * corridor.step_s
    end_s = (start_steps + corridor.grid.merge) * corridor.step_s
    # Met = arrived before the window's end, less those done by its start. A request of no length
    # exactly at the start arrives inside the window and is done by its start: it is added back.
    instant = np.sort(arrival_s[arrival_s == done_s])
    at_start = np.searchsorted(instant, start_s, "right")
    at_start -= np.searchsorted(instant, start_s, "left")
    arrived = np.searchsorted(np.sort(arrival_s), end_s, "left")
    done = np.searchsorted(np.sort(done_s), start_s, "right")
    return (arrived - done + at_start).astype(np.int64)


def _check(arrival_s: np.ndarray, done_s: np.ndarray) -> None:
    if arrival_s.ndim != 1 or arrival_s.shape != done_s.shape:
        raise ValueError(
            f"arrival_s and done_s must be two columns of one length, "
            f"not of shapes {arrival_s.shape} and {done_s.shape}."
        )
    for name, values in (("arrival_s", arrival_s), ("done_s", done_s)):
        if not np.isfinite(values).all():
            at = int(np.flatnonzero(~np.isfinite(values))[0])
            raise ValueError(f"{name} of row {at} is {values[at]}, expected a finite time in s.")
    if (done_s < arrival_s).any():
        at = int(np.flatnonzero(done_s < arrival_s)[0])
        raise ValueError(
            f"row {at} is done at {done_s[at]:.10g} s, before it arrives at {arrival_s[at]:.10g} s."
        )
