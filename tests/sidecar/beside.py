"""Starts processes beside the sidecar the way a measurement does, and never leaves one behind."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import psutil

START_TIMEOUT_S = 60.0


class Beside:
    """The processes of one plan; a context manager that kills what is left of them.

    ``module`` takes the plan's path and an index; ``expected`` of its processes meet.
    """

    def __init__(self, module: str, folder: Path, plan: dict, expected: int) -> None:
        self.folder = folder
        self.plan = plan | {"ready": str(folder / "ready"), "go": str(folder / "go")}
        self.path = folder / "plan.json"
        self.path.write_text(json.dumps(self.plan))
        self.processes: list[subprocess.Popen] = []
        self._module = module
        self._expected = expected

    def __enter__(self):
        return self

    def __exit__(self, *exception) -> None:
        for process in self.processes:
            process.kill()
            process.wait()
            process.stderr.close()

    def start(self, *indices: int) -> None:
        """Start these processes; do not wait for them."""
        for index in indices:
            self.processes.append(
                subprocess.Popen(
                    self.command(index),
                    env=os.environ | {"GLOO_SOCKET_IFNAME": _other_interface()},
                    stdin=subprocess.DEVNULL,
                    stderr=subprocess.PIPE,
                    text=True,
                )
            )

    def command(self, index: int) -> list[str]:
        """Return the command line of one process."""
        return [sys.executable, "-m", self._module, str(self.path), str(index)]

    def wait_ready(self) -> None:
        """Wait until every process waits for the go."""
        deadline = time.monotonic() + START_TIMEOUT_S
        files = [Path(f"{self.plan['ready']}.{index}") for index in range(self._expected)]
        while not all(file.exists() for file in files):
            assert time.monotonic() < deadline, "the processes were not ready in time"
            assert all(process.poll() is None for process in self.processes), "a process ended"
            time.sleep(0.02)

    def go(self, in_s: float = 0.2) -> int:
        """Give the go with t0 ``in_s`` seconds from now; return t0 in nanoseconds."""
        t0_ns = time.monotonic_ns() + round(in_s * 1e9)
        draft = self.folder / "go.draft"
        draft.write_text(json.dumps({"t0_ns": t0_ns, "t0_unix_ns": time.time_ns()}))
        draft.replace(self.plan["go"])
        return t0_ns

    def end(self, index: int, timeout_s: float) -> tuple[int, str]:
        """Return the exit status and stderr of a process that must end within ``timeout_s``."""
        _, stderr = self.processes[index].communicate(timeout=timeout_s)
        return self.processes[index].returncode, stderr

    def cpu_s(self) -> float:
        """Return the CPU seconds that all processes have used so far."""
        times = [psutil.Process(process.pid).cpu_times() for process in self.processes]
        return sum(one.user + one.system for one in times)

    def outlived_parent(self) -> list[psutil.Process]:
        """Start process 0 under a parent that is then killed; return what is alive 3 s later."""
        starter = "import subprocess, sys, time; subprocess.Popen(sys.argv[1:]); time.sleep(60)"
        parent = subprocess.Popen([sys.executable, "-c", starter, *self.command(0)])
        try:
            self.wait_ready()
            (child,) = psutil.Process(parent.pid).children()
        finally:
            parent.kill()
            parent.wait()
        _, alive = psutil.wait_procs([child], timeout=3)
        for process in alive:
            process.kill()
        return alive


def _other_interface() -> str:
    """Return a network interface that the ranks must not use, whatever their environment says."""
    return next((name for name in psutil.net_if_addrs() if name != "lo"), "no-such-interface")


def sleep_until(t0_ns: int, at_s: float) -> None:
    """Sleep until ``at_s`` seconds after t0."""
    time.sleep(max(0.0, at_s - (time.monotonic_ns() - t0_ns) / 1e9))
