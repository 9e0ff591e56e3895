"""wa_forecast: the workload-aware score, less the overlap that a merge starting now would meet."""

from typing import ClassVar

import numpy as np
from pydantic import BaseModel, Field

from safesync.policies import wa_diloco
from safesync.policies.base import Block, Observation
from safesync.policies.foresight import Foresight, forecast_error_field


class Parameters(wa_diloco.Parameters):
    """Those of wa_diloco, and the forecast's."""

    threshold: float = Field(
        0.2,
        allow_inf_nan=False,
        description="Merge when the mean score exceeds it, no unit. Source: the study has 0; see "
        "the policy for 0.2.",
    )
    overlap_weight: float = Field(
        0.75,
        ge=0,
        allow_inf_nan=False,
        description="Weight of the expected overlap, no unit. Source: a starting value, to "
        "be tuned on tune seeds.",
    )
    overlap_scale: float = Field(
        20.0,
        gt=0,
        allow_inf_nan=False,
        description="Expected overlap that counts as 1, requests. Source: as overlap_weight.",
    )
    alpha: float = Field(
        0.3,
        gt=0,
        le=1,
        description="Weight of the newest completed second in the forecast of the request rate, no "
        "unit. Source: as overlap_weight.",
    )
    forecast_error: float | None = forecast_error_field()


class WaForecast(wa_diloco.WaDiloco):
    """wa_diloco less ``overlap_weight * soft(expected overlap, overlap_scale)``.

    The expected overlap of a window that starts now is the requests in flight plus ``merge_s``
    times a one-step forecast of the request rate: the exponentially weighted mean of the counts per
    completed second, started from the first one (Brown, Statistical Forecasting for Inventory
    Control, 1959). After the published study's online forecaster.

    ``threshold`` is 0.2: below wa_diloco's, since the expected overlap of even a quiet window costs
    about a third, and chosen in the same simulations (see there) for a budget in the middle of the
    corridor. At 0 half of 40 tune seeds made 5 merges (pinned) and a quarter of the gaps were
    exactly ``h_min``; at 0.2 13 seeds made 3, 26 made 4 and one 5, none forced, 5 % of the gaps at
    ``h_min``.
    """

    name: ClassVar[str] = "wa_forecast"
    Parameters: ClassVar[type[BaseModel]] = Parameters

    def __init__(self, parameters: BaseModel | None = None) -> None:
        """As any policy; with a ``forecast_error`` it is not deployable."""
        super().__init__(parameters)
        self.deployable = self.parameters.forecast_error is None

    def begin(self, block: Block) -> None:
        """Start without a forecast."""
        super().begin(block)
        self._foresight = Foresight(block, self.parameters.forecast_error)
        self._rate_rps: float | None = None
        self._seconds = 0

    def score(self, observation: Observation) -> float:
        """Return the mean score of all learners, less the expected overlap's part, no unit."""
        p = self.parameters
        overlap = observation.in_flight + observation.merge_s * self._forecast(observation)
        now_step = round(observation.now_s / observation.step_s)
        overlap = self._foresight.apply(np.array([overlap]), np.array([now_step]))[0]
        penalty = p.overlap_weight * wa_diloco.soft(overlap, p.overlap_scale)
        return super().score(observation) - float(penalty)

    def _forecast(self, observation: Observation) -> float:
        """Take in the seconds completed since the last call; return the rate, requests/s."""
        alpha = self.parameters.alpha
        for count in observation.counts_per_s[self._seconds :].tolist():
            if self._rate_rps is None:
                self._rate_rps = float(count)
            else:
                self._rate_rps += alpha * (count - self._rate_rps)
        self._seconds = len(observation.counts_per_s)
        return self._rate_rps or 0.0


POLICY = WaForecast
