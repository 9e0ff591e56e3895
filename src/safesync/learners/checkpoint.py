"""What an island keeps beside the outer state, so that its training can be taken up again.

The files of all islands and the outer state become one checkpoint by the order of a round: every
island writes its own file first, for the round to come; rank 0 writes the merged fragment, with
the round's number, after the reduce that needed them all. So a kill at any instant leaves an outer
state whose number names a complete set of island files. What the round changed in an island is no
part of its file: it follows from the file and the merged fragment.
"""

from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open

from safesync.learners.data import StreamState
from safesync.outer import CheckpointError, write_durably

_MOMENTS = "adamw."
_PENDING = "pending."


@dataclass(frozen=True)
class IslandState:
    """One island at round number ``rounds``, just before it.

    ``step``: inner steps done, which give learning rate and schedule their place. ``inner``: its
    parameters, flat. ``pending``: by the number of the turn, what updates that are not yet applied
    will add to their fragments. ``moments``: AdamW's, by name. ``stream``: the place in the data.
    ``rng``: state of torch's global generator. ``loss`` and ``step_s``: of every inner step so
    far, float64, shape (step,). ``heldout``: (step, loss) at the start and after each merge that
    is complete, shape (n, 2).
    """

    rounds: int
    step: int
    inner: torch.Tensor
    pending: dict[int, torch.Tensor]
    moments: dict[str, torch.Tensor]
    stream: StreamState
    rng: torch.Tensor
    loss: torch.Tensor
    step_s: torch.Tensor
    heldout: torch.Tensor


def write_island(folder: Path, island: int, state: IslandState) -> int:
    """Write ``state`` durably and atomically; return the bytes. Raises CheckpointError."""
    tensors = {_MOMENTS + name: tensor.cpu() for name, tensor in state.moments.items()}
    tensors |= {f"{_PENDING}{turn}": tensor.cpu() for turn, tensor in state.pending.items()}
    tensors |= {
        "inner": state.inner.cpu(),
        "generator": state.stream.generator,
        "rng": state.rng,
        "loss": state.loss,
        "step_s": state.step_s,
        "heldout": state.heldout,
    }
    metadata = {"step": str(state.step), "cursor": str(state.stream.cursor)}
    return write_durably(_path(folder, island, state.rounds), tensors, metadata)


def read_island(folder: Path, island: int, rounds: int) -> IslandState:
    """Return what the island wrote for round number ``rounds``. Raises CheckpointError."""
    path = _path(folder, island, rounds)
    try:
        # safetensors, so that reading a checkpoint can run no code
        with safe_open(path, framework="pt") as file:
            metadata = file.metadata()
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        return IslandState(
            rounds=rounds,
            step=int(metadata["step"]),
            pending={
                int(turn): tensor for turn, tensor in _without_prefix(tensors, _PENDING).items()
            },
            moments=_without_prefix(tensors, _MOMENTS),
            stream=StreamState(tensors["generator"], int(metadata["cursor"])),
            **{name: tensors[name] for name in ("inner", "rng", "loss", "step_s", "heldout")},
        )
    except (SafetensorError, OSError, KeyError, TypeError, ValueError) as error:
        raise CheckpointError(f"{path}: not a checkpoint of an island ({error})") from error


def remove_island(folder: Path, island: int, rounds: int) -> None:
    """Remove what the island wrote for round number ``rounds``, if it is there."""
    _path(folder, island, rounds).unlink(missing_ok=True)


def _without_prefix(tensors: dict[str, torch.Tensor], prefix: str) -> dict[str, torch.Tensor]:
    return {
        name.removeprefix(prefix): tensor
        for name, tensor in tensors.items()
        if name.startswith(prefix)
    }


def _path(folder: Path, island: int, rounds: int) -> Path:
    return folder / f"island-{island:04d}-{rounds:06d}.safetensors"
