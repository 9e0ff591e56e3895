"""Gamma renewal: independent gaps with a chosen coefficient of variation."""

from typing import ClassVar, Literal

import numpy as np
from pydantic import Field

from safesync.workload.families.base import ArrivalFamily, Drawn, Intensity, flat


class GammaRenewal(ArrivalFamily):
    """Arrivals with independent gamma gaps, seen from a random moment on.

    The gap's shape is 1 / cv^2: cv 1 is Poisson, above 1 arrivals cluster, below 1 they are more
    even than Poisson. Gaps do not depend on each other, so that no cv makes long silences and long
    bursts: use mmpp2 or pareto_onoff for those.
    """

    family: Literal["gamma"] = "gamma"
    rate_rps: float = Field(
        2.57,
        gt=0,
        allow_inf_nan=False,
        description="Mean arrival rate, requests/s. Source: AzureLLMInferenceTrace_code 2023 "
        "(CC-BY-4.0).",
    )
    cv: float = Field(
        2.1,
        gt=0,
        le=100,
        allow_inf_nan=False,
        description="Standard deviation of a gap over its mean, no unit. Source: gamma fit to "
        "AzureLLMInferenceTrace_code 2023 (shape 0.231); BurstGPT's own generator has 1.41.",
    )

    rate_fields: ClassVar[tuple[str, ...]] = ("rate_rps",)

    def draw(
        self, horizon_s: float, rng: np.random.Generator, envelope: Intensity | None = None
    ) -> Drawn:
        """Draw the gaps; under an envelope they are gaps of its integral, not of the clock.

        The time change is exact and keeps cv, which thinning would pull towards 1 (Gerhardt and
        Nelson, Transforming renewal processes for simulation of nonstationary arrival processes,
        INFORMS Journal on Computing 21, 2009).
        """
        clock = flat(horizon_s) if envelope is None else envelope
        span = clock.expected()
        expected = self.rate_rps * span
        shape = self.cv**-2
        scale = self.cv**2 / self.rate_rps
        # the gap that holds a random moment is longer than others: its law is gamma with shape
        # + 1, and the moment is uniform inside it (Cox, Renewal Theory, 1962, section 5.2)
        times = np.array([rng.random() * rng.gamma(shape + 1, scale)])
        chunk = int(expected + 4 * self.cv * np.sqrt(expected)) + 16
        while times[-1] < span:
            gaps = rng.gamma(shape, scale, chunk)
            times = np.concatenate([times, times[-1] + np.cumsum(gaps)])
        arrival_s = clock.reached(times[times < span])
        return Drawn(np.minimum(arrival_s, np.nextafter(horizon_s, 0.0)), expected, None)
