"""One measurement: a server of its own, real load, real merges, and what came of them."""

import secrets
import shutil
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow.parquet as pq

from safesync.sidecar.background.start import Background
from safesync.sidecar.figures import figures
from safesync.sidecar.host import core_map, environment, git_commit, machine_to_oneself
from safesync.sidecar.model import vocabulary_size
from safesync.sidecar.processes import Broken, Child, Processes
from safesync.sidecar.server import Server, check_answers, start_server, wait_healthy, warm_up
from safesync.sidecar.telemetry import Telemetry, kv_cache, with_loop_lag
from safesync.sidecar.version import MEASUREMENT_VERSION
from safesync.tables import write_document
from safesync.tables.arrivals import ARRIVALS, arrivals_sha256
from safesync.tables.merges import MERGES
from safesync.tables.requests import REQUESTS
from safesync.tables.schedule import SCHEDULE
from safesync.tables.telemetry import TELEMETRY

LEAD_S = 2.0
_METRICS_TIMEOUT_S = 10.0


@dataclass(frozen=True)
class Measurement:
    """What one measurement reads, runs and writes.

    The sections are those of the config, as plain values; ``identity`` holds run, regime, seed,
    policy and draw. ``scratch`` holds the merges' checkpoints, so it must be on the disk that
    training would write to; it is removed at the end, however that comes.
    """

    identity: dict
    horizon_s: float
    sidecar: dict
    model_name: str
    trust_remote_code: bool
    cores: dict
    client: dict
    merge: dict
    background: dict
    arrivals: Path
    schedule: Path
    model: Path
    requests: Path
    merges: Path
    telemetry: Path
    manifest: Path
    scratch: Path
    log_folder: Path

    def run(self, progress=lambda line: None) -> None:
        """Measure, and write the four outputs; raises Broken (and writes none) when it can't.

        ``progress`` is called with one line per stage.
        """
        arrivals = ARRIVALS.read(self.arrivals)
        if arrivals.empty:
            raise Broken(f"{self.arrivals}: holds no arrivals; expected at least one")
        windows = SCHEDULE.read(self.schedule).query("draw == @self.identity['draw']")
        self.log_folder.mkdir(parents=True, exist_ok=True)
        shutil.rmtree(self.scratch, ignore_errors=True)
        self.scratch.mkdir(parents=True)
        try:
            with (
                machine_to_oneself(lambda: progress("waiting for another measurement here")),
                Processes(self.scratch) as processes,
            ):
                tables = _Run(self, processes, arrivals, windows, progress).measure()
            self._write(*tables)
        finally:
            shutil.rmtree(self.scratch, ignore_errors=True)

    def _write(self, requests, merges, telemetry, manifest) -> None:
        REQUESTS.write(self.requests, requests, self.identity)
        MERGES.write(self.merges, merges, self.identity)
        TELEMETRY.write(self.telemetry, telemetry, self.identity)
        # last: a manifest stands for a measurement that is complete
        write_document(self.manifest, manifest)


class _Run:
    """The steps of one measurement, inside the lifetime of its processes."""

    def __init__(self, job: Measurement, processes, arrivals, windows, progress):
        self.job = job
        self.processes: Processes = processes
        self.scratch = job.scratch
        self.arrivals: pd.DataFrame = arrivals
        self.windows: pd.DataFrame = windows
        self.progress = progress
        self.cores = core_map(job.cores)
        self.prompt_seed = secrets.randbits(63)
        self.stop_s = job.horizon_s + job.client["drain_s"]

    def measure(self) -> tuple[pd.DataFrame, pd.DataFrame, pd.DataFrame, dict]:
        job = self.job
        started = datetime.now(UTC)
        self._check_prompt_ids()
        server = start_server(
            self.processes,
            job.sidecar,
            job.model.resolve(),
            job.model_name,
            self.cores["sidecar"],
            job.log_folder / "server.log",
            trust_remote_code=job.trust_remote_code,
        )
        ranks = self._start_ranks()
        client = self._start_client(server)
        background = self._start_background()
        self.progress(f"waiting for the server at {server.url}")
        healthy_s = wait_healthy(self.processes, server, job.sidecar["start_timeout_s"])
        medians = self._warm_up(server)
        self.progress(f"server ready after {healthy_s:.0f} s, warm-up medians {_listed(medians)} s")
        cache = kv_cache(_metrics(server))
        awaited = {self.scratch / f"rank.{rank}": child for rank, child in enumerate(ranks)}
        self._wait_ready({self.scratch / "client": client} | awaited | background.awaited)
        t0_ns, t0_unix_ns = self._go()
        telemetry = Telemetry(server.url, server.headers(), t0_ns)
        telemetry.start()
        self._attend(client, ranks, t0_ns)
        sampled = telemetry.stop()
        beside = background.stop()
        requests = REQUESTS.read(self.scratch / "requests.parquet")
        unanswered = int((requests["status"] != "ok").sum())
        check_answers(server, next(self._warm_prompts()), unanswered, self.job.client["timeout_s"])
        if server.child:
            self.processes.stop(server.child)
        merges = MERGES.read(self.scratch / "merges.parquet") if ranks else MERGES.empty()
        lag = pq.read_table(self.scratch / "loop_lag.parquet").to_pandas()
        sampled = with_loop_lag(sampled, lag)
        self._check_rows(requests, merges)
        manifest = {
            **job.identity,
            "measurement_version": MEASUREMENT_VERSION,
            "start": started.isoformat(timespec="seconds"),
            "t0_unix_ns": t0_unix_ns,
            "t0_monotonic_ns": t0_ns,
            "horizon_s": job.horizon_s,
            "arrivals_sha256": arrivals_sha256(self.arrivals),
            "prompt_seed": self.prompt_seed,
            "server_start_s": healthy_s,
            "warm_up_median_s": medians,
            "attached": server.child is None,
            "kv_cache": cache,
            "cores": self.cores,
            "client_nice": client.nice,
            "client_nice_granted": client.raised,
            "background": beside,
            "config": {
                "sidecar": job.sidecar,
                "client": job.client,
                "merge": job.merge,
                "background": job.background,
                "model": job.model_name,
            },
            "git_commit": git_commit(),
            "figures": figures(requests, merges, sampled, lag, beside),
            **environment(),
        }
        return requests, merges, sampled, manifest

    def _check_prompt_ids(self) -> None:
        low, high = self.job.sidecar["prompt_ids"]
        config = self.job.model / "config.json"
        if config.is_file() and not 0 <= low < high <= vocabulary_size(self.job.model):
            raise Broken(
                f"config sidecar.prompt_ids: [{low}, {high}] is outside the model's vocabulary "
                f"[0, {vocabulary_size(self.job.model)}]"
            )

    def _start_ranks(self) -> list[Child]:
        if self.windows.empty:
            return []
        merge = self.job.merge
        plan = {
            "ranks": merge["ranks"],
            "backend": merge["backend"],
            "rendezvous": str(self.scratch / "rendezvous"),
            "windows": self.windows[["merge", "step", "start_s"]].to_dict("records"),
            "merge_s": merge["merge_s"],
            "style": merge["style"],
            "bandwidth_bytes_per_s": merge["bandwidth_bytes_per_s"],
            "passes": merge["passes"],
            "horizon_s": self.job.horizon_s,
            "parameters": merge["parameters"],
            "fragment_parameters": merge["fragment_parameters"],
            "checkpoint_dir": str(self.scratch / "checkpoints"),
            "timeout_s": merge["timeout_s"],
            "ready": str(self.scratch / "rank"),
            "go": str(self.scratch / "go.json"),
            "stop": str(self.scratch / "stop"),
            "merges": str(self.scratch / "merges.parquet"),
        }
        (self.scratch / "checkpoints").mkdir()
        path = self.scratch / "merge_plan.json"
        write_document(path, plan)
        return [
            self.processes.start(
                f"merge rank {rank}",
                [sys.executable, "-m", "safesync.sidecar.contend", str(path), str(rank)],
                self.job.log_folder / f"rank{rank}.log",
                cores=self.cores["ranks"],
                nice=merge["nice"],
            )
            for rank in range(merge["ranks"])
        ]

    def _start_client(self, server: Server) -> Child:
        plan = {
            "url": server.url,
            "model": server.name,
            "arrivals": str(self.job.arrivals),
            "requests": str(self.scratch / "requests.parquet"),
            "loop_lag": str(self.scratch / "loop_lag.parquet"),
            "ready": str(self.scratch / "client"),
            "go": str(self.scratch / "go.json"),
            "stop_s": self.stop_s,
            "timeout_s": self.job.client["timeout_s"],
            "processes": self.job.client["processes"],
            "prompt_seed": self.prompt_seed,
            "prompt_ids": list(self.job.sidecar["prompt_ids"]),
            "locust_stats": str(self.job.log_folder / "locust_stats.json"),
        }
        path = self.scratch / "client_plan.json"
        write_document(path, plan)
        return self.processes.start(
            "the load generator (Locust)",
            [sys.executable, "-m", "safesync.sidecar.client", str(path)],
            self.job.log_folder / "client.log",
            cores=self.cores["client"],
            nice=self.job.client["nice"],
            environment={"SAFESYNC_API_KEY": server.key},
        )

    def _warm_up(self, server: Server) -> list[float]:
        return warm_up(
            self.processes,
            server,
            self.job.sidecar["warm_up"],
            self._warm_prompts(),
            int(self.arrivals["output_tokens"].median()),
            self.job.client["timeout_s"],
        )

    def _warm_prompts(self) -> Iterator[list[int]]:
        random = np.random.default_rng()
        length = int(self.arrivals["prompt_tokens"].median())
        while True:
            yield random.integers(*self.job.sidecar["prompt_ids"], length).tolist()

    def _start_background(self) -> Background:
        """Start what runs through every measurement of the regime, with and without merges."""
        background = Background(
            self.processes, self.scratch, self.job.log_folder, self.cores["ranks"]
        )
        if self.job.background["load"]:
            background.start_load(self.job.background["load"])
        training = self.job.background["training"]
        if training:
            merge = self.job.merge
            held = [] if merge["style"] == "overlapped" else self.windows["start_s"].tolist()
            pauses_s = [(start_s, start_s + merge["merge_s"]) for start_s in held]
            background.start_training(training, merge["ranks"], pauses_s)
        return background

    def _wait_ready(self, awaited: dict[Path, Child]) -> None:
        """Wait until every file is there that a process makes when it is ready."""
        deadline = time.monotonic() + 120
        while late := [child.name for file, child in awaited.items() if not file.exists()]:
            self.processes.check()
            if time.monotonic() > deadline:
                raise Broken(f"{' and '.join(late)} did not become ready within 120 s")
            time.sleep(0.05)

    def _go(self) -> tuple[int, int]:
        t0_ns = time.monotonic_ns() + int(LEAD_S * 1e9)
        t0_unix_ns = time.time_ns() + t0_ns - time.monotonic_ns()
        write_document(self.scratch / "go.json", {"t0_ns": t0_ns, "t0_unix_ns": t0_unix_ns})
        return t0_ns, t0_unix_ns

    def _attend(self, client: Child, ranks: list[Child], t0_ns: int) -> None:
        """Wait for client and ranks; whoever dies or hangs breaks the measurement."""
        end_s = t0_ns / 1e9 + self.stop_s + 15
        told = 0.0
        while client.process.poll() is None:
            self.processes.check()
            now = time.monotonic()
            if now > end_s:
                raise Broken(f"{client.name} did not finish 15 s after the stop; see {client.log}")
            if now - told >= 10:
                told = now
                passed = max(0.0, now - t0_ns / 1e9)
                self.progress(f"{passed:.0f} of {self.job.horizon_s:g} s of load")
            time.sleep(0.1)
        # the last answer may come long before the horizon, up to which signals are read
        while time.monotonic() < t0_ns / 1e9 + self.job.horizon_s:
            self.processes.check()
            time.sleep(0.1)
        (self.scratch / "stop").touch()
        for child in (client, *ranks):
            self.processes.wait(child, end_s)

    def _check_rows(self, requests: pd.DataFrame, merges: pd.DataFrame) -> None:
        if not np.array_equal(requests["request_id"], self.arrivals["request_id"]):
            raise Broken(
                f"the load generator reported {len(requests)} requests; expected one row for each "
                f"of {len(self.arrivals)} arrivals"
            )
        if not np.array_equal(merges["merge"], self.windows["merge"]):
            raise Broken(
                f"the ranks reported {len(merges)} merges; expected the schedule's "
                f"{len(self.windows)}"
            )


def _metrics(server: Server) -> str:
    try:
        return server.get("/metrics", _METRICS_TIMEOUT_S).decode()
    except OSError:  # an attached server may have no such page
        return ""


def _listed(values: list[float]) -> str:
    return ", ".join(f"{value:.2f}" for value in values)
