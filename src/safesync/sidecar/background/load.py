"""Another tenant's work: it computes, sends and writes, each in a thread of its own.

So a write that waits for the disk holds up neither the sending nor the computing, as with a tenant
of several parts. What can't be done in time under contention is given up, not done later.
"""

import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import numpy as np

from safesync.sidecar.background.pace import due_s
from safesync.sidecar.background.plan import Load

COMPUTE_PERIOD_S = 0.05
SEND_PERIOD_S = 0.05
WRITE_PERIOD_S = 0.2
FILE_BYTES = 64 * 2**20
_MATRIX = 256
_BLOCK = np.random.default_rng(0).bytes(2**20)


def parts(work: Load, file: Path) -> list[Callable[[threading.Event], dict]]:
    """Return the parts of ``work`` whose rates are not zero; ``file`` is what is written to."""
    found = []
    if work.cpu_share:
        found.append(partial(compute, work.cpu_share))
    if work.network_bytes_per_s:
        found.append(partial(send, work.network_bytes_per_s))
    if work.disk_bytes_per_s:
        found.append(partial(write, work.disk_bytes_per_s, file))
    return found


def compute(share: float, stopping: threading.Event) -> dict:
    """Multiply matrices for ``share`` of the time, counted in this thread's own CPU seconds."""
    left, right = np.random.default_rng(0).random((2, _MATRIX, _MATRIX), dtype=np.float32)
    product = np.empty_like(left)
    for seconds in due_s(COMPUTE_PERIOD_S, stopping):
        until_s = time.thread_time() + share * seconds
        while time.thread_time() < until_s and not stopping.is_set():
            np.matmul(left, right, out=product)
    return {}


def send(bytes_per_s: float, stopping: threading.Event) -> dict:
    """Send ``bytes_per_s`` over a loopback connection to a peer thread.

    Returns ``sent_bytes``; the peer has received all of them.
    """
    with socket.create_server(("127.0.0.1", 0)) as listening:
        sender = socket.create_connection(listening.getsockname())
        receiver, _ = listening.accept()
    with ThreadPoolExecutor(max_workers=1) as pool, receiver:
        received = pool.submit(_receive, receiver)
        with sender:
            for seconds in due_s(SEND_PERIOD_S, stopping):
                for block in _blocks(round(bytes_per_s * seconds)):
                    sender.sendall(block)
        return {"sent_bytes": received.result()}


def write(bytes_per_s: float, path: Path, stopping: threading.Event) -> dict:
    """Write ``bytes_per_s`` and fsync, over and over the same ``FILE_BYTES`` bytes of ``path``.

    Returns ``written_bytes``, ``fsyncs`` and ``fsync_s``; ``path`` is removed.
    """
    written, fsyncs, fsync_s = 0, 0, 0.0
    try:
        with path.open("wb", buffering=0) as file:
            for seconds in due_s(WRITE_PERIOD_S, stopping):
                for block in _blocks(round(bytes_per_s * seconds)):
                    if file.tell() >= FILE_BYTES:
                        file.seek(0)
                    written += file.write(block)
                begin_s = time.monotonic()
                os.fsync(file.fileno())
                fsync_s += time.monotonic() - begin_s
                fsyncs += 1
    finally:
        path.unlink(missing_ok=True)
    return {"written_bytes": written, "fsyncs": fsyncs, "fsync_s": fsync_s}


def _receive(receiver: socket.socket) -> int:
    room, received = bytearray(len(_BLOCK)), 0
    while count := receiver.recv_into(room):
        received += count
    return received


def _blocks(size: int) -> Iterator[memoryview]:
    """Yield buffers of ``size`` bytes in all."""
    while size > 0:
        yield memoryview(_BLOCK)[:size]
        size -= len(_BLOCK)
