"""How ranks meet: torch's default process group, on the loopback interface only."""

import os
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist

from safesync.outer.collectives import waiting_for


class DeviceError(RuntimeError):
    """A rank has no device to work on; the message is one sentence that names the need."""


def join(
    backend: str, rendezvous: Path, *, rank: int, ranks: int, timeout_s: float
) -> torch.device:
    """Join ``ranks`` - 1 others at ``rendezvous``, with one thread; return this rank's device.

    ``rendezvous`` is a file that must not exist before the first rank comes. ``backend``: gloo
    works on the CPU, nccl on one GPU per rank. ``timeout_s`` holds for the meeting and every later
    collective. Raises DeviceError and PeerLostError.
    """
    torch.set_num_threads(1)
    torch.set_num_interop_threads(1)
    device = _device(backend, rank, ranks)
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    os.environ["NCCL_SOCKET_IFNAME"] = "lo"
    # a lost peer raises in the waiting call instead of aborting the process
    os.environ["TORCH_NCCL_BLOCKING_WAIT"] = "1"
    with waiting_for(f"the rendezvous of {ranks} ranks at {rendezvous}"):
        dist.init_process_group(
            backend,
            store=dist.FileStore(str(rendezvous), ranks),
            rank=rank,
            world_size=ranks,
            timeout=timedelta(seconds=timeout_s),
        )
    return device


def _device(backend: str, rank: int, ranks: int) -> torch.device:
    if backend == "gloo":
        return torch.device("cpu")
    if torch.cuda.device_count() < ranks:
        raise DeviceError(
            f"backend nccl needs one GPU per rank: {ranks} ranks, "
            f"{torch.cuda.device_count()} visible GPUs"
        )
    torch.cuda.set_device(rank)
    return torch.device("cuda", rank)
