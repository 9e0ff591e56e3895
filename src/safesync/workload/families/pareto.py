"""Pareto on/off: bursts and silences with heavy tails, so that load is uneven at every scale."""

from collections.abc import Iterator
from typing import ClassVar, Literal

import numpy as np
from pydantic import Field

from safesync.workload.families.base import Intensity, ModulatedPoisson, alternating

_AZURE = "Source: on/off fit to AzureLLMInferenceTrace_code 2023 (CC-BY-4.0)"


class ParetoOnOff(ModulatedPoisson):
    """Poisson arrivals while on, none while off; both lengths are Pareto, the start stationary.

    With shape below 2 a length has no variance, and the superposition of many such sources is
    self-similar: Willinger, Taqqu, Sherman and Wilson, Self-similarity through high-variability,
    IEEE/ACM Transactions on Networking 5 (1997).
    """

    family: Literal["pareto_onoff"] = "pareto_onoff"
    on_rps: float = Field(
        9.1,
        gt=0,
        allow_inf_nan=False,
        description=f"Arrival rate while on, requests/s. {_AZURE}.",
    )
    mean_on_s: float = Field(
        16.7, gt=0, allow_inf_nan=False, description=f"Mean length of a burst, s. {_AZURE}."
    )
    mean_off_s: float = Field(
        43.0, gt=0, allow_inf_nan=False, description=f"Mean length of a silence, s. {_AZURE}."
    )
    on_shape: float = Field(
        1.5,
        gt=1,
        allow_inf_nan=False,
        description="Tail index of the length of bursts, no unit; above 1, else the mean is "
        "infinite. Source: your choice; Willinger et al. 1997 found 1 to 2 in network traffic.",
    )
    off_shape: float = Field(
        1.6,
        gt=1,
        allow_inf_nan=False,
        description=f"Tail index of the length of silences, no unit; above 1. {_AZURE}: mean 43 s "
        "and median 25 s.",
    )

    rate_fields: ClassVar[tuple[str, ...]] = ("on_rps",)

    def intensity(self, horizon_s: float, rng: np.random.Generator) -> Intensity:
        """Draw the state at 0 from its long-run share, then the stays over [0, ``horizon_s``)."""
        cycle_s = self.mean_off_s + self.mean_on_s
        first = int(rng.random() * cycle_s >= self.mean_off_s)
        return alternating(horizon_s, first, self._stays(first, rng), (0.0, self.on_rps))

    def _stays(self, state: int, rng: np.random.Generator) -> Iterator[float]:
        laws = ((self.mean_off_s, self.off_shape), (self.mean_on_s, self.on_shape))
        yield residual_pareto(*laws[state], rng.random())
        while True:
            state = 1 - state
            yield pareto(*laws[state], rng.random())


def pareto(mean: float, shape: float, uniform: float) -> float:
    """Return the Pareto variate whose upper-tail probability is 1 - ``uniform`` (in [0, 1))."""
    return mean * (shape - 1) / shape * (1 - uniform) ** (-1 / shape)


def residual_pareto(mean: float, shape: float, uniform: float) -> float:
    """Return what is left, at a random moment, of a Pareto stay: the equilibrium law's quantile.

    Its density is P(stay > x) / mean (Cox, Renewal Theory, 1962, section 5.2), so its distribution
    is x / mean up to the shortest stay m, and 1 - (m / x)^(shape - 1) / shape beyond.
    """
    if uniform < (shape - 1) / shape:
        return uniform * mean
    return mean * (shape - 1) / shape * (shape * (1 - uniform)) ** (-1 / (shape - 1))
