"""Out-of-sample errors of a calibration: each part of the captures, predicted without it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd

from safesync.emulator.agreement import Agreement, agreement
from safesync.emulator.contention import Contended, fit_contention
from safesync.emulator.engine import Trace, simulate
from safesync.emulator.iterations import Iterations
from safesync.emulator.model import EngineModel
from safesync.emulator.step_time import fit_step_time
from safesync.emulator.windows import Windows


def answered(capture: pd.DataFrame) -> pd.DataFrame:
    """Return the rows of REQUESTS whose load on the engine is known, by arrival."""
    known = capture["prompt_tokens"].notna() & (capture["output_tokens"] > 0)
    return capture[known].sort_values("arrival_s", kind="stable")


def nosync_held_out(
    captures: Sequence[pd.DataFrame], steps: Sequence[Iterations], model: EngineModel, context: bool
) -> Agreement | None:
    """Return the errors of each half of the nosync captures, its step time fitted to the others.

    captures: REQUESTS; steps: of each. A capture is halved at its median arrival. The client
    overhead stays that of `model`. None where a half alone cannot be fitted.
    """
    middle_s = [capture["arrival_s"].median() for capture in captures]
    pairs = []
    for late in (False, True):
        others = [
            seen.rows((seen.end_s > at_s) != late)
            for seen, at_s in zip(steps, middle_s, strict=True)
        ]
        try:
            step, _, _ = fit_step_time(others, context)
        except ValueError:
            return None
        without = model.model_copy(update={"step": step})
        for number, (capture, at_s) in enumerate(zip(captures, middle_s, strict=True)):
            mine = capture[(capture["arrival_s"] > at_s) == late]
            pairs.append(_emulated(number, capture, mine, Windows.none(), without))
    return _together(pairs)


def probe_held_out(
    captures: Sequence[pd.DataFrame],
    windows: Sequence[Windows],
    slowed: Sequence[Contended],
    model: EngineModel,
    growth: bool,
) -> Agreement | None:
    """Return the errors of the requests that met a window, by the contention of all others.

    captures: REQUESTS of the probes; windows, slowed: of each. A request belongs to the first
    window that it meets. The overhead inside stays that of `model`. None where a window's absence
    leaves too few steps to fit.
    """
    pairs = []
    for number, (capture, during) in enumerate(zip(captures, windows, strict=True)):
        first = np.searchsorted(during.end_s, capture["arrival_s"], side="right")
        for window, start_s in enumerate(during.start_s):
            others = list(slowed)
            others[number] = slowed[number].without(window)
            try:
                contention = fit_contention(others, growth)
            except ValueError:
                return None
            overhead = {"overhead_s": model.contention[0].overhead_s}
            without = model.model_copy(
                update={"contention": (contention.model_copy(update=overhead),)}
            )
            mine = capture[(first == window) & (capture["done_s"] > start_s)]
            pairs.append(_emulated(number, capture, mine, during, without))
    return _together(pairs)


def _emulated(
    number: int, capture: pd.DataFrame, mine: pd.DataFrame, windows: Windows, model: EngineModel
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return (measured, emulated) rows of `mine`, with ids that tell captures apart."""
    emulated = simulate(Trace.from_rows(answered(capture)), windows, model).to_requests()
    emulated = emulated[emulated["request_id"].isin(mine["request_id"])]
    return tuple(
        rows.assign(request_id=[(number, request) for request in rows["request_id"]])
        for rows in (mine, emulated)
    )


def _together(pairs: Sequence[tuple[pd.DataFrame, pd.DataFrame]]) -> Agreement | None:
    measured, emulated = (pd.concat(rows) for rows in zip(*pairs, strict=True))
    return agreement(measured, emulated) if (measured["status"] == "ok").any() else None
