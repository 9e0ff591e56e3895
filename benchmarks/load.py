"""The load generator beside vLLM's own serving benchmark, on a server that knows the truth.

Run with `python benchmarks/load.py [--processes N]`. A paced server (tests/paced.py) streams 16
tokens per request, the first 50 ms after the request came and one every 10 ms, and notes when each
request came and each token went. It has the last core that this process may use to itself; the
clients, in turn, have the first N. Both replay the same arrivals: Poisson at 50 requests/s for
20 s, then Poisson in steps of 2 s, each a fifth faster than the one before. The truth of a latency
is the server's write minus the *scheduled* arrival, on one monotonic clock. vLLM does not tell its
t0: its first request, due at 0, stands for it. CPU seconds are those from ready to the end with
results at hand. Prints a Markdown table; the exit status is 1 when a bar is missed. It takes some
2.5 minutes; run it on a quiet machine.
"""

import argparse
import contextlib
import json
import os
import resource
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
import psutil

from safesync.sidecar.client.prompts import prompt_tokens
from safesync.tables import write_document
from safesync.tables.arrivals import ARRIVALS
from safesync.tables.requests import REQUESTS

ROOT = Path(__file__).parents[1]
IDS = (1000, 49_000)
SEED = 1
MODEL = "paced"
PROMPT_TOKENS, OUTPUT_TOKENS = 64, 16
FIRST_TOKEN_S, BETWEEN_S = 0.05, 0.01
STEADY_RPS = 50.0
STEP_RPS = 200.0 * 1.2 ** np.arange(14)
LATE_S = 0.010
LATENESS_BAR_MS, TTFT_BAR_MS = 5.0, 2.0
LABELS = {
    "counts": "requests planned, seen by the server, failed",
    "lateness": "lateness p50, p99, ms",
    "came_late": "arrival at the server against the plan p50, p99, ms",
    "ttft_error": "TTFT error p50, p99, ms",
    "e2e_error": "e2e error p50, p99, ms",
    "cpu": "client CPU seconds per 1,000 requests",
    "rising_counts": "rising rate: requests planned, seen, failed",
    "rising_cpu": "rising rate: client CPU seconds per 1,000 requests",
    "rising_rps": f"requests/s until lateness p99 passes {1e3 * LATE_S:g} ms, "
    f"of at most {STEP_RPS[-1]:,.0f}",
    "server_rps": "requests/s until the paced server is as late itself",
}


@dataclass
class Replay:
    """What a client said about one trace, a row per request; times in seconds since its t0."""

    rows: pd.DataFrame  # index request_id: arrival_s, sent_s, ttft_s, e2e_s
    t0_ns: int
    cpu_s: float
    failed: int


def poisson(rng: np.random.Generator, first_id: int, steps: list[tuple[float, float]]):
    """Return arrivals, Poisson at each (rate, seconds) in turn; the very first one is at 0."""
    start_s, times = 0.0, [np.zeros(1)]
    for rate, seconds in steps:
        times.append(start_s + np.sort(rng.uniform(0, seconds, rng.poisson(rate * seconds))))
        start_s += seconds
    arrival_s = np.concatenate(times)
    return pd.DataFrame(
        {
            "request_id": first_id + np.arange(len(arrival_s)),
            "arrival_s": arrival_s,
            "prompt_tokens": np.full(len(arrival_s), PROMPT_TOKENS, dtype=np.int32),
            "output_tokens": np.full(len(arrival_s), OUTPUT_TOKENS, dtype=np.int32),
        }
    )


def on(cores: list[int], *command: str | Path) -> list[str]:
    return ["taskset", "--cpu-list", ",".join(map(str, cores)), *map(str, command)]


@contextlib.contextmanager
def paced_server(core: int) -> Iterator[str]:
    """Yield the address of a paced server of its own on ``core``."""
    flags = {
        "--first-token-s": FIRST_TOKEN_S,
        "--inter-token-s": BETWEEN_S,
        "--slots": 100_000,
        "--prompt-low": IDS[0],
        "--model": MODEL,
    }
    flat = [str(part) for pair in flags.items() for part in pair]
    command = on([core], sys.executable, ROOT / "tests/paced.py", "--uvloop", *flat)
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        yield process.stdout.readline().split()[-1]
    finally:
        process.kill()
        process.wait()


def truth(url: str) -> pd.DataFrame:
    """Return what the server did: per request_id, when it came and its tokens went, in ns."""
    with urllib.request.urlopen(f"{url}/truth") as response:
        seen = json.load(response)
    return pd.DataFrame(
        {
            "request_id": [item["key"] for item in seen],
            "received_ns": [item["received_ns"] for item in seen],
            "first_ns": [item["writes_ns"][0] for item in seen],
            "last_ns": [item["writes_ns"][-1] for item in seen],
        }
    ).set_index("request_id")


def cpu_seconds(process: psutil.Process) -> float:
    times = [one.cpu_times() for one in (process, *process.children(recursive=True))]
    return sum(time.user + time.system for time in times)


def run_safesync(url: str, arrivals: pd.DataFrame, cores: list[int], folder: Path) -> Replay:
    """Replay ``arrivals`` with safesync's client, one process per core."""
    ARRIVALS.write(folder / "arrivals.parquet", arrivals)
    plan = {
        "url": url,
        "model": MODEL,
        **{name: str(folder / name) for name in ("requests", "loop_lag", "ready", "go")},
        "arrivals": str(folder / "arrivals.parquet"),
        "stop_s": float(arrivals["arrival_s"].max()) + 30.0,
        "timeout_s": 30.0,
        "prompt_seed": SEED,
        "prompt_ids": list(IDS),
        "processes": len(cores),
    }
    write_document(folder / "plan.json", plan)
    module = ("-m", "safesync.sidecar.client", folder / "plan.json")
    process = psutil.Popen(on(cores, sys.executable, *module), stdout=subprocess.DEVNULL)
    try:
        while process.poll() is None and not (folder / "ready").exists():
            time.sleep(0.02)
        if process.poll() is not None:
            sys.exit(f"the load generator ended with status {process.returncode} before t0")
        before_s = cpu_seconds(process)
        t0_ns = time.monotonic_ns() + 500_000_000
        write_document(folder / "go", {"t0_ns": t0_ns})
        _, status, used = os.wait4(process.pid, 0)
    finally:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.kill()
    if status:
        sys.exit(f"the load generator ended with status {os.waitstatus_to_exitcode(status)}")
    requests = REQUESTS.read(folder / "requests").set_index("request_id")
    rows = pd.DataFrame(
        {
            "arrival_s": requests["arrival_s"],
            "sent_s": requests["sent_s"],
            "ttft_s": requests["first_token_s"] - requests["arrival_s"],
            "e2e_s": requests["done_s"] - requests["arrival_s"],
        }
    )
    failed = int((requests["status"] != "ok").sum())
    return Replay(rows, t0_ns, used.ru_utime + used.ru_stime - before_s, failed)


class Vllm:
    """vLLM's serving benchmark in a process of its own, which replays ``traces`` one by one."""

    def __init__(self, url: str, traces: list[pd.DataFrame], core: int, folder: Path):
        job = {"url": url, "model": MODEL, "traces": [_requests(trace) for trace in traces]}
        (folder / "job.json").write_text(json.dumps(job))
        self.log = folder / "vllm.log"
        self.process = subprocess.Popen(
            on([core], sys.executable, ROOT / "benchmarks/load_vllm.py", folder / "job.json"),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.log.open("w"),
            text=True,
        )

    def __enter__(self) -> "Vllm":
        self._answer()  # it is ready: all that it imports is loaded
        return self

    def __exit__(self, *_) -> None:
        self.process.kill()
        self.process.wait()

    def _answer(self) -> str:
        line = self.process.stdout.readline()
        if not line:
            sys.exit(f"{self.log.read_text()}\nvLLM's benchmark ended with no answer")
        return line

    def replay(self, trace: pd.DataFrame) -> Replay:
        """Replay the next of the traces, which is ``trace``."""
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        said = json.loads(self._answer())
        start_s = np.array(said["start_s"])
        rows = pd.DataFrame(
            {
                "arrival_s": trace["arrival_s"].to_numpy(),
                "sent_s": start_s - start_s[0],
                "ttft_s": said["ttft_s"],
                "e2e_s": said["latency_s"],
            },
            index=trace["request_id"],
        )
        return Replay(rows, int(start_s[0] * 1e9), said["cpu_s"], said["failed"])


def _requests(trace: pd.DataFrame) -> list[dict]:
    return [
        {
            "prompt": prompt_tokens(SEED, row.request_id, row.prompt_tokens, IDS),
            "output_tokens": row.output_tokens,
            "arrival_s": row.arrival_s,
        }
        for row in trace.itertuples(index=False)
    ]


def against(replay: Replay, seen: pd.DataFrame) -> pd.DataFrame:
    """Return the replay's rows beside the server's truth, in seconds since the replay's t0."""
    real = (seen - replay.t0_ns) / 1e9
    rows = replay.rows.join(real.rename(columns=lambda name: name.replace("_ns", "_s")), how="left")
    rows["lateness_s"] = rows["sent_s"] - rows["arrival_s"]
    rows["came_late_s"] = rows["received_s"] - rows["arrival_s"]
    rows["ttft_error_s"] = rows["ttft_s"] - (rows["first_s"] - rows["arrival_s"])
    rows["e2e_error_s"] = rows["e2e_s"] - (rows["last_s"] - rows["arrival_s"])
    served_s = FIRST_TOKEN_S + (OUTPUT_TOKENS - 1) * BETWEEN_S
    rows["server_late_s"] = rows["last_s"] - rows["received_s"] - served_s
    return rows


def held_rps(rows: pd.DataFrame, column: str, step_s: float) -> float:
    """Return the last rate before p99 of ``column`` passes the limit for two steps in a row."""
    step = np.minimum(rows["arrival_s"] // step_s, len(STEP_RPS) - 1).astype(int)
    late = (rows.groupby(step)[column].quantile(0.99) > LATE_S).to_numpy()
    lost = np.flatnonzero(late & np.append(late[1:], True))
    held = lost[0] if len(lost) else len(late)
    return float(STEP_RPS[held - 1]) if held else 0.0


def main() -> int:
    """Run both clients and print the table; 0 when every bar is met."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--processes", type=int, default=1, help="of safesync, a core each")
    parser.add_argument("--seconds", type=float, default=20.0, help="at the steady rate")
    parser.add_argument("--step-s", type=float, default=2.0, help="seconds of each rising rate")
    chosen = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))  # ends all children
    *clients, server = sorted(os.sched_getaffinity(0))
    if len(clients) < chosen.processes:
        sys.exit(f"--processes {chosen.processes}: expected that many cores and one for the server")
    clients = clients[: chosen.processes]
    most_files = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (most_files, most_files))  # also of the server
    rng = np.random.default_rng(SEED)
    steady = poisson(rng, 0, [(STEADY_RPS, chosen.seconds)])
    steps = poisson(rng, len(steady), [(rate, chosen.step_s) for rate in STEP_RPS])
    safesync, vllm = [], []
    with (
        tempfile.TemporaryDirectory() as name,
        paced_server(server) as ours,
        paced_server(server) as theirs,
        Vllm(theirs, [steady, steps], clients[0], Path(name)) as other,
    ):
        for index, trace in enumerate((steady, steps)):
            safesync.append(run_safesync(ours, trace, clients, Path(name) / str(index)))
            vllm.append(other.replay(trace))
        return report(
            figures(*safesync, truth(ours), chosen.step_s),
            figures(*vllm, truth(theirs), chosen.step_s),
        )


def figures(
    calm: Replay, steps: Replay, seen: pd.DataFrame, step_s: float
) -> dict[str, list[float]]:
    """Return the figures of one client under the keys of LABELS."""
    calm_rows, step_rows = against(calm, seen), against(steps, seen)
    quantiles = {
        key: [1e3 * float(calm_rows[f"{key}_s"].abs().quantile(q)) for q in (0.5, 0.99)]
        for key in ("lateness", "came_late", "ttft_error", "e2e_error")
    }
    return quantiles | {
        "counts": _counts(calm, calm_rows),
        "cpu": [1e3 * calm.cpu_s / len(calm_rows)],
        "rising_counts": _counts(steps, step_rows),
        "rising_cpu": [1e3 * steps.cpu_s / len(step_rows)],
        "rising_rps": [held_rps(step_rows, "lateness_s", step_s)],
        "server_rps": [held_rps(step_rows, "server_late_s", step_s)],
    }


def _counts(replay: Replay, rows: pd.DataFrame) -> list[float]:
    return [len(rows), int(rows["received_s"].notna().sum()), replay.failed]


def _shown(value: float) -> str:
    return f"{value:.2f}" if isinstance(value, float) and value < 100 else f"{value:,.0f}"


def report(safesync: dict[str, list[float]], vllm: dict[str, list[float]]) -> int:
    """Print the table and the bars; 0 when all are met."""
    print(f"| {STEADY_RPS:g} requests/s | safesync | vLLM |\n|---|---|---|")
    for key, label in LABELS.items():
        shown = [", ".join(map(_shown, found[key])) for found in (safesync, vllm)]
        print(f"| {label} | {shown[0]} | {shown[1]} |")
    planned, seen, failed = safesync["counts"]
    bars = {
        "every request was seen, none failed": planned == seen and failed == 0,
        f"lateness p99 at most {LATENESS_BAR_MS:g} ms": safesync["lateness"][1] <= LATENESS_BAR_MS,
        f"TTFT error p99 at most {TTFT_BAR_MS:g} ms": safesync["ttft_error"][1] <= TTFT_BAR_MS,
        "no more CPU per request than vLLM": all(
            safesync[key] <= vllm[key] for key in ("cpu", "rising_cpu")
        ),
        "no less rate than vLLM": safesync["rising_rps"] >= vllm["rising_rps"],
    }
    print()
    for what, holds in bars.items():
        print(f"{what}: {'holds' if holds else 'FAILS'}")
    return int(not all(bars.values()))


if __name__ == "__main__":
    sys.exit(main())
