"""The stand-in for an island's local training: it changes a fragment before each merge."""

import torch

_BLOCK = 65_536
_STRIDE = 12_289
_DECAY = 0.01
_NOISE = 0.001


class Island:
    """Makes inner values that differ from the outer ones, between ranks and between rounds.

    ``inner = 0.99 * outer + noise``: the pull towards zero keeps the model bounded for any number
    of rounds. The noise is one seeded block per rank, reused at a moving offset, so that making a
    fragment is two passes over it and no random numbers.
    """

    def __init__(self, rank: int, device: torch.device) -> None:
        generator = torch.Generator().manual_seed(rank)
        self._noise = torch.randn(2 * _BLOCK, generator=generator).mul_(_NOISE).to(device)
        self._offset = 0

    def train_(self, outer: torch.Tensor, inner: torch.Tensor) -> None:
        """Write the inner values of a fragment into ``inner``; both are flat fp32 of one size."""
        torch.mul(outer, 1.0 - _DECAY, out=inner)
        whole = inner.numel() - inner.numel() % _BLOCK
        noise = self._noise[self._offset : self._offset + _BLOCK]
        inner[:whole].view(-1, _BLOCK).add_(noise)
        inner[whole:].add_(noise[: inner.numel() - whole])
        self._offset = (self._offset + _STRIDE) % _BLOCK
