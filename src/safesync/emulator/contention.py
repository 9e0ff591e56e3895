"""The contention of merge windows out of probe captures.

A step of `d` seconds that spends `o` of them inside windows, and would take `w` without contention,
did `i = w - (d - o)` of its work inside, as the engine integrates it. Then `o` is about

    factor * i + delay * i / w  (+ growth * i * further sequences, where asked for)

fitted to all steps that meet a window by least squares with weights `1 / w`, which keep the total
for those wholly inside. The delay is there because short steps suffer more than long ones: whoever
is woken on busy cores waits for a turn, once per step, however much it then has to do.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.optimize import nnls

from safesync.emulator.iterations import Iterations
from safesync.emulator.model import Contention, StepTime
from safesync.emulator.windows import Windows

MIN_CONTENDED = 20
MIN_WINDOWS = 3  # of which a spread can be told
_LEAST_FACTOR = 1e-3  # a factor has to be above 0, which a fit that is all delay may not give


@dataclass(frozen=True)
class Contended:
    """Steps that meet a window: shape (steps,) each."""

    inside_s: np.ndarray  # time spent inside windows
    work_s: np.ndarray  # uncontended time of the part done inside
    alone_s: np.ndarray  # uncontended time of the whole step
    sequences: np.ndarray
    window: np.ndarray  # the window in which the step ends, or the last before

    def without(self, window: int) -> Contended:
        """Return the steps of all other windows."""
        return self._rows(self.window != window)

    def by_window(self) -> list[Contended]:
        """Return the steps of each window that met at least MIN_CONTENDED of them."""
        each = [self._rows(self.window == window) for window in np.unique(self.window)]
        return [steps for steps in each if steps.window.size >= MIN_CONTENDED]

    def _rows(self, chosen: np.ndarray) -> Contended:
        return Contended(**{name: column[chosen] for name, column in vars(self).items()})


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
        alone_s=alone_s[used],
        sequences=(steps.decodes + steps.prefills)[used],
        window=window[used],
    )


def fit_contention(captures: Sequence[Contended], growth: bool) -> Contention:
    """Return the contention of work inside windows, with `growth` also its increase with the batch.

    captures: of each probe. ValueError, one sentence: fewer than MIN_CONTENDED steps met a window,
    or none of them can show growth.
    """
    inside_s, alone_s = (
        np.concatenate([getattr(steps, name) for steps in captures])
        for name in ("inside_s", "alone_s")
    )
    causes = np.concatenate([_causes(steps) for steps in captures])
    if inside_s.size < MIN_CONTENDED or causes[:, 0].sum() <= 0:
        raise ValueError(
            f"the probes' merges met {inside_s.size} engine steps that can be timed, too few to "
            f"fit contention; expected at least {MIN_CONTENDED}."
        )
    if growth and np.unique(np.concatenate([steps.sequences for steps in captures])).size < 2:
        raise ValueError(
            "the probes' merges met engine steps of one batch size only, which show no growth of "
            "contention with the batch; expected several."
        )
    weight = 1 / np.sqrt(alone_s)
    fitted = causes if growth else causes[:, :2]
    costs, _ = nnls(fitted * weight[:, None], inside_s * weight)
    factor, delay_s, per_sequence = np.append(costs, np.zeros(3 - costs.size)).tolist()
    contention = Contention(
        factor=max(factor, _LEAST_FACTOR), delay_s=delay_s, per_sequence=per_sequence
    )
    return contention.model_copy(update={"spread": _spread(captures, contention)})


def factor_by_window(captures: Sequence[Contended]) -> tuple[float, ...]:
    """Return the time inside over the work done there of each window with steps enough."""
    windows = [window for steps in captures for window in steps.by_window()]
    return tuple(float(steps.inside_s.sum() / steps.work_s.sum()) for steps in windows)


def _causes(steps: Contended) -> np.ndarray:
    """Return what factor, delay and growth are multiplied by, shape (steps, 3)."""
    further = steps.sequences - 1
    return np.column_stack([steps.work_s, steps.work_s / steps.alone_s, steps.work_s * further])


def _spread(captures: Sequence[Contended], contention: Contention) -> float:
    costs = [contention.factor, contention.delay_s, contention.per_sequence]
    stretch = [
        steps.inside_s.sum() / (_causes(steps) @ costs).sum()
        for capture in captures
        for steps in capture.by_window()
    ]
    return float(np.log(stretch).std(ddof=1)) if len(stretch) >= MIN_WINDOWS else 0.0
