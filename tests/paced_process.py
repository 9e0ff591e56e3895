"""The paced server as a process of its own, for tests that need a server to talk to."""

import contextlib
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path


@dataclass
class Paced:
    url: str
    process: subprocess.Popen


@contextlib.contextmanager
def paced_server(*flags: str):
    """Yield a running paced server; it is gone when the context is left."""
    command = [sys.executable, str(Path(__file__).parent / "paced.py"), *flags]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        yield Paced(process.stdout.readline().split()[-1], process)
    finally:
        process.kill()
        process.wait()
