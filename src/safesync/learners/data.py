"""An island's stream of batches, which can be left and taken up again at any batch."""

from dataclasses import dataclass

import numpy as np
import torch


@dataclass(frozen=True)
class StreamState:
    """Where a stream stands: generator before the epoch's order was drawn, windows taken since."""

    generator: torch.Tensor
    cursor: int


class Stream:
    """Batches of windows of an island's shard, in an order drawn anew for every epoch.

    An epoch tiles the shard with windows of ``context`` + 1 bytes that share their last byte with
    the next, from a random phase, and takes each at most once. Raises ValueError when the shard
    is too short for one batch.
    """

    def __init__(self, shard: np.ndarray, *, context: int, batch: int, seed: int) -> None:
        self._data = torch.from_numpy(shard)
        self._context = context
        self._batch = batch
        self._windows = (len(shard) - context) // context - 1
        if self._windows < batch:
            raise ValueError(
                f"batch {batch}: a shard of {len(shard)} bytes has only {max(self._windows, 0)} "
                f"windows of {context}; lower islands, batch or context"
            )
        self._span = torch.arange(context + 1)
        self._generator = torch.Generator().manual_seed(seed)
        self._begin_epoch()

    def next(self) -> torch.Tensor:
        """Return the next batch: bytes of shape (batch, context + 1), int64."""
        if self._cursor + self._batch > self._windows:
            self._begin_epoch()
        starts = self._starts[self._cursor : self._cursor + self._batch]
        self._cursor += self._batch
        return self._data[starts[:, None] + self._span].long()

    @property
    def state(self) -> StreamState:
        """Return where the stream stands, for ``restore``."""
        return StreamState(self._before_epoch, self._cursor)

    def restore(self, state: StreamState) -> None:
        """Continue where a stream of the same shard and sizes stood."""
        self._generator.set_state(state.generator)
        self._begin_epoch()
        self._cursor = state.cursor

    def _begin_epoch(self) -> None:
        self._before_epoch = self._generator.get_state()
        phase = torch.randint(self._context, (1,), generator=self._generator)
        order = torch.randperm(self._windows, generator=self._generator)
        self._starts = phase + order * self._context
        self._cursor = 0


def windows(data: np.ndarray, *, context: int, tokens: int) -> torch.Tensor:
    """Return the first windows of ``data`` that hold ``tokens`` bytes to predict, or all of them.

    Shape (windows, context + 1), int64; each predicts the ``context`` bytes after its first.
    """
    count = max(1, min(tokens // context, (len(data) - 1) // context))
    starts = torch.arange(count)[:, None] * context
    return torch.from_numpy(data)[starts + torch.arange(context + 1)].long()
