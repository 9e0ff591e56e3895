"""What an island keeps beside the outer state, so that its training can be taken up again.

The files of all islands and the outer state become one checkpoint by the order of a merge: every
island writes its own file first, for the merge to come; rank 0 writes the outer state, with the
merge's number, after the reduce that needed them all. So a kill at any instant leaves an outer
state whose number names a complete set of island files. Merged, an island's parameters are the
outer ones and no inner step has been taken since: neither is written again.
"""

from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open

from safesync.learners.data import StreamState
from safesync.outer import CheckpointError, write_durably

_MOMENTS = "adamw."


@dataclass(frozen=True)
class IslandState:
    """One island after ``merges`` merges, at the last of them.

    ``step``: inner steps done, which give learning rate and schedule their place. ``moments``:
    AdamW's, by name. ``stream``: the place in the data. ``rng``: state of torch's global
    generator. ``loss`` and ``step_s``: of every inner step so far, float64, shape (step,).
    ``heldout``: (step, loss) at the start and after each merge but the last, shape (merges, 2).
    """

    merges: int
    step: int
    moments: dict[str, torch.Tensor]
    stream: StreamState
    rng: torch.Tensor
    loss: torch.Tensor
    step_s: torch.Tensor
    heldout: torch.Tensor


def write_island(folder: Path, island: int, state: IslandState) -> int:
    """Write ``state`` durably and atomically; return the bytes. Raises CheckpointError."""
    tensors = {_MOMENTS + name: tensor.cpu() for name, tensor in state.moments.items()}
    tensors |= {
        "generator": state.stream.generator,
        "rng": state.rng,
        "loss": state.loss,
        "step_s": state.step_s,
        "heldout": state.heldout,
    }
    metadata = {"step": str(state.step), "cursor": str(state.stream.cursor)}
    return write_durably(_path(folder, island, state.merges), tensors, metadata)


def read_island(folder: Path, island: int, merges: int) -> IslandState:
    """Return what the island wrote for merge number ``merges``. Raises CheckpointError."""
    path = _path(folder, island, merges)
    try:
        # safetensors, so that reading a checkpoint can run no code
        with safe_open(path, framework="pt") as file:
            metadata = file.metadata()
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        return IslandState(
            merges=merges,
            step=int(metadata["step"]),
            moments={
                name.removeprefix(_MOMENTS): tensor
                for name, tensor in tensors.items()
                if name.startswith(_MOMENTS)
            },
            stream=StreamState(tensors["generator"], int(metadata["cursor"])),
            **{name: tensors[name] for name in ("rng", "loss", "step_s", "heldout")},
        )
    except (SafetensorError, OSError, KeyError, TypeError, ValueError) as error:
        raise CheckpointError(f"{path}: not a checkpoint of an island ({error})") from error


def remove_island(folder: Path, island: int, merges: int) -> None:
    """Remove what the island wrote for merge number ``merges``, if it is there."""
    _path(folder, island, merges).unlink(missing_ok=True)


def _path(folder: Path, island: int, merges: int) -> Path:
    return folder / f"island-{island:04d}-{merges:06d}.safetensors"
