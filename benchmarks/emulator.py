"""How fast the emulator replays, and whether its cost is linear in the requests.

    python benchmarks/emulator.py [--largest 10000000] [--day 4000000] [--threads 2]
                                   [--scored 100000000] [--folder DIR]

Compilation excluded. For two sidecars, the default configuration's (vLLM on two CPU cores, bursts
of 6 requests/s over 1, prompts of 64 and answers of 32 tokens; costs as fitted to it) and a
GPU-like one (8 requests/s, answers of 128 tokens): many schedules of one short trace, on one core
and on several, and single long replays up to the largest, one core. Then a day of traffic in parts,
with the memory that it takes. Last, a table of emulated requests is written, scored from its file
by a process of its own, and removed; the exit status is 1 when its violations are not those counted
while it was written, or a bar of 120 s per 10^8 rows or 4 GB is missed.
"""

import argparse
import multiprocessing
import resource
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from safesync.emulator import (
    Contention,
    EngineModel,
    Limits,
    StepTime,
    Trace,
    Windows,
    latencies,
    simulate,
    simulate_stream,
)
from safesync.protocol.scores import score_table
from safesync.tables.requests import REQUESTS

MERGE_S = 8.0
DAY_S = 86_400.0
PART_ROWS = 2**20
THRESHOLD_S = 1.0
SCORING_S, SCORING_BYTES = 120e-8, 4e9  # per row, and of all
SIDECARS = {
    "default": {
        "step": {"base_s": 0.0158, "per_decode_s": 0.00094, "per_prefill_token_s": 0.00054},
        "limits": {"max_num_seqs": 64, "max_model_len": 1024, "block_size": 32, "kv_blocks": 2911},
        "contention": {"factor": 1.28, "delay_s": 0.0043},
        "rps": (1.0, 6.0),
        "output": 32,
        "horizon_s": 100.0,
    },
    "gpu": {
        "step": {"base_s": 0.006, "per_decode_s": 0.0001, "per_prefill_token_s": 0.00002},
        "limits": {"max_num_seqs": 256, "max_model_len": 4096, "kv_blocks": 20_000},
        "contention": {"factor": 1.7},
        "rps": (8.0, 8.0),
        "output": 128,
        "horizon_s": 600.0,
    },
}


def model_of(sidecar):
    return EngineModel(
        limits=Limits(**sidecar["limits"]),
        step=StepTime(**sidecar["step"]),
        contention=(Contention(**sidecar["contention"]),),
        client_overhead_s=0.004,
    )


def trace_of(sidecar, size, first_s=0.0):
    """Poisson arrivals from `first_s` on, at the higher rate for 10 of every 30 s."""
    quiet, busy = sidecar["rps"]
    rng = np.random.default_rng([size, int(first_s)])
    # arrivals of unit rate, put where the expected number of arrivals reaches them
    expected = np.cumsum(rng.exponential(1.0, size))
    per_period = 10 * busy + 20 * quiet
    period, rest = np.divmod(expected, per_period)
    inside = np.where(rest < 10 * busy, rest / busy, 10 + (rest - 10 * busy) / quiet)
    arrival_s = first_s + 30 * period + inside
    return Trace.of(arrival_s, np.full(size, 64), np.full(size, sidecar["output"]))


def mean_rps(sidecar):
    quiet, busy = sidecar["rps"]
    return (10 * busy + 20 * quiet) / 30


def windows_of(end_s, first_s=10.0):
    return Windows.planned(np.arange(first_s, end_s + first_s, 30.0), MERGE_S)


def best_of(repeats, run):
    seconds = []
    for _ in range(repeats):
        begin = time.perf_counter()
        result = run()
        seconds.append(time.perf_counter() - begin)
    return min(seconds), result


def growth(sidecar, sizes):
    """Long replays; of short ones so many different ones that the caches are as cold."""
    model = model_of(sidecar)
    print("requests    seconds   requests/s   times real time   steps/request   ns/step")
    for size in sizes:
        traces = [trace_of(sidecar, size, first_s) for first_s in range(max(1, 10**6 // size))]
        windows = windows_of(traces[-1].arrival_s[-1])
        begin = time.perf_counter()
        steps = sum(simulate(trace, windows, model).steps for trace in traces)
        seconds = (time.perf_counter() - begin) / len(traces)
        print(
            f"{size:>8}  {seconds:>9.4f}  {size / seconds:>11,.0f}  "
            f"{size / mean_rps(sidecar) / seconds:>16,.0f}  "
            f"{steps / len(traces) / size:>14.1f}  {1e9 * seconds * len(traces) / steps:>8.0f}"
        )


def draws(sidecar, count, threads):
    """Replays of one short trace under many schedules: what an envelope of draws costs."""
    model, horizon_s = model_of(sidecar), sidecar["horizon_s"]
    trace = trace_of(sidecar, int(horizon_s * mean_rps(sidecar)))
    schedules = [windows_of(horizon_s, first_s) for first_s in np.linspace(1, 20, count)]
    print(f"{count} schedules of {horizon_s:.0f} s, {trace.arrival_s.size} requests")
    for used in sorted({1, threads}):
        seconds, _ = best_of(5, lambda n=used: latencies(trace, schedules, model, threads=n))
        print(
            f"  {used} thread{'s' if used > 1 else ''}: {count / seconds:,.0f} replays/s, "
            f"{1e3 * seconds / count:.3f} ms each, {count * trace.arrival_s.size / seconds:,.0f} "
            f"requests/s, {count * horizon_s / seconds / used:,.0f} times real time per core"
        )


def day(sidecar, size):
    """A day of `size` requests, an hour at a time: what is held does not grow with the day."""
    busier = sidecar | {"rps": (size / DAY_S, size / DAY_S)}
    hour = size // 24

    def hours():
        first_s = 0.0
        for _ in range(24):
            part = trace_of(busier, hour, first_s)
            first_s = part.arrival_s[-1]
            yield part

    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    begin, done, end_s = time.perf_counter(), 0, 0.0
    for replay in simulate_stream(hours(), windows_of(DAY_S), model_of(sidecar)):
        done += replay.trace.arrival_s.size
        end_s = replay.trace.arrival_s[-1]
    seconds = time.perf_counter() - begin
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
    print(
        f"a day of {done:,} requests in 24 parts: {seconds:.2f} s with the making of the arrivals, "
        f"{end_s / seconds:,.0f} times real time, {grown:.0f} MiB more at the peak"
    )


def write_requests(path, sidecar, size):
    """Write REQUESTS of one long replay, one in a thousand timed out; returns the violations."""

    def parts():
        first_s, left = 0.0, size
        while left:
            rows = min(left, PART_ROWS)
            part = trace_of(sidecar, rows, first_s)
            first_s, left = part.arrival_s[-1], left - rows
            yield part

    violations = 0
    with pq.ParquetWriter(path, REQUESTS.schema, compression="zstd") as file:
        for replay in simulate_stream(parts(), Windows.none(), model_of(sidecar)):
            rows = replay.to_requests()
            rows.loc[::1000, "status"] = "timeout"
            late = rows["done_s"] - rows["arrival_s"] > THRESHOLD_S
            violations += int((late | (rows["status"] != "ok")).sum())
            file.write_table(pa.Table.from_pandas(rows, REQUESTS.schema, preserve_index=False))
    return violations


def scored(path):
    """What the table says, the seconds that it took, and this process's peak memory, bytes."""
    begin = time.perf_counter()
    found = score_table(path, slo_metric="e2e", threshold_s=THRESHOLD_S)
    seconds = time.perf_counter() - begin
    # not getrusage: its peak outlives exec, and is that of the process that started this one
    status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return found, seconds, 1024 * int(status["VmHWM"].split()[0])


def scoring(sidecar, size, folder):
    """Score a table of `size` rows; whether it is right, fast and small enough."""
    with tempfile.TemporaryDirectory(dir=folder) as place:
        path = Path(place) / "requests.parquet"
        begin = time.perf_counter()
        violations = write_requests(path, sidecar, size)
        written = time.perf_counter() - begin
        with multiprocessing.get_context("spawn").Pool(1) as pool:
            found, seconds, peak = pool.apply(scored, (path,))
        print(
            f"\nscoring {found['requests']:,} rows of Parquet ({path.stat().st_size / 1e9:.2f} GB, "
            f"written in {written:.0f} s): {seconds:.1f} s, peak memory {peak / 1e9:.2f} GB; "
            f"{found['violations']:,} violations, e2e p99 of successes "
            f"{found['e2e_p99_ok_s']:.4f} s (within {found['percentile_error']:.3%})"
        )
    right = (found["requests"], found["violations"]) == (size, violations)
    return right and seconds <= SCORING_S * size and peak <= SCORING_BYTES


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--largest", type=int, default=10**6, help="most requests of one replay")
    parser.add_argument("--day", type=int, default=10**6, help="requests of the day")
    parser.add_argument("--threads", type=int, default=2, help="replays at once, beside one")
    parser.add_argument("--scored", type=int, default=10**7, help="rows of the table to score")
    parser.add_argument("--folder", help="where the table is written; default: the temporary one")
    chosen = parser.parse_args()
    sizes = [10**power for power in range(4, 9) if 10**power <= chosen.largest]
    begin = time.perf_counter()
    simulate(trace_of(SIDECARS["gpu"], 10), windows_of(10.0), model_of(SIDECARS["gpu"]))
    print(
        f"first replay (compiled or read from numba's cache): {time.perf_counter() - begin:.1f} s"
    )
    # before the long replays, whose peak would hide it
    day(SIDECARS["gpu"], chosen.day)
    for name, sidecar in SIDECARS.items():
        quiet, busy = sidecar["rps"]
        print(f"\n{name}: {quiet:g} to {busy:g} requests/s, {sidecar['output']} output tokens")
        draws(sidecar, 200, chosen.threads)
        growth(sidecar, sizes)
    return 0 if scoring(SIDECARS["default"], chosen.scored, chosen.folder) else 1


if __name__ == "__main__":
    sys.exit(main())
