"""From captures to a model: step time from nosync runs, contention from probe runs.

1. Step time: the engine's steps are reconstructed from chunk times (`iterations`) and their
   seconds regressed on what they computed (`step_time`, `costs`).
2. Contention: what the probes' steps took inside windows beyond that (`contention`).
3. Overheads outside the engine: the fixed latency at which the median error of emulated TTFT is
   zero. Inside windows front end and client wait for their turn too, seldom but long: what comes on
   top there is where the *mean* error of the requests that arrive inside is zero.

Then both kinds of capture are emulated, and the errors reported: in-sample, which flatters, and
held out, each part of a capture predicted by what the others say (`heldout`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from pydantic import BaseModel, ConfigDict, Field

from safesync.emulator.agreement import Agreement, agreement
from safesync.emulator.contention import (
    MIN_WINDOWS,
    contended,
    factor_by_window,
    fit_contention,
)
from safesync.emulator.engine import Trace, simulate
from safesync.emulator.heldout import answered, nosync_held_out, probe_held_out
from safesync.emulator.iterations import iterations
from safesync.emulator.model import EngineModel, Limits
from safesync.emulator.step_time import fit_step_time
from safesync.emulator.windows import Windows

MIN_REQUESTS = 30  # of nosync: fewer meet too few different batches
_OVERHEAD_ROUNDS = 20
_SETTLED_S = 1e-6


@dataclass(frozen=True)
class Probe:
    """One run with merges: its REQUESTS and its MERGES."""

    requests: pd.DataFrame
    merges: pd.DataFrame


class Fit(BaseModel):
    """How well a model fits the captures that it comes from, and predicts parts held out."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    steps: int = Field(description="Engine steps of the nosync captures that were fitted.")
    residual_rmse_s: float = Field(
        description="Root mean square of measured - fitted step time, s."
    )
    residual_p05_s: float = Field(description="5 % quantile of the residuals, s.")
    residual_p50_s: float = Field(description="Median residual, s.")
    residual_p95_s: float = Field(description="95 % quantile of the residuals, s.")
    hiccups: float = Field(
        description="Time of the nosync steps beyond a fit that outliers cannot bend, as a share."
    )
    contended_steps: int = Field(description="Steps of the probe captures that meet a window.")
    windows: int = Field(description="Merge windows of the probe captures.")
    factor_by_window: tuple[float, ...] = Field(
        description="Time inside over the work done there, of each window that met steps enough."
    )
    contention_error: float | None = Field(
        None,
        description="Standard error of the contention, as a share, from how windows differ; null: "
        "fewer than three windows met steps enough.",
    )
    most_sequences: int = Field(description="Largest batch of any capture, sequences.")
    nosync: tuple[Agreement, ...] = Field(description="Emulated against each nosync capture.")
    probe: tuple[Agreement, ...] = Field(description="Emulated against each probe capture.")
    nosync_held_out: Agreement | None = Field(
        None,
        description="Emulated against the nosync captures, each half by a step time fitted to the "
        "others; null: a half shows too little.",
    )
    probe_held_out: Agreement | None = Field(
        None,
        description="Emulated against the probes' requests that met a window, each window by the "
        "contention of all others; null: too few windows.",
    )


@dataclass(frozen=True)
class Calibration:
    """A model and how well it fits what it was fitted to."""

    model: EngineModel
    fit: Fit


def calibrate(
    nosync: Sequence[pd.DataFrame],
    probes: Sequence[Probe],
    limits: Limits,
    *,
    context: bool = False,
    growth: bool = False,
    preemptions: int = 0,
) -> Calibration:
    """Fit an EngineModel to captures of one sidecar in one regime.

    nosync: REQUESTS of captures without merges, with chunk times. probes: captures with merges.
    limits: the server's settings; they are not fitted.
    context: fit a cost per cached token too (it needs prompts or answers of many lengths).
    growth: fit the growth of the contention factor with the batch. preemptions: how many the
    servers counted in all captures (`preemptions_total` of TELEMETRY).

    ValueError, one sentence: too few requests or steps, batches too alike to tell the costs apart,
    probes without merges or whose merges met too few steps, or a preempted sequence: steps are
    told apart by the rhythm of tokens, which it breaks.
    """
    if preemptions:
        raise ValueError(
            f"the captures' servers preempted sequences {preemptions} times, which hides their "
            "engine steps; expected captures whose KV cache never runs full."
        )
    requests = sum(int((capture["status"] == "ok").sum()) for capture in nosync)
    if requests < MIN_REQUESTS:
        raise ValueError(
            f"the nosync captures hold {requests} successful requests, too few to fit a step-time "
            f"model; expected at least {MIN_REQUESTS}."
        )
    if not probes or any(probe.merges.empty for probe in probes):
        raise ValueError(
            "a probe capture holds no merge; expected probes with at least one merge each to fit "
            "contention."
        )
    budget = limits.max_num_batched_tokens
    steps = [iterations(capture, budget) for capture in nosync]
    probed = [iterations(probe.requests, budget) for probe in probes]
    step, residual_s, hiccups = fit_step_time(steps, context)
    windows = [Windows.measured(probe.merges) for probe in probes]
    slowed = [contended(seen, during, step) for seen, during in zip(probed, windows, strict=True)]
    contention = fit_contention(slowed, growth)
    model = EngineModel(
        limits=limits,
        step=step,
        contention=(contention,),
        client_overhead_s=0.0,
    )
    model = _with_overheads(model, nosync, probes, windows)
    quantiles = np.quantile(residual_s, [0.05, 0.50, 0.95])
    factors = factor_by_window(slowed)
    return Calibration(
        model,
        Fit(
            steps=residual_s.size,
            residual_rmse_s=np.sqrt((residual_s**2).mean()),
            residual_p05_s=quantiles[0],
            residual_p50_s=quantiles[1],
            residual_p95_s=quantiles[2],
            hiccups=hiccups,
            contended_steps=sum(met.inside_s.size for met in slowed),
            windows=sum(len(probe.merges) for probe in probes),
            factor_by_window=factors,
            contention_error=contention.spread / np.sqrt(len(factors))
            if len(factors) >= MIN_WINDOWS
            else None,
            most_sequences=max(int((s.decodes + s.prefills).max()) for s in (*steps, *probed)),
            nosync=tuple(_compare(capture, Windows.none(), model) for capture in nosync),
            probe=tuple(
                _compare(probe.requests, during, model)
                for probe, during in zip(probes, windows, strict=True)
            ),
            nosync_held_out=nosync_held_out(nosync, steps, model, context),
            probe_held_out=probe_held_out(
                [probe.requests for probe in probes], windows, slowed, model, growth
            ),
        ),
    )


def _with_overheads(
    model: EngineModel,
    nosync: Sequence[pd.DataFrame],
    probes: Sequence[Probe],
    windows: Sequence[Windows],
) -> EngineModel:
    """Return the model with its overheads: of any request, and beyond that inside windows."""

    def client(overhead_s: float) -> EngineModel:
        return model.model_copy(update={"client_overhead_s": overhead_s})

    none = Windows.none()
    fitted = client(
        _overhead(
            lambda at_s: [_ttft_errors_s(rows, none, client(at_s)) for rows in nosync], np.median
        )
    )

    def inside(overhead_s: float) -> EngineModel:
        phase = fitted.contention[0].model_copy(update={"overhead_s": overhead_s})
        return fitted.model_copy(update={"contention": (phase,)})

    met = list(zip(probes, windows, strict=True))
    return inside(
        _overhead(
            lambda at_s: [
                _ttft_errors_s(probe.requests, during, inside(at_s), inside=True)
                for probe, during in met
            ],
            np.mean,
        )
    )


def _overhead(errors_s: Callable[[float], list[np.ndarray]], middle: Callable) -> float:
    """Return the overhead, s, at which the `middle` of `errors_s(overhead)` is zero, or 0."""
    overhead_s = 0.0
    for _ in range(_OVERHEAD_ROUNDS):
        late_s = np.concatenate(errors_s(overhead_s))
        change_s = float(middle(late_s)) if late_s.size else 0.0
        overhead_s = max(overhead_s + change_s, 0.0)
        if abs(change_s) < _SETTLED_S:
            break
    return overhead_s


def _ttft_errors_s(
    capture: pd.DataFrame, windows: Windows, model: EngineModel, inside: bool = False
) -> np.ndarray:
    """Return measured less emulated TTFT, s, with `inside` of the arrivals inside windows only."""
    rows = answered(capture)
    emulated = simulate(Trace.from_rows(rows), windows, model)
    used = (rows["status"] == "ok").to_numpy()
    if inside:
        used &= windows.hold(rows["arrival_s"].to_numpy())
    return (rows["first_token_s"].to_numpy() - emulated.first_token_s)[used]


def _compare(capture: pd.DataFrame, windows: Windows, model: EngineModel) -> Agreement:
    emulated = simulate(Trace.from_rows(answered(capture)), windows, model)
    return agreement(capture, emulated.to_requests())
