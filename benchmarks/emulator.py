"""How fast the emulator replays, and whether its cost is linear in the requests.

    python benchmarks/emulator.py [--largest 10000000]

One core, compilation excluded. Prints a table for two sidecars: the laptop default (vLLM on two
CPU cores, 64 prompt and 16 output tokens, 1.8 requests/s on average) and a GPU-like one (8
requests/s, 128 output tokens); then replays of many short schedules, and the growth.
"""

import argparse
import time

import numpy as np

from safesync.emulator import (
    Contention,
    EngineModel,
    Limits,
    StepTime,
    Trace,
    Windows,
    latencies,
    simulate,
)

MERGE_S = 8.0
SIDECARS = {
    "cpu": {
        "step": {"base_s": 0.053, "per_decode_s": 0.002, "per_prefill_token_s": 0.00032},
        "limits": {"max_num_seqs": 64, "max_model_len": 1024, "block_size": 32, "kv_blocks": 2911},
        "rps": 1.8,
        "output": 16,
    },
    "gpu": {
        "step": {"base_s": 0.006, "per_decode_s": 0.0001, "per_prefill_token_s": 0.00002},
        "limits": {"max_num_seqs": 256, "max_model_len": 4096, "kv_blocks": 20_000},
        "rps": 8.0,
        "output": 128,
    },
}


def model_of(sidecar):
    return EngineModel(
        sidecar="benchmark",
        regime="steady",
        limits=Limits(**sidecar["limits"]),
        step=StepTime(**sidecar["step"]),
        contention=(Contention(factor=1.7),),
        client_overhead_s=0.012,
    )


def trace_of(sidecar, size):
    rng = np.random.default_rng(size)
    arrival_s = np.cumsum(rng.exponential(1 / sidecar["rps"], size))
    return Trace.of(arrival_s, np.full(size, 64), np.full(size, sidecar["output"]))


def windows_of(trace, first_s=10.0):
    return Windows.planned(np.arange(first_s, trace.arrival_s[-1] + first_s, 30.0), MERGE_S)


def best_of(repeats, run):
    seconds = []
    for _ in range(repeats):
        begin = time.perf_counter()
        result = run()
        seconds.append(time.perf_counter() - begin)
    return min(seconds), result


def growth(sidecar, sizes):
    model = model_of(sidecar)
    print("requests    seconds   requests/s   times real time   steps/request   ns/step")
    for size in sizes:
        trace = trace_of(sidecar, size)
        windows = windows_of(trace)
        repeats = 5 if size <= 100_000 else 1
        seconds, replay = best_of(repeats, lambda t=trace, w=windows: simulate(t, w, model))
        print(
            f"{size:>8}  {seconds:>9.4f}  {size / seconds:>11,.0f}  "
            f"{trace.arrival_s[-1] / seconds:>16,.0f}  {replay.steps / size:>14.1f}  "
            f"{1e9 * seconds / replay.steps:>8.0f}"
        )


def draws(sidecar, horizon_s, count):
    """Replays of one short trace under many schedules: what an envelope of draws costs."""
    model = model_of(sidecar)
    trace = trace_of(sidecar, int(horizon_s * sidecar["rps"]))
    schedules = [windows_of(trace, first_s) for first_s in np.linspace(1, 20, count)]
    seconds, _ = best_of(3, lambda: latencies(trace, schedules, model))
    print(
        f"{count} schedules of {horizon_s:.0f} s, {trace.arrival_s.size} requests: "
        f"{count / seconds:,.0f} replays/s, {1e3 * seconds / count:.3f} ms each, "
        f"{count * horizon_s / seconds:,.0f} times real time"
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--largest", type=int, default=10**6, help="most requests of one replay")
    largest = parser.parse_args().largest
    sizes = [10**power for power in range(4, 9) if 10**power <= largest]
    warm = trace_of(SIDECARS["cpu"], 10)
    begin = time.perf_counter()
    simulate(warm, windows_of(warm), model_of(SIDECARS["cpu"]))
    print(
        f"first replay (compiled or read from numba's cache): {time.perf_counter() - begin:.1f} s"
    )
    for (name, sidecar), horizon_s in zip(SIDECARS.items(), (100.0, 600.0), strict=True):
        print(f"\n{name}: {sidecar['rps']} requests/s, {sidecar['output']} output tokens")
        draws(sidecar, horizon_s, 100)
        growth(sidecar, sizes)


if __name__ == "__main__":
    main()
