"""Several client processes for one load, each with its share of the arrivals.

A shard is a client of its own on a plan of its own: every n-th arrival, the same go file and
therefore the same t0. Requests are told apart by their id in every prompt, whichever shard sends
them. One Python process uses one core, so shards are for rates that one core cannot send on time.
"""

import contextlib
import ctypes
import dataclasses
import functools
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pandas as pd

from safesync.sidecar.client.connections import API_KEY, request_headers
from safesync.sidecar.client.plan import Plan, read_arrivals
from safesync.sidecar.client.rows import LOOP_LAG
from safesync.sidecar.client.statistics import merged_figures
from safesync.tables import read_document, write_document
from safesync.tables.arrivals import ARRIVALS
from safesync.tables.requests import REQUESTS

_POLL_S = 0.05
_LIBC = ctypes.CDLL(None)
_PR_SET_PDEATHSIG = 1


def run_shards(plan: Plan) -> int:
    """Run ``plan`` in ``plan.processes`` processes (one per arrival at most), merge their tables.

    Returns what a client of one process returns. A shard that dies ends all others at once, and no
    table is written; a signal goes on to every shard.
    """
    arrivals = read_arrivals(plan.arrivals)
    request_headers(os.environ.get(API_KEY) or None)  # a bad key is refused once, here
    plan.requests.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".shards.", dir=plan.requests.parent) as folder:
        plans = _split(plan, arrivals, Path(folder))
        with _Shards(plans) as shards:
            ready = False
            while shards.running():
                if not ready and all(part.ready.exists() for part in plans):
                    write_document(plan.ready, {"pid": os.getpid(), "requests": len(arrivals)})
                    ready = True
                time.sleep(_POLL_S)
            if shards.fault is not None:
                print(f"client: {shards.fault}", file=sys.stderr)
                return 1
        if all(part.requests.exists() for part in plans):
            _merge(plan, plans, arrivals)
        return 0 if shards.signal is None else 128 + shards.signal


class _Shards:
    """Context manager: the processes of ``plans``; none is left when the context is."""

    def __init__(self, plans: list[Plan]):
        self._plans = plans
        self._processes: list[subprocess.Popen] = []
        self.signal: signal.Signals | None = None
        self.fault: str | None = None

    def __enter__(self) -> "_Shards":
        cores = sorted(os.sched_getaffinity(0))
        spare = len(self._plans) > len(cores)
        for index, plan in enumerate(self._plans):
            path = plan.requests.with_name("plan.json")
            write_document(
                path,
                {name: str(v) if isinstance(v, Path) else v for name, v in vars(plan).items()},
            )
            self._processes.append(
                subprocess.Popen(
                    [sys.executable, "-m", "safesync.sidecar.client", str(path)],
                    stdin=subprocess.DEVNULL,
                    preexec_fn=functools.partial(
                        _bind, os.getpid(), cores if spare else cores[index : index + 1]
                    ),
                )
            )
        # from here on; a signal before ends this process, and the kernel ends the shards
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._pass_on)
        return self

    def __exit__(self, *_) -> None:
        for process in self._processes:
            process.kill()
            process.wait()

    def running(self) -> bool:
        """Return whether to go on waiting; ``fault`` says why not when a shard has died."""
        codes = [process.poll() for process in self._processes]
        for index, code in enumerate(codes):
            if code is not None and not self._expected(code):
                how = (
                    f"was killed by {signal.Signals(-code).name}"
                    if code < 0
                    else f"exited with status {code}"
                )
                self.fault = f"process {index + 1} of {len(codes)} {how}; no table is written"
                return False
        return None in codes

    def _expected(self, code: int) -> bool:
        return code == 0 or (self.signal is not None and code in (128 + self.signal, -self.signal))

    def _pass_on(self, number: int, _frame) -> None:
        self.signal = signal.Signals(number)
        for process in self._processes:
            with contextlib.suppress(ProcessLookupError):
                process.send_signal(number)


def _bind(parent: int, cores: list[int]) -> None:
    """Keep this process on ``cores``, and let the kernel end it when ``parent`` ends."""
    os.sched_setaffinity(0, cores)
    _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:  # it ended before the kernel was told
        os.kill(os.getpid(), signal.SIGKILL)


def _split(plan: Plan, arrivals: pd.DataFrame, folder: Path) -> list[Plan]:
    """Return the plans of the shards; the i-th has the arrivals i, i + n, i + 2n, ..."""
    count = min(plan.processes, len(arrivals))
    plans = []
    for index in range(count):
        own = folder / str(index)
        part = dataclasses.replace(
            plan,
            arrivals=own / "arrivals.parquet",
            requests=own / "requests.parquet",
            loop_lag=own / "loop_lag.parquet",
            locust_stats=own / "locust_stats.json",
            ready=own / "ready.json",
            processes=1,
        )
        ARRIVALS.write(part.arrivals, arrivals.iloc[index::count])
        plans.append(part)
    return plans


def _merge(plan: Plan, plans: list[Plan], arrivals: pd.DataFrame) -> None:
    """Write the tables of ``plan`` from those of its shards, requests in the arrivals' order.

    The loop's lag at a tick is that of the worst shard: a quantile over all samples would hide a
    stall of one shard behind the others.
    """
    lag = pd.concat([LOOP_LAG.read(part.loop_lag) for part in plans])
    parts = [REQUESTS.read_with_metadata(part.requests) for part in plans]
    facts = parts[0][1] | {
        "gc_collections": sum(facts["gc_collections"] for _, facts in parts),
        "processes": len(plans),
    }
    LOOP_LAG.write(plan.loop_lag, lag.groupby("t_s", as_index=False)["lag_s"].max(), facts)
    if plan.locust_stats is not None:
        figures = [read_document(part.locust_stats) for part in plans]
        write_document(plan.locust_stats, merged_figures(figures))
    counts = {"prompt_tokens": "Int32", "output_tokens": "Int32"}  # null where never told
    rows = pd.concat([rows.astype(counts) for rows, _ in parts]).set_index("request_id")
    REQUESTS.write(plan.requests, rows.loc[arrivals["request_id"]].reset_index(), facts)
