"""A calibrated model with round numbers, and arrivals for it."""

import numpy as np
import pandas as pd

from safesync.emulator import (
    Contention,
    EngineModel,
    Limits,
    Probe,
    StepTime,
    Trace,
    Windows,
    calibrate,
    simulate,
)
from safesync.placement import Corridor
from safesync.protocol.calibrated import Calibrated, load_of

CORRIDOR = Corridor(h_min=32, h_max=128, step_s=0.125, merge_s=4.0, horizon_s=60.0)
SETTINGS = {
    "sidecar": {"max_num_seqs": 16, "max_model_len": 256},
    "merge": {"merge_s": 4.0, "ranks": 2},
    "model": "tiny",
}
TRUTH = EngineModel(
    limits=Limits(max_num_seqs=16, max_model_len=256),
    step=StepTime(base_s=0.02, per_decode_s=0.002, per_prefill_token_s=0.0002),
    contention=(Contention(factor=2.0),),
    client_overhead_s=0.005,
)


def arrivals(seed=1, rate_rps=3.0, horizon_s=60.0):
    """Return ARRIVALS of Poisson requests, of two prompt lengths and up to 30 tokens."""
    rng = np.random.default_rng(seed)
    size = int(rate_rps * horizon_s)
    return pd.DataFrame(
        {
            "request_id": np.arange(size, dtype=np.int64),
            "arrival_s": np.sort(rng.uniform(0, horizon_s, size)),
            "prompt_tokens": rng.choice([16, 64], size).astype(np.int32),
            "output_tokens": rng.integers(1, 31, size).astype(np.int32),
        }
    )


def replay(rows, windows=None, model=TRUTH):
    """Return the REQUESTS of a replay, with the time of every token."""
    return simulate(
        Trace.from_rows(rows), windows or Windows.none(), model, chunks=True
    ).to_requests()


def merges(*start_s):
    """Return MERGES of windows that are as long as planned."""
    starts = np.array(start_s, dtype=float)
    return pd.DataFrame({"planned_s": starts, "start_s": starts, "end_s": starts + 4.0})


def calibrated(**changes):
    """Return a document of the true model, with the load of two traces."""
    rows, probed = arrivals(1), arrivals(2)
    windows = merges(6.0, 20.0, 33.0, 48.0)
    fitted = calibrate(
        [replay(rows)],
        [Probe(replay(probed, Windows.measured(windows)), windows)],
        TRUTH.limits,
    )
    values = {
        "regime": "bursty",
        "fingerprint": "machine-1",
        "settings": SETTINGS,
        "model": TRUTH,
        "fit": fitted.fit,
        "load": load_of([rows, probed], 4.0),
        "network_bytes_per_s": 1000.0,
        "disk_written_bytes_per_s": 500.0,
    }
    return Calibrated(**(values | changes))
