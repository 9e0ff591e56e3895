"""Durable checkpoints of the outer state: one safetensors file per fragment.

A file is written under a temporary name, fsynced, renamed over its predecessor, and the folder is
fsynced, so that after a crash the old or the new state is found, whole. Each file carries the
number of the round that wrote it; where fragments overlap, the later round holds.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file

from safesync.outer.fragments import Fragment

_PATTERN = "outer-*.safetensors"


class CheckpointError(OSError):
    """A checkpoint cannot be written or read; the message is one sentence that names the file."""


@dataclass(frozen=True)
class FragmentState:
    """What one file holds: ``outer`` and ``velocity`` are flat fp32, of the fragment's size."""

    fragment: Fragment
    round: int
    outer: torch.Tensor
    velocity: torch.Tensor


def write_fragment(folder: Path, state: FragmentState) -> int:
    """Write ``state`` durably and atomically; return the bytes of the file.

    Raises CheckpointError.
    """
    path = folder / f"outer-{state.fragment.start:012d}-{state.fragment.stop:012d}.safetensors"
    metadata = {
        "start": str(state.fragment.start),
        "stop": str(state.fragment.stop),
        "round": str(state.round),
    }
    return write_durably(path, {"outer": state.outer, "velocity": state.velocity}, metadata)


def write_durably(
    path: Path, tensors: Mapping[str, torch.Tensor], metadata: Mapping[str, str]
) -> int:
    """Write a safetensors file that a crash leaves old or new, whole; return its bytes.

    Raises CheckpointError.
    """
    temporary = path.with_name(f".{path.name}.tmp")
    try:
        save_file(dict(tensors), temporary, metadata=dict(metadata))
        _fsync(temporary)
        written = temporary.stat().st_size
        temporary.replace(path)
        _fsync(path.parent)
    except (SafetensorError, OSError) as error:
        temporary.unlink(missing_ok=True)
        raise CheckpointError(f"{path}: the checkpoint cannot be written ({error})") from error
    return written


def read_fragments(folder: Path) -> list[FragmentState]:
    """Return the state in every file of ``folder``, oldest round first. Raises CheckpointError."""
    states = [_read_fragment(path) for path in folder.glob(_PATTERN)]
    return sorted(states, key=lambda state: state.round)


def remove_unfinished(folder: Path) -> None:
    """Remove what a writer that was stopped half-way left in ``folder``."""
    for path in folder.glob(".*.safetensors.tmp"):
        path.unlink(missing_ok=True)


def _read_fragment(path: Path) -> FragmentState:
    try:
        with safe_open(path, framework="pt") as file:
            metadata = file.metadata()
            return FragmentState(
                fragment=Fragment(int(metadata["start"]), int(metadata["stop"])),
                round=int(metadata["round"]),
                outer=file.get_tensor("outer"),
                velocity=file.get_tensor("velocity"),
            )
    except (SafetensorError, OSError, KeyError, TypeError, ValueError) as error:
        raise CheckpointError(f"{path}: not a checkpoint of the outer state ({error})") from error


def _fsync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
