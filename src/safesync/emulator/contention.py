"""The contention of merge windows out of probe captures.

A step of `d` seconds that spends `o` of them inside windows, and would take `w` without contention,
did `w - (d - o)` of its work inside, as the engine integrates it. The factor is the sum of `o` over
the sum of that work, for all steps that meet a window; its growth with each further sequence is
fitted to the steps that lie wholly inside.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from safesync.emulator.costs import fit_costs
from safesync.emulator.iterations import Iterations
from safesync.emulator.model import Contention, StepTime
from safesync.emulator.windows import Windows

MIN_CONTENDED = 20
_ROUNDING_S = 1e-9
_LEAST_FACTOR = 1e-3  # a factor has to be above 0, which a fit that is all growth may not give


@dataclass(frozen=True)
class Contended:
    """Steps that meet a window: shape (steps,) each."""

    inside_s: np.ndarray  # time spent inside windows
    work_s: np.ndarray  # uncontended time of the part done inside
    sequences: np.ndarray
    wholly: np.ndarray  # bool: nothing of the step lies outside
    window: np.ndarray  # the window in which the step ends, or the last before


def contended(steps: Iterations, windows: Windows, step: StepTime) -> Contended:
    """Return the steps of a probe that meet a window, against what `step` gives without one."""
    inside_s = windows.overlap_s(steps.start_s, steps.end_s)
    window = np.searchsorted(windows.start_s, steps.end_s, side="right") - 1
    ends_inside = (window >= 0) & (steps.end_s <= windows.end_s[window])
    used = steps.whole & np.isfinite(steps.start_s) & (ends_inside | (inside_s > 0))
    alone_s = step.seconds(steps.decodes, steps.prefill_tokens, steps.context_tokens)
    outside_s = steps.duration_s - inside_s
    return Contended(
        inside_s=inside_s[used],
        work_s=(alone_s - outside_s)[used],
        sequences=(steps.decodes + steps.prefills)[used],
        wholly=(outside_s <= _ROUNDING_S)[used],
        window=window[used],
    )


def fit_contention(captures: list[Contended], growth: bool) -> Contention:
    """Return the factor on work inside windows, with `growth` also its increase with the batch.

    captures: of each probe. ValueError, one sentence: fewer than MIN_CONTENDED steps met a window,
    or none of them can show growth.
    """
    inside_s = np.concatenate([steps.inside_s for steps in captures])
    work_s = np.concatenate([steps.work_s for steps in captures])
    if inside_s.size < MIN_CONTENDED or work_s.sum() <= 0:
        raise ValueError(
            f"the probes' merges met {inside_s.size} engine steps that can be timed, too few to "
            f"fit contention; expected at least {MIN_CONTENDED}."
        )
    if not growth:
        return Contention(factor=inside_s.sum() / work_s.sum())
    wholly = np.concatenate([steps.wholly for steps in captures])
    further = np.concatenate([steps.sequences for steps in captures])[wholly] - 1
    if np.unique(further).size < 2:
        raise ValueError(
            "the probes' merges met engine steps of one batch size only, which show no growth of "
            "contention with the batch; expected several."
        )
    work_s = work_s[wholly]
    causes = np.column_stack([work_s, work_s * further])
    (factor, per_sequence), _ = fit_costs(causes, inside_s[wholly])
    return Contention(factor=max(factor, _LEAST_FACTOR), per_sequence=per_sequence)


def factor_by_window(captures: list[Contended]) -> tuple[float, ...]:
    """Return the factor of each window by itself, where it met at least MIN_CONTENDED steps."""
    factors = []
    for steps in captures:
        for window in np.unique(steps.window):
            mine = steps.window == window
            if mine.sum() >= MIN_CONTENDED:
                factors.append(float(steps.inside_s[mine].sum() / steps.work_s[mine].sum()))
    return tuple(factors)
