"""What the gate that merges when nothing is in flight gains in latency when the load is steady.

Run with `python benchmarks/steady_latency.py [--blocks 60]`. On the overlap tier that gate comes
out EARNED even under Poisson load, because it sees real gaps (`benchmarks/steady.py`). Here the
same gate is replayed through the emulator against matched-random draws of its own budget: its gain
in violation rate must stay below `min_gain`, else a tier of latencies would take it for skill. The
exit status is 1 when it does not. The sidecar's model is the one that a default run calibrated to
on two cores (SmolLM2-135M, 64 prompt and 32 output tokens).
"""

from __future__ import annotations

import argparse
import sys

import numpy as np
import pandas as pd
from scipy import stats
from steady import CORRIDOR, IdleGate, observable

from safesync.emulator import Contention, EngineModel, Limits, StepTime, Trace, Windows, latencies
from safesync.policies.replay import decide_schedule
from safesync.protocol.evidence import Rules
from safesync.protocol.percentiles import percentile
from safesync.workload.streams import stream

MODEL = EngineModel(
    limits=Limits(max_num_seqs=64, max_model_len=1024),
    step=StepTime(base_s=0.0158, per_decode_s=0.00094, per_prefill_token_s=0.00054),
    contention=(Contention(factor=1.45),),
    client_overhead_s=0.0041,
)
RATES_RPS = (0.25, 0.5, 1.0, 2.0, 4.0)
PROMPT_TOKENS, OUTPUT_TOKENS = 64, 32
DRAWS = 50
QUANTILE, MULTIPLE = 0.99, 1.25  # of the SLO threshold, as in the default config


def poisson_trace(rate: float, rng: np.random.Generator) -> Trace:
    """Arrivals of one block at a constant rate over the horizon."""
    count = rng.poisson(rate * CORRIDOR.horizon_s)
    return Trace.of(
        np.sort(rng.uniform(0, CORRIDOR.horizon_s, count)),
        np.full(count, PROMPT_TOKENS),
        np.full(count, OUTPUT_TOKENS),
    )


def latency(trace: Trace, schedules: list[np.ndarray]) -> np.ndarray:
    """End-to-end latencies, s, shape (schedules, requests)."""
    windows = [Windows.planned(starts, CORRIDOR.merge_s) for starts in schedules]
    return latencies(trace, windows, MODEL).e2e_s


def gain(rate: float, threshold_s: float, seed: int) -> tuple[float, float]:
    """Violation rate of the draws minus the gate's in one block, and the draws' own rate."""
    rng = stream("steady_latency", rate, seed)
    trace = poisson_trace(rate, rng)
    done_s = trace.arrival_s + latency(trace, [np.empty(0)])[0]
    seen = observable(pd.DataFrame({"arrival_s": trace.arrival_s, "done_s": done_s}))
    gate, _ = decide_schedule(IdleGate(), CORRIDOR, seen)
    draws = CORRIDOR.starts(CORRIDOR.sample(len(gate), DRAWS, rng))
    rates = (latency(trace, [gate["start_s"].to_numpy(), *draws]) > threshold_s).mean(axis=1)
    return float(rates[1:].mean() - rates[0]), float(rates[1:].mean())


def main() -> int:
    """Simulate the blocks of every rate; 0 when no mean gain is significantly above min_gain."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--blocks", type=int, default=60, help="blocks of each rate")
    args = parser.parse_args()
    smallest = Rules().min_gain
    reached = False
    print(f"{'rate':>6}{'threshold':>11}{'random':>10}{'gain':>18}   (points; min_gain "
          f"{100 * smallest:g})")  # fmt: skip
    for rate in RATES_RPS:
        calibration = poisson_trace(rate, stream("steady_latency", rate, "calibration"))
        captured = latency(calibration, [np.empty(0)])[0]
        threshold_s = MULTIPLE * percentile(captured, QUANTILE)
        found = np.array([gain(rate, threshold_s, seed) for seed in range(args.blocks)])
        mean, random = found.mean(axis=0)
        half = stats.t.ppf(0.95, args.blocks - 1) * stats.sem(found[:, 0])
        reached |= bool(mean - half > smallest)
        print(
            f"{rate:>6.2f}{threshold_s:>9.2f} s{100 * random:>10.2f}"
            f"{100 * mean:>10.2f} ± {100 * half:.2f}"
        )
    return int(reached)


if __name__ == "__main__":
    sys.exit(main())
