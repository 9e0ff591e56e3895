"""Drives the real client process against the paced server, and caches the runs that tests share."""

import contextlib
import dataclasses
import json
import os
import signal
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from safesync.sidecar.client.rows import LOOP_LAG
from safesync.tables.arrivals import ARRIVALS
from safesync.tables.requests import REQUESTS

ROOT = Path(__file__).parents[3]
PROMPT_LOW = 1000  # so that the paced server's key is the request_id
KEY = "k3y-of-the-tests"
_ENVIRONMENT = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "SAFESYNC_API_KEY": KEY}
_PATIENCE_S = 30.0


def arrivals(times, prompt_tokens=32, output_tokens=8) -> pd.DataFrame:
    """Return an arrivals table with ids 0, 1, ...; token counts are scalars or one per row."""
    times = np.asarray(times, dtype=float)
    return pd.DataFrame(
        {
            "request_id": np.arange(len(times)),
            "arrival_s": times,
            "prompt_tokens": np.broadcast_to(np.int32(prompt_tokens), times.shape),
            "output_tokens": np.broadcast_to(np.int32(output_tokens), times.shape),
        }
    )


class Paced:
    """The paced server in a process of its own."""

    def __init__(self, **pace):
        flags = []
        for name, value in pace.items():
            values = value if name == "fault" else [value]
            flags += [part for item in values for part in (f"--{name.replace('_', '-')}", item)]
        command = [sys.executable, ROOT / "tests/paced.py", "--prompt-low", PROMPT_LOW, *flags]
        self.process = subprocess.Popen(
            list(map(str, command)), stdout=subprocess.PIPE, text=True, env=_ENVIRONMENT
        )
        self.url = self.process.stdout.readline().split()[-1]

    def get(self, path: str) -> str:
        with urllib.request.urlopen(self.url + path, timeout=10) as response:
            return response.read().decode()

    def metric(self, name: str) -> float:
        lines = self.get("/metrics").splitlines()
        return next(float(line.split()[-1]) for line in lines if line.startswith(f"vllm:{name}{{"))

    def completion(self, prompt: list[int], max_tokens: int) -> None:
        """Send a completion that is nobody's measurement; returns when it is answered."""
        body = json.dumps({"model": "paced", "prompt": prompt, "max_tokens": max_tokens})
        request = urllib.request.Request(
            f"{self.url}/v1/completions",
            data=body.encode(),
            headers={"Authorization": f"Bearer {KEY}", "Content-Type": "application/json"},
        )
        urllib.request.urlopen(request, timeout=10).read()

    def close(self) -> None:
        self.process.terminate()
        self.process.wait(timeout=10)
        self.process.stdout.close()


@dataclasses.dataclass
class Run:
    """What one client process left behind; times in seconds since t0."""

    code: int
    output: str
    folder: Path
    t0_ns: int
    url: str = ""
    requests: pd.DataFrame | None = None
    facts: dict | None = None
    loop_lag: pd.DataFrame | None = None
    locust: dict | None = None
    truth: list[dict] = dataclasses.field(default_factory=list)

    def row(self, request_id: int) -> pd.Series:
        return self.requests.set_index("request_id").loc[request_id]

    def served(self, request_id: int) -> dict:
        """What the server did for a request, its times in seconds since t0."""
        (truth,) = [item for item in self.truth if item["key"] == request_id]
        return truth | {
            "received_s": (truth["received_ns"] - self.t0_ns) / 1e9,
            "writes_s": (np.array(truth["writes_ns"]) - self.t0_ns) / 1e9,
        }

    def lateness(self) -> pd.Series:
        return self.requests["sent_s"] - self.requests["arrival_s"]

    def latency(self) -> pd.Series:
        return self.requests["done_s"] - self.requests["arrival_s"]


class Client:
    """One client process, from its start to its tables."""

    def __init__(self, folder: Path, url: str, rows: pd.DataFrame, key: str = KEY, **changes):
        self.folder = folder
        self.url = url
        ARRIVALS.write(folder / "arrivals.parquet", rows)
        plan = {
            "url": url,
            "model": "paced",
            "arrivals": str(folder / "arrivals.parquet"),
            "requests": str(folder / "requests.parquet"),
            "loop_lag": str(folder / "loop_lag.parquet"),
            "ready": str(folder / "ready.json"),
            "go": str(folder / "go.json"),
            "locust_stats": str(folder / "locust.json"),
            "stop_s": float(rows["arrival_s"].max()) + 10.0,
            "timeout_s": 10.0,
            "prompt_seed": 7,
            "prompt_ids": [PROMPT_LOW, 49_000],
            "processes": 1,
        } | changes
        (folder / "plan.json").write_text(json.dumps(plan))
        self.process = subprocess.Popen(
            [sys.executable, "-m", "safesync.sidecar.client", str(folder / "plan.json")],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env=_ENVIRONMENT | {"SAFESYNC_API_KEY": key},
        )
        self.t0_ns = 0

    def wait_ready(self) -> None:
        deadline = time.monotonic() + _PATIENCE_S
        while not (self.folder / "ready.json").exists():
            if self.process.poll() is not None or time.monotonic() > deadline:
                self.process.kill()
                pytest.fail(f"the client never became ready: {self.process.communicate()[0]}")
            time.sleep(0.01)

    def go(self) -> None:
        self.wait_ready()
        self.t0_ns = time.monotonic_ns() + 200_000_000
        (self.folder / "go.tmp").write_text(json.dumps({"t0_ns": self.t0_ns}))
        (self.folder / "go.tmp").rename(self.folder / "go.json")

    def sleep_until(self, t_s: float) -> None:
        time.sleep(max(0.0, t_s - (time.monotonic_ns() - self.t0_ns) / 1e9))

    def finish(self, paced: Paced | None = None) -> Run:
        output = self.process.communicate(timeout=_PATIENCE_S)[0]
        run = Run(self.process.returncode, output, self.folder, self.t0_ns, self.url)
        if (self.folder / "requests.parquet").exists():
            path = self.folder / "requests.parquet"
            run.requests, run.facts = REQUESTS.read_with_metadata(path)
            run.loop_lag = LOOP_LAG.read(self.folder / "loop_lag.parquet")
            run.locust = json.loads((self.folder / "locust.json").read_text())
        if paced is not None:
            run.truth = json.loads(paced.get("/truth"))
        return run

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        self.process.stdout.close()


@contextlib.contextmanager
def running(folder: Path, rows: pd.DataFrame, changes: dict | None = None, **pace):
    """Yield a client that waits for go, and its paced server; both are gone afterwards."""
    paced = Paced(**pace)
    client = None
    try:
        client = Client(folder, paced.url, rows, **(changes or {}))
        client.wait_ready()
        yield client, paced
    finally:
        if client is not None:
            client.close()
        paced.close()


@pytest.fixture(scope="session")
def make_arrivals():
    return arrivals


@pytest.fixture(scope="session")
def start(tmp_path_factory):
    """Return ``running`` on a folder of its own per call."""

    def start(rows: pd.DataFrame, changes: dict | None = None, **pace):
        return running(tmp_path_factory.mktemp("client"), rows, changes, **pace)

    return start


@pytest.fixture(scope="session")
def measure(start):
    """Run one client against one paced server and return the Run."""

    def measure(rows: pd.DataFrame, changes: dict | None = None, **pace) -> Run:
        with start(rows, changes, **pace) as (client, paced):
            client.go()
            return client.finish(paced)

    return measure


@pytest.fixture
def start_client(tmp_path):
    """Start a client on an address of the test's choice; killed at the end of the test."""
    clients = []

    def start_client(url: str, rows: pd.DataFrame, **changes) -> Client:
        clients.append(Client(tmp_path, url, rows, **changes))
        return clients[-1]

    yield start_client
    for client in clients:
        client.close()


@pytest.fixture(scope="session")
def steady(measure) -> Run:
    """200 requests per second for 3 s, one token after 147 ms."""
    return measure(arrivals(np.arange(600) / 200.0, output_tokens=1), first_token_s=0.147)


@pytest.fixture(scope="session")
def stalled(start) -> Run:
    """50 requests per second for 3 s, served in 0.1 s; the client is stopped from 1.0 to 1.6 s."""
    rows = arrivals(np.arange(150) / 50.0, output_tokens=1)
    with start(rows, first_token_s=0.1) as (client, paced):
        client.go()
        client.sleep_until(1.0)
        client.process.send_signal(signal.SIGSTOP)
        client.sleep_until(1.6)
        client.process.send_signal(signal.SIGCONT)
        return client.finish(paced)
