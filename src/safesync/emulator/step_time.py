"""The step-time model out of captures without merges."""

from __future__ import annotations

import numpy as np

from safesync.emulator.costs import fit_costs
from safesync.emulator.iterations import Iterations
from safesync.emulator.model import StepTime

MIN_STEPS = 100


def fit_step_time(captures: list[Iterations], context: bool) -> tuple[StepTime, np.ndarray, float]:
    """Return the step-time model, its residuals (steps,) in s, and the share of hiccups.

    captures: the engine steps of each nosync capture; those are used that were seen whole, with
    their start. context: fit a cost per cached token too. `hiccups`: see `fit_costs`.

    ValueError, one sentence: fewer than MIN_STEPS steps, or batches too alike.
    """
    causes, seconds = [], []
    for steps in captures:
        used = steps.whole & np.isfinite(steps.start_s)
        columns = [np.ones(used.sum()), steps.decodes[used], steps.prefill_tokens[used]]
        causes.append(
            np.column_stack([*columns, steps.context_tokens[used]] if context else columns)
        )
        seconds.append(steps.duration_s[used])
    causes, seconds = np.concatenate(causes), np.concatenate(seconds)
    if seconds.size < MIN_STEPS:
        raise ValueError(
            f"the nosync captures show {seconds.size} engine steps whose start and end are seen, "
            f"too few to fit a step-time model; expected at least {MIN_STEPS}."
        )
    scale = causes.max(axis=0)
    if (scale == 0).any() or np.linalg.matrix_rank(causes / scale) < scale.size:
        raise ValueError(
            "the nosync captures' engine steps are too alike to tell the costs of decodes, prefill "
            f"{'tokens and context' if context else 'and the step itself'} apart; expected "
            "batches of several sizes."
        )
    costs, hiccups = fit_costs(causes, seconds)
    if costs[0] <= 0:
        raise ValueError(
            "the nosync captures' engine steps fit no positive base time; expected longer or "
            "calmer captures."
        )
    residual_s = seconds - causes @ costs
    names = ("base_s", "per_decode_s", "per_prefill_token_s", "per_context_token_s")
    step = StepTime(**dict(zip(names, costs.tolist(), strict=False)))
    return step, residual_s, hiccups
