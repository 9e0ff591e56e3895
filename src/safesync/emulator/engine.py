"""Replays of one arrival trace under merge windows, by the compiled engine.

Step time: t = base + per_decode * decodes + per_prefill_token * prefill tokens
             + per_context_token * tokens in the KV cache of the sequences in the step,
integrated over time at rate 1 outside merge windows and 1 / factor inside them, so that a step
across a window's edge is slowed only for its part inside. The factor of a step is
factor + per_sequence * (sequences - 1) + delay / t, times the stretch of the window. The engine
sees a request one `client_overhead_s` after its arrival, and by the window's `overhead_s` later
still where it arrives inside one (requests keep their order). The client sees a token when its step
ends. Where the overhead is put makes no difference to latencies (a request joins a batch, seen from
the client, in the same instant either way); it moves the engine against the windows by that much.

The engine is deterministic, its cost is linear in the requests, and it lets go of Python's lock.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, fields

import numpy as np
import pandas as pd

from safesync.emulator import kernel
from safesync.emulator.model import EngineModel, Limits
from safesync.emulator.windows import Windows
from safesync.tables.requests import REQUESTS

_UNBOUNDED_BLOCKS = 2**40
_UNTIMED = np.empty(0)  # where no time of single tokens is asked for


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

    def rows(self, chosen: np.ndarray) -> Trace:
        """Return some of the requests, by a mask or by ascending positions."""
        return Trace(*(getattr(self, column.name)[chosen] for column in fields(self)))

    @classmethod
    def joined(cls, *parts: Trace) -> Trace:
        """Return the requests of parts that follow each other."""
        return cls(
            *(
                np.concatenate([getattr(part, column.name) for part in parts])
                for column in fields(cls)
            )
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
    unless asked for. steps: engine steps; preemptions: sequences put back to the queue;
    most_sequences: the largest batch.
    """

    trace: Trace
    first_token_s: np.ndarray
    last_token_s: np.ndarray
    token_s: np.ndarray | None
    steps: int
    preemptions: int
    most_sequences: int

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
    engine = _Engine(model, windows, trace.arrival_s.size)
    times = np.empty((2, trace.arrival_s.size))
    token_s = np.empty(int(trace.output_tokens.sum())) if chunks else _UNTIMED
    engine.run(_Load(trace, model), times, token_s)
    return engine.replay(trace, times, token_s if chunks else None)


def simulate_stream(
    traces: Iterable[Trace], windows: Windows, model: EngineModel
) -> Iterator[Replay]:
    """Yield the replay of one long trace that comes in parts, in the memory of two of them.

    traces: the parts, in order. A Replay holds the requests that were done before the next part
    begins, by arrival; those still in flight then come with a later one, so that all times are
    those of one replay of the whole. `steps` and `preemptions` count from the Replay before,
    `most_sequences` is the largest batch so far.

    Raises ValueError as `simulate` does, and when a part begins before the one before it ends.
    """
    engine = _Engine(model, windows, model.limits.max_num_seqs)
    flying, times = None, np.empty((2, 0))
    for part, next_s in _with_next_arrival(traces):
        trace = part if flying is None else Trace.joined(flying, part)
        times = np.append(times, np.full((2, part.arrival_s.size), np.nan), axis=1)
        engine.run(_Load(trace, model), times, _UNTIMED, next_s + model.client_overhead_s)
        done = np.isfinite(times[1])
        flying = trace
        if done.any():
            yield engine.replay(trace.rows(done), times[:, done], None)
            engine.forget(done)
            flying, times = None if done.all() else trace.rows(~done), times[:, ~done]


def latencies(
    trace: Trace, schedules: Sequence[Windows], model: EngineModel, *, threads: int = 1
) -> Latencies:
    """Return the latencies of `trace` under each of `schedules`: the fast path, no tables.

    threads: replays that run at once; what comes out does not depend on it. Raises ValueError as
    `simulate` does.
    """
    load = _Load(trace, model)
    times = np.empty((len(schedules), 2, trace.arrival_s.size))

    def replay_every(first: int) -> None:
        for row in range(first, len(schedules), threads):
            _Engine(model, schedules[row], trace.arrival_s.size).run(load, times[row], _UNTIMED)

    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(replay_every, range(threads)))
    times -= trace.arrival_s
    return Latencies(e2e_s=times[:, 1], ttft_s=times[:, 0])


class _Load:
    """A trace in the kernel's types, checked once for any number of replays."""

    def __init__(self, trace: Trace, model: EngineModel):
        _check_lengths(trace, model.limits)
        self.arrival_s = trace.arrival_s
        self.ready_s = trace.arrival_s + model.client_overhead_s
        self.lengths = np.stack([trace.prompt_tokens, trace.output_tokens])
        self.token_at = np.cumsum(trace.output_tokens) - trace.output_tokens


class _Engine:
    """One replay's settings and state, in the kernel's types."""

    def __init__(self, model: EngineModel, windows: Windows, most_requests: int):
        limits = model.limits
        self._step = kernel.Step(**model.step.model_dump())
        self._bounds = kernel.Bounds(
            limits.max_num_seqs,
            limits.max_num_batched_tokens,
            limits.kv_blocks or _UNBOUNDED_BLOCKS,
            limits.block_size,
        )
        self._windows = _contended(model, windows)
        overhead_s = np.array([phase.overhead_s for phase in model.contention])
        self._overhead_s = overhead_s[windows.phase]
        most = min(limits.max_num_seqs, most_requests)
        self._now_s = -np.inf
        self._slots = np.zeros((kernel.SLOT_ROWS, most), np.int64)
        self._stack = np.zeros((2, most), np.int64)
        self._count = np.zeros(kernel.COUNTS, np.int64)
        self._count[kernel.FREE] = self._bounds.kv_blocks

    def run(self, load: _Load, times, token_s, until_s: float = np.inf) -> None:
        """Go on with `load`, whose first requests are those that were not done before."""
        self._now_s = kernel.replay(
            self._now_s,
            until_s,
            self._slots,
            self._stack,
            self._count,
            self._ready_s(load),
            load.lengths,
            self._windows,
            self._step,
            self._bounds,
            times,
            token_s,
            load.token_at,
        )

    def _ready_s(self, load: _Load) -> np.ndarray:
        """Return when the engine sees each request, shape (requests,), ascending."""
        if not self._overhead_s.any():
            return load.ready_s
        ready_s = load.ready_s.copy()
        edges = np.searchsorted(load.arrival_s, self._windows[[kernel.START, kernel.END]])
        for first, last, overhead_s in zip(*edges, self._overhead_s, strict=True):
            ready_s[first:last] += overhead_s
        return np.maximum.accumulate(ready_s)

    def replay(self, trace: Trace, times: np.ndarray, token_s: np.ndarray | None) -> Replay:
        """Return what was done, in the public form."""
        counted = (kernel.STEPS, kernel.PREEMPTIONS, kernel.PEAK)
        return Replay(trace, *times, token_s, *(int(self._count[at]) for at in counted))

    def forget(self, done: np.ndarray) -> None:
        """Renumber the requests, those `done` (a mask) left out, and count from here on."""
        number = np.cumsum(~done) - 1
        running, stacked = self._count[kernel.RUNNING], self._count[kernel.STACK]
        for held, size in ((self._slots[kernel.REQUEST], running), (self._stack[0], stacked)):
            held[:size] = number[held[:size]]
        self._count[kernel.HEAD] -= done.sum()
        self._count[[kernel.DONE, kernel.STEPS, kernel.PREEMPTIONS]] = 0


def _contended(model: EngineModel, windows: Windows) -> np.ndarray:
    """Return the kernel's windows."""
    phase, phases = windows.phase, len(model.contention)
    if phase.size and not 0 <= phase.min() <= phase.max() < phases:
        raise ValueError(
            f"windows name phases {np.unique(phase).tolist()}; the model has {phases}, "
            "numbered from 0."
        )
    slowed = np.array([[p.factor, p.per_sequence, p.delay_s] for p in model.contention])
    return np.vstack([windows.start_s, windows.end_s, windows.stretch * slowed[phase].T])


def _with_next_arrival(traces: Iterable[Trace]) -> Iterator[tuple[Trace, float]]:
    """Yield each part with when the next one begins, infinity at the end."""
    traces = iter(traces)
    part = next(traces, None)
    while part is not None:
        following = next(traces, None)
        next_s = np.inf if following is None else following.arrival_s[0]
        if next_s < part.arrival_s[-1]:
            raise ValueError(
                f"a part of the trace begins at {next_s:.10g} s, before the last arrival of the "
                f"part before it at {part.arrival_s[-1]:.10g} s; expected parts in order."
            )
        yield part, next_s
        part = following


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
