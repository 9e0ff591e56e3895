"""MMPP-2: bursts without a period, a Markov-modulated Poisson process of two states."""

from itertools import count
from typing import Annotated, ClassVar, Literal

import numpy as np
from pydantic import Field, model_validator

from safesync.workload.families.base import Intensity, ModulatedPoisson, alternating

_AZURE = (
    "Source: fit to AzureLLMInferenceTrace_code 2023 (CC-BY-4.0), counts in 1-s bins, "
    "log-likelihood -4,766 against -15,649 for Poisson."
)
_Rate = Annotated[float, Field(ge=0, allow_inf_nan=False)]
_Sojourn = Annotated[float, Field(gt=0, allow_inf_nan=False)]


class Mmpp2(ModulatedPoisson):
    """Poisson arrivals whose rate follows a two-state Markov chain in continuous time.

    Sojourns are exponential; the first state comes from the chain's stationary law, so the trace
    has no ramp-up. Fischer and Meier-Hellstern, The Markov-modulated Poisson process (MMPP)
    cookbook, Performance Evaluation 18 (1993).
    """

    family: Literal["mmpp2"] = "mmpp2"
    rates_rps: tuple[_Rate, _Rate] = Field(
        (0.011, 9.88), description=f"Arrival rate in each state, requests/s. {_AZURE}"
    )
    mean_sojourn_s: tuple[_Sojourn, _Sojourn] = Field(
        (21.8, 7.6), description=f"Mean length of a stay in each state, s. {_AZURE}"
    )

    rate_fields: ClassVar[tuple[str, ...]] = ("rates_rps",)

    @model_validator(mode="after")
    def _check(self) -> "Mmpp2":
        if not any(self.rates_rps):
            raise ValueError("rates_rps: at least one of the two rates must be above 0")
        return self

    def intensity(self, horizon_s: float, rng: np.random.Generator) -> Intensity:
        """Draw the chain's path over [0, ``horizon_s``)."""
        quiet_s, busy_s = self.mean_sojourn_s
        first = int(rng.random() * (quiet_s + busy_s) >= quiet_s)
        stays_s = (rng.exponential(self.mean_sojourn_s[(first + k) % 2]) for k in count())
        return alternating(horizon_s, first, stays_s, self.rates_rps)
