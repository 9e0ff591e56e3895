"""Replays of one arrival trace under merge windows, by the compiled engine.

Step time: t = base + per_decode * decodes + per_prefill_token * prefill tokens
             + per_context_token * tokens in the KV cache of the sequences in the step,
integrated over time at rate 1 outside merge windows and 1 / factor inside them, so that a step
across a window's edge is slowed only for its part inside. The engine sees a request one
`client_overhead_s` after its arrival, and the client sees a token when its step ends. Where the
overhead is put makes no difference to latencies (a request joins a batch, seen from the client,
in the same instant either way); it moves the engine against the windows by that much.

The engine is deterministic, and its cost is linear in the requests.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from safesync.emulator import kernel
from safesync.emulator.model import EngineModel, Limits
from safesync.emulator.windows import Windows
from safesync.tables.requests import REQUESTS

_UNBOUNDED_BLOCKS = 2**40


@dataclass(frozen=True)
class Trace:
    """What arrives, in ascending order of time; ties keep their order.

    request_id, prompt_tokens, output_tokens: int64, shape (requests,). arrival_s: float64, seconds
    since t0.

    ValueError: no request, columns of different lengths, a time that is not finite or out of
    order, or a length below one token.
    """

    request_id: np.ndarray
    arrival_s: np.ndarray
    prompt_tokens: np.ndarray
    output_tokens: np.ndarray

    def __post_init__(self):
        columns = (self.request_id, self.arrival_s, self.prompt_tokens, self.output_tokens)
        if len({column.shape for column in columns}) != 1 or self.arrival_s.ndim != 1:
            raise ValueError(
                f"a trace has columns of one length, not of shapes {[c.shape for c in columns]}."
            )
        if self.arrival_s.size == 0:
            raise ValueError("the trace has no request; expected at least one.")
        if not np.isfinite(self.arrival_s).all():
            at = int(np.flatnonzero(~np.isfinite(self.arrival_s))[0])
            raise ValueError(
                f"arrival_s of row {at} is {self.arrival_s[at]}, expected a finite time in s."
            )
        if (np.diff(self.arrival_s) < 0).any():
            at = int(np.flatnonzero(np.diff(self.arrival_s) < 0)[0]) + 1
            raise ValueError(
                f"row {at} arrives at {self.arrival_s[at]:.10g} s, before the row above it; "
                "expected arrivals in ascending order."
            )
        for name in ("prompt_tokens", "output_tokens"):
            values = getattr(self, name)
            if (values < 1).any():
                at = int(np.flatnonzero(values < 1)[0])
                raise ValueError(f"{name} of row {at} is {values[at]}, expected at least 1.")

    @classmethod
    def of(cls, arrival_s, prompt_tokens, output_tokens, request_id=None) -> Trace:
        """Return a trace from any array-likes; without `request_id` they are numbered from 0."""
        arrival_s = np.array(arrival_s, dtype=np.float64)
        request_id = np.arange(arrival_s.size) if request_id is None else request_id
        return cls(
            np.array(request_id, dtype=np.int64),
            arrival_s,
            np.array(prompt_tokens, dtype=np.int64),
            np.array(output_tokens, dtype=np.int64),
        )

    @classmethod
    def from_rows(cls, rows: pd.DataFrame) -> Trace:
        """Return the trace of an ARRIVALS table, or of what a REQUESTS table was sent."""
        return cls.of(
            rows["arrival_s"], rows["prompt_tokens"], rows["output_tokens"], rows["request_id"]
        )


@dataclass(frozen=True)
class Replay:
    """What one replay did. Times: float64, shape (requests,), seconds since t0, in trace order.

    token_s: time of every token, shape (sum of output tokens,), request after request; None
    unless asked for. steps: engine steps; preemptions: sequences put back to the queue.
    """

    trace: Trace
    first_token_s: np.ndarray
    last_token_s: np.ndarray
    token_s: np.ndarray | None
    steps: int
    preemptions: int

    @property
    def done_s(self) -> np.ndarray:
        """When the client has the whole answer: with its last token."""
        return self.last_token_s

    def to_requests(self) -> pd.DataFrame:
        """Return the rows of REQUESTS, all `ok`; `chunk_s` is null without token times."""
        trace = self.trace
        columns = {
            "request_id": trace.request_id,
            "arrival_s": trace.arrival_s,
            "sent_s": trace.arrival_s,
            "first_token_s": self.first_token_s,
            "last_token_s": self.last_token_s,
            "done_s": self.done_s,
            "prompt_tokens": trace.prompt_tokens.astype(np.int32),
            "output_tokens": trace.output_tokens.astype(np.int32),
            "status": "ok",
            "error": None,
            "chunk_s": self._chunks(),
            "chunk_tokens": None
            if self.token_s is None
            else [np.ones(tokens, dtype=np.int32) for tokens in trace.output_tokens],
        }
        return pd.DataFrame(columns, columns=REQUESTS.schema.names)

    def _chunks(self) -> list[np.ndarray] | None:
        if self.token_s is None:
            return None
        ends = np.cumsum(self.trace.output_tokens)[:-1]
        return [
            (tokens - arrival_s).astype(np.float32)
            for tokens, arrival_s in zip(
                np.split(self.token_s, ends), self.trace.arrival_s, strict=True
            )
        ]


@dataclass(frozen=True)
class Latencies:
    """Latencies of many replays of one trace, float64, shape (replays, requests), seconds.

    e2e_s: done - arrival; ttft_s: first token - arrival. Time per output token follows as
    (e2e_s - ttft_s) / (output tokens - 1).
    """

    e2e_s: np.ndarray
    ttft_s: np.ndarray


def simulate(trace: Trace, windows: Windows, model: EngineModel, *, chunks: bool = False) -> Replay:
    """Return the replay of `trace` under `windows`; `chunks` records the time of every token.

    ValueError: a request is longer than the model's context or KV cache allows, or a window's
    phase is not in the model.
    """
    engine = _Engine(trace, model)
    times = np.empty((2, trace.arrival_s.size))
    token_s = np.empty(int(trace.output_tokens.sum()) if chunks else 0)
    steps, preemptions = engine.run(windows, times, token_s)
    first_s, last_s = times
    return Replay(trace, first_s, last_s, token_s if chunks else None, steps, preemptions)


def latencies(trace: Trace, schedules: Sequence[Windows], model: EngineModel) -> Latencies:
    """Return the latencies of `trace` under each of `schedules`: the fast path, no tables.

    Raises ValueError as `simulate` does.
    """
    engine = _Engine(trace, model)
    times = np.empty((len(schedules), 2, trace.arrival_s.size))
    unused = np.empty(0)
    for row, windows in enumerate(schedules):
        engine.run(windows, times[row], unused)
    times -= trace.arrival_s
    return Latencies(e2e_s=times[:, 1], ttft_s=times[:, 0])


class _Engine:
    """One trace and model in the kernel's types, checked once for any number of replays."""

    def __init__(self, trace: Trace, model: EngineModel):
        _check_lengths(trace, model.limits)
        self._ready_s = trace.arrival_s + model.client_overhead_s
        self._lengths = np.stack([trace.prompt_tokens, trace.output_tokens])
        self._token_at = np.cumsum(trace.output_tokens) - trace.output_tokens
        step, limits = model.step, model.limits
        self._step = kernel.Step(
            step.base_s, step.per_decode_s, step.per_prefill_token_s, step.per_context_token_s
        )
        self._bounds = kernel.Bounds(
            limits.max_num_seqs,
            limits.max_num_batched_tokens,
            limits.kv_blocks or _UNBOUNDED_BLOCKS,
            limits.block_size,
        )
        self._factor = np.array([phase.factor for phase in model.contention])
        self._per_sequence = np.array([phase.per_sequence for phase in model.contention])

    def run(self, windows: Windows, times: np.ndarray, token_s: np.ndarray) -> tuple[int, int]:
        phase = windows.phase
        if phase.size and not 0 <= phase.min() <= phase.max() < self._factor.size:
            raise ValueError(
                f"windows name phases {np.unique(phase).tolist()}; the model has "
                f"{self._factor.size}, numbered from 0."
            )
        contended = np.stack(
            [windows.start_s, windows.end_s, self._factor[phase], self._per_sequence[phase]]
        )
        return kernel.replay(
            self._ready_s,
            self._lengths,
            contended,
            self._step,
            self._bounds,
            times,
            token_s,
            self._token_at,
        )


def _check_lengths(trace: Trace, limits: Limits) -> None:
    tokens = trace.prompt_tokens + trace.output_tokens
    # the last token is sampled, never computed
    cached = limits.kv_blocks * limits.block_size + 1 if limits.kv_blocks else np.inf
    for name, most in (("max_model_len", limits.max_model_len), ("the KV cache", cached)):
        if (tokens > most).any():
            at = int(np.flatnonzero(tokens > most)[0])
            raise ValueError(
                f"request {trace.request_id[at]} needs {tokens[at]} tokens, more than {name} "
                f"holds ({most:.0f}); no server could finish it."
            )
