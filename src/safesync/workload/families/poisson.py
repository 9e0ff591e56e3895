"""Poisson arrivals: a constant rate, the load without any structure."""

from typing import ClassVar, Literal

import numpy as np
from pydantic import Field

from safesync.workload.families.base import Intensity, ModulatedPoisson, flat


class Poisson(ModulatedPoisson):
    """Poisson arrivals at one rate: nothing to foresee, the negative control of placement."""

    family: Literal["poisson"] = "poisson"
    rate_rps: float = Field(
        2.0,
        gt=0,
        allow_inf_nan=False,
        description="Arrival rate, requests/s. Source: below the 2.4 to 6 requests/s that a vLLM "
        "CPU sidecar on two cores was measured to serve.",
    )

    rate_fields: ClassVar[tuple[str, ...]] = ("rate_rps",)

    def intensity(self, horizon_s: float, rng: np.random.Generator) -> Intensity:
        """Return the constant rate; nothing is taken from ``rng``."""
        return flat(horizon_s, self.rate_rps)
