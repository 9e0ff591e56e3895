"""Costs of at least zero out of measured seconds, despite a machine's hiccups."""

from __future__ import annotations

import numpy as np
from scipy.optimize import least_squares, nnls

_SMALLEST_SCALE_S = 1e-9  # of residuals: below it a fit is exact, and nothing is an outlier


def fit_costs(causes: np.ndarray, seconds: np.ndarray) -> tuple[np.ndarray, float]:
    """Return (costs, hiccups): non-negative costs with `causes @ costs` near `seconds`.

    causes: shape (n, k), how much of each cause an interval held, no column zero throughout.
    seconds: shape (n,). The ratios between the costs come from a Huber fit (quadratic up to the
    median absolute residual of least squares, linear beyond), which a hiccup of the machine in one
    interval cannot bend; then all are raised by one factor, so that total fitted time equals total
    measured time: latencies are sums of intervals, hiccups included. `hiccups` is that factor
    minus 1.
    """
    scale = causes.max(axis=0)
    scaled = causes / scale
    least, _ = nnls(scaled, seconds)
    usual_s = np.median(np.abs(seconds - scaled @ least))
    robust = least_squares(
        lambda costs: scaled @ costs - seconds,
        least,
        jac=lambda costs: scaled,
        bounds=(0.0, np.inf),
        loss="huber",
        f_scale=max(usual_s, _SMALLEST_SCALE_S),
    )
    raised = seconds.sum() / (scaled @ robust.x).sum()
    return robust.x * raised / scale, raised - 1.0
