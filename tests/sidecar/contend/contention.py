"""Starts real ranks the way a measurement does, and never leaves one behind."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import psutil

START_TIMEOUT_S = 60.0


class Contention:
    """The ranks of one plan; a context manager that kills what is left of them."""

    def __init__(self, folder: Path, starts_s=(), merge_s=1.0, **changes) -> None:
        self.folder = folder
        (folder / "checkpoints").mkdir()
        self.plan = {
            "ranks": 2,
            "backend": "gloo",
            "rendezvous": str(folder / "rendezvous"),
            "windows": [
                {"merge": merge, "step": 128 * (merge + 1), "start_s": start_s}
                for merge, start_s in enumerate(starts_s)
            ],
            "merge_s": merge_s,
            "parameters": 450_000,
            "fragment_parameters": 100_000,
            "checkpoint_dir": str(folder / "checkpoints"),
            "timeout_s": 20.0,
            "ready": str(folder / "ready"),
            "go": str(folder / "go"),
            "merges": str(folder / "merges.parquet"),
        } | changes
        self.path = folder / "plan.json"
        self.path.write_text(json.dumps(self.plan))
        self.processes: list[subprocess.Popen] = []

    def __enter__(self) -> "Contention":
        return self

    def __exit__(self, *exception) -> None:
        for process in self.processes:
            process.kill()
            process.wait()
            process.stderr.close()

    def start(self, *ranks: int) -> None:
        """Start these ranks; do not wait for them."""
        for rank in ranks:
            self.processes.append(
                subprocess.Popen(
                    self.command(rank),
                    env=os.environ | {"GLOO_SOCKET_IFNAME": _other_interface()},
                    stdin=subprocess.DEVNULL,
                    stderr=subprocess.PIPE,
                    text=True,
                )
            )

    def command(self, rank: int) -> list[str]:
        """Return the command line of one rank."""
        return [sys.executable, "-m", "safesync.sidecar.contend", str(self.path), str(rank)]

    def wait_ready(self) -> None:
        """Wait until every rank waits for the go."""
        deadline = time.monotonic() + START_TIMEOUT_S
        files = [Path(f"{self.plan['ready']}.{rank}") for rank in range(self.plan["ranks"])]
        while not all(file.exists() for file in files):
            assert time.monotonic() < deadline, "the ranks were not ready in time"
            assert all(process.poll() is None for process in self.processes), "a rank ended"
            time.sleep(0.02)

    def go(self, in_s: float = 0.2) -> int:
        """Give the go with t0 ``in_s`` seconds from now; return t0 in nanoseconds."""
        t0_ns = time.monotonic_ns() + round(in_s * 1e9)
        draft = self.folder / "go.draft"
        draft.write_text(json.dumps({"t0_ns": t0_ns, "t0_unix_ns": time.time_ns()}))
        draft.replace(self.plan["go"])
        return t0_ns

    def end(self, rank: int, timeout_s: float) -> tuple[int, str]:
        """Return the exit status and stderr of a rank that must end within ``timeout_s``."""
        _, stderr = self.processes[rank].communicate(timeout=timeout_s)
        return self.processes[rank].returncode, stderr

    def cpu_s(self) -> float:
        """Return the CPU seconds that all ranks have used so far."""
        times = [psutil.Process(process.pid).cpu_times() for process in self.processes]
        return sum(one.user + one.system for one in times)


def _other_interface() -> str:
    """Return a network interface that the ranks must not use, whatever their environment says."""
    return next((name for name in psutil.net_if_addrs() if name != "lo"), "no-such-interface")


def sleep_until(t0_ns: int, at_s: float) -> None:
    """Sleep until ``at_s`` seconds after t0."""
    time.sleep(max(0.0, at_s - (time.monotonic_ns() - t0_ns) / 1e9))
