"""Forecast error on purpose: a forecast moved towards the truth, or further away from it.

``forecast_error`` m replaces a forecast f of a window's overlap by ``truth + m * (f - truth)``:
0 is perfect foresight, 1 the forecaster itself, 2 twice its error. To know an error takes the
future, so that a policy with any m, 1 included, is not deployable. It answers how a policy degrades
with its forecast, and is no policy to run.

A forecast that varies less than the truth moves *against* it at 2: where the truth is above f, then
``2 * f - truth`` lies below it. Policies that seek the cheapest window are then led to the busiest
ones, and can do worse than chance. That is a property of the definition, not of noise.
"""

from __future__ import annotations

import numpy as np
from pydantic import Field

from safesync.placement.overlap import overlap_cost
from safesync.policies.base import Block


def forecast_error_field() -> float | None:
    """Return the parameter of a policy that forecasts."""
    return Field(
        None,
        ge=0,
        allow_inf_nan=False,
        description="Factor on the forecast's error, no unit: 0 knows the future, 1 is the "
        "forecaster itself, 2 doubles its error; any number makes the policy not deployable; "
        "null: forecast from the past alone. Source: an experiment on forecasts, 0 to 2.",
    )


class Foresight:
    """Forecasts of the overlap with their error multiplied; none is changed without a factor."""

    def __init__(self, block: Block, forecast_error: float | None) -> None:
        """Look up the true overlaps of ``block`` if ``forecast_error`` asks for them."""
        self._error = forecast_error
        if forecast_error is not None:
            self._truth = overlap_cost(block.trace.arrival_s, block.trace.done_s, block.corridor)

    def apply(self, forecast: np.ndarray, start_steps: np.ndarray) -> np.ndarray:
        """Return ``forecast`` (requests) of windows that start at ``start_steps``, same shape.

        Both have the windows along their first axis. Windows that do not end inside the horizon
        have no truth and keep their forecast.
        """
        if self._error is None:
            return forecast
        known = start_steps < len(self._truth)
        truth = self._truth[start_steps[known]].reshape(-1, *[1] * (forecast.ndim - 1))
        changed = np.array(forecast, dtype=np.float64)
        changed[known] = np.maximum(truth + self._error * (forecast[known] - truth), 0.0)
        return changed
