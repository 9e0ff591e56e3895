"""The collectives of a merge, with a lost peer told as one sentence."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
import torch.distributed as dist


class PeerLostError(RuntimeError):
    """A peer rank is gone or silent; the message is one sentence that names what was awaited."""


@contextmanager
def waiting_for(what: str) -> Iterator[None]:
    """Translate a failed collective into PeerLostError; ``what`` says what it waited for."""
    try:
        yield
    except RuntimeError as error:
        raise PeerLostError(f"{_reason(str(error))} while waiting for {what}") from error


def sum_(flat: torch.Tensor, what: str) -> None:
    """Replace ``flat`` by its sum over all ranks, in place.

    Who wants the mean divides: gloo's own average is not dependable (pytorch#162338). Raises
    PeerLostError.
    """
    with waiting_for(what):
        dist.all_reduce(flat, op=dist.ReduceOp.SUM)


def broadcast_(tensor: torch.Tensor, what: str) -> None:
    """Replace ``tensor`` by rank 0's, in place. Raises PeerLostError."""
    with waiting_for(what):
        dist.broadcast(tensor, src=0)


def gather(tensor: torch.Tensor, what: str) -> torch.Tensor:
    """Return every rank's ``tensor``, stacked by rank. Raises PeerLostError."""
    gathered = [torch.empty_like(tensor) for _ in range(dist.get_world_size())]
    with waiting_for(what):
        dist.all_gather(gathered, tensor)
    return torch.stack(gathered)


def _reason(text: str) -> str:
    lowered = text.lower()
    if "closed by peer" in lowered or "reset by peer" in lowered or "broken pipe" in lowered:
        return "a peer rank closed its connection"
    if "timed out" in lowered or "timeout" in lowered:
        return "a peer rank did not answer in time"
    return f"the collective failed ({text.strip().splitlines()[0]})"
