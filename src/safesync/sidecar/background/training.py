"""An island's inner steps between merges: the learners' own, on a shard of its own."""

import threading
import time
from pathlib import Path

import numpy as np
import torch

from safesync.learners.corpus import shard
from safesync.learners.data import Stream
from safesync.learners.inner import Inner
from safesync.learners.model import Transformer
from safesync.sidecar.background.pace import due_s
from safesync.sidecar.background.plan import InnerSteps
from safesync.tables import read_document


class Island:
    """Trains a model of its own; it takes no part in merges, whose ranks are other processes.

    It begins in every measurement with the same parameters and takes the same batches. ``go`` is
    the file that holds t0.
    """

    def __init__(self, work: InnerSteps, island: int, go: Path) -> None:
        torch.set_num_threads(1)
        torch.manual_seed(island)
        settings = work.settings
        # one GPU per island
        self._device = torch.device(settings.device, island * (settings.device == "cuda"))
        model = Transformer(
            layers=settings.layers,
            width=settings.width,
            heads=settings.heads,
            context=settings.context,
        )
        self._inner = Inner(model.to(self._device), settings, work.decay_steps)
        self._batches = Stream(
            shard(np.fromfile(work.corpus, dtype=np.uint8), 0, 1, island, settings.islands),
            context=settings.context,
            batch=settings.batch,
            seed=island,
        )
        self._step_s = work.step_s
        self._pauses_s = work.pauses_s
        self._go = go
        # the first step is slow, and is taken before anything is measured
        self._step()

    def train(self, stopping: threading.Event) -> dict:
        """Take an inner step in every ``step_s`` seconds, or as many as there is time for.

        Returns ``steps``, ``paused_s`` and ``loss``, the last step's in nats per token (null
        without a step).
        """
        t0_ns = read_document(self._go, required=("t0_ns",))["t0_ns"]
        steps, paused_s, loss = 0, 0.0, None
        for _ in due_s(self._step_s, stopping):
            begin_s = time.monotonic()
            left_s = self._pause_left_s((time.monotonic_ns() - t0_ns) / 1e9)
            if left_s:
                stopping.wait(left_s)
                paused_s += time.monotonic() - begin_s
            else:
                loss = self._step()
                steps += 1
        return {"steps": steps, "paused_s": paused_s, "loss": loss}

    def _step(self) -> float:
        return self._inner.train_step(self._batches.next().to(self._device))

    def _pause_left_s(self, now_s: float) -> float:
        return max(
            (end - now_s for start, end in self._pauses_s if start <= now_s < end), default=0
        )
