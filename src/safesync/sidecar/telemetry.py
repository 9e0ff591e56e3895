"""Five rows a second about server and host while a measurement runs."""

import http.client
import math
import re
import threading
import time
import urllib.parse

import numpy as np
import pandas as pd
import psutil

from safesync.tables.telemetry import TELEMETRY

PERIOD_S = 0.2
# vLLM's Prometheus names; a server that lacks one leaves the column empty
METRICS = {
    "vllm:num_requests_running": "running",
    "vllm:num_requests_waiting": "waiting",
    "vllm:kv_cache_usage_perc": "kv_use",
    "vllm:prompt_tokens_total": "prompt_tokens_total",
    "vllm:generation_tokens_total": "output_tokens_total",
    "vllm:num_preemptions_total": "preemptions_total",
    "vllm:prefix_cache_hits_total": "prefix_hits_total",
}


def parse_metrics(text: str) -> dict[str, float]:
    """Return the columns found in a Prometheus page, summed over label sets."""
    found: dict[str, float] = {}
    for line in text.splitlines():
        # most of the page is histogram buckets; a full parser costs the client's core 10x as much
        if line.startswith("#"):
            continue
        column = METRICS.get(line.partition("{")[0].partition(" ")[0])
        if column:
            found[column] = found.get(column, 0.0) + float(line.rpartition(" ")[2])
    return found


def kv_cache(page: str) -> dict[str, int | None]:
    """Return ``block_size`` (tokens) and ``blocks`` of the server's KV cache; None: not told.

    ``page`` is vLLM's Prometheus page, whose info metric holds both as labels.
    """
    labels = {}
    for line in page.splitlines():
        if line.startswith("vllm:cache_config_info{"):
            labels = dict(re.findall(r'(\w+)="([^"]*)"', line))
    found = {"block_size": labels.get("block_size"), "blocks": labels.get("num_gpu_blocks")}
    return {
        name: int(value) if (value or "").isdecimal() else None for name, value in found.items()
    }


class Telemetry:
    """Samples in a thread from t0 until ``stop``; rows come on the absolute 0.2-s grid."""

    def __init__(self, url: str, headers: dict[str, str], t0_ns: int):
        self._address = urllib.parse.urlsplit(url)
        self._headers = headers
        self._t0_ns = t0_ns
        self._rows: list[dict] = []
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def start(self) -> None:
        psutil.cpu_percent()  # the first call only sets the reference
        self._thread.start()

    def stop(self) -> pd.DataFrame:
        """End the sampling and return the rows (without the client's loop lag)."""
        self._stopping.set()
        self._thread.join()
        return pd.DataFrame(self._rows, columns=TELEMETRY.schema.names)

    def _run(self) -> None:
        connection = None
        tick = 0
        while True:
            pause = tick * PERIOD_S - self._now()
            if self._stopping.wait(max(0.0, pause)):
                break
            row = _host_row(self._now())
            try:
                if connection is None:
                    connection = self._connect()
                connection.request("GET", "/metrics", headers=self._headers)
                page = connection.getresponse().read().decode()
                row.update(parse_metrics(page))
            # ValueError: a page that is no Prometheus page leaves a gap, like no page at all
            except (OSError, http.client.HTTPException, ValueError):
                connection = None
            self._rows.append(row)
            tick = max(tick + 1, math.ceil(self._now() / PERIOD_S))
        if connection is not None:
            connection.close()

    def _connect(self) -> http.client.HTTPConnection:
        secure = self._address.scheme == "https"
        kind = http.client.HTTPSConnection if secure else http.client.HTTPConnection
        return kind(self._address.netloc, timeout=2)

    def _now(self) -> float:
        return (time.monotonic_ns() - self._t0_ns) / 1e9


def with_loop_lag(telemetry: pd.DataFrame, lag: pd.DataFrame) -> pd.DataFrame:
    """Fill ``loop_lag_s``: the worst lag (``t_s, lag_s``) since the row before."""
    rows = telemetry.copy()
    place = np.searchsorted(rows["t_s"].to_numpy(), lag["t_s"].to_numpy())
    worst = lag["lag_s"].groupby(place).max()
    rows["loop_lag_s"] = worst.reindex(range(len(rows))).to_numpy()
    return rows


def _host_row(t_s: float) -> dict:
    row = dict.fromkeys(TELEMETRY.schema.names, math.nan)
    network = psutil.net_io_counters()
    disk = psutil.disk_io_counters()
    row.update(
        t_s=t_s,
        cpu_share=psutil.cpu_percent() / 100,
        network_bytes=network.bytes_sent + network.bytes_recv,
        disk_written_bytes=disk.write_bytes if disk else 0,
    )
    return row
