"""Runs a function in real gloo processes and returns the tensors that each of them returned."""

import os
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from safetensors.torch import load_file, save_file


def run_ranks(function, ranks: int, folder: Path) -> list[dict[str, torch.Tensor]]:
    """Call ``function(rank, folder)`` in ``ranks`` processes that share a process group."""
    mp.spawn(_enter, args=(function, ranks, folder), nprocs=ranks)
    return [load_file(folder / f"returned.{rank}") for rank in range(ranks)]


def join(rank: int, ranks: int, folder: Path) -> None:
    """Make this process one rank of torch's default process group."""
    torch.set_num_threads(1)
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    dist.init_process_group(
        "gloo",
        store=dist.FileStore(str(folder / "rendezvous"), ranks),
        rank=rank,
        world_size=ranks,
        timeout=timedelta(seconds=60),
    )


def _enter(rank: int, function, ranks: int, folder: Path) -> None:
    join(rank, ranks, folder)
    save_file(function(rank, folder), folder / f"returned.{rank}")
    dist.destroy_process_group()
