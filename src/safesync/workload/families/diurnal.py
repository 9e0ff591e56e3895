"""A diurnal envelope over any other family: its rate rises and falls with the hour."""

from typing import Annotated, ClassVar, Literal

import numpy as np
from pydantic import Field, model_validator

from safesync.workload.families.base import ArrivalFamily, Drawn, Intensity
from safesync.workload.families.gamma import GammaRenewal
from safesync.workload.families.mmpp2 import Mmpp2
from safesync.workload.families.pareto import ParetoOnOff
from safesync.workload.families.periodic import Periodic
from safesync.workload.families.poisson import Poisson

Inner = Annotated[
    Poisson | Periodic | Mmpp2 | ParetoOnOff | GammaRenewal, Field(discriminator="family")
]
_Level = Annotated[float, Field(ge=0, allow_inf_nan=False)]


class Diurnal(ArrivalFamily):
    """Another family whose rate is multiplied by a profile that repeats every period.

    The profile is a row of steps, so that the product with a family's rate stays exact and can be
    recorded; it is scaled to mean 1, so that the inner family's rates are those of the whole
    period. Bursts of a family keep their length; a renewal family keeps its cv.
    """

    family: Literal["diurnal"] = "diurnal"
    inner: Inner = Field(
        Poisson(),
        description="The family whose rate the profile multiplies, no unit. Source: your choice.",
    )
    period_s: float = Field(
        86_400.0,
        gt=0,
        allow_inf_nan=False,
        description="Length of the profile, s. Source: one day; shorten it with the runs.",
    )
    profile: tuple[_Level, ...] = Field(
        tuple(round(float(1 - 0.6 * np.cos(np.pi * (hour + 0.5) / 12)), 3) for hour in range(24)),
        min_length=1,
        description="Relative rate in equal parts of the period, no unit (scaled to mean 1). "
        "Source: your traffic, e.g. requests per hour of a day; the default is a cosine whose peak "
        "is four times its trough.",
    )
    start_s: float | None = Field(
        None,
        ge=0,
        allow_inf_nan=False,
        description="Where in the period the trace starts, s; null: uniform, drawn per seed. "
        "Source: your choice.",
    )

    rate_fields: ClassVar[tuple[str, ...]] = ("inner",)

    @model_validator(mode="after")
    def _check(self) -> "Diurnal":
        if not any(self.profile):
            raise ValueError("profile: at least one level must be above 0")
        if self.start_s is not None and self.start_s >= self.period_s:
            raise ValueError(
                f"start_s ({self.start_s:g} s) must be below period_s ({self.period_s:g} s)"
            )
        return self

    def draw(
        self, horizon_s: float, rng: np.random.Generator, envelope: Intensity | None = None
    ) -> Drawn:
        """Draw where the trace starts in the period, then the inner family under the profile."""
        own = self.envelope(horizon_s, rng)
        return self.inner.draw(horizon_s, rng, own if envelope is None else own.times(envelope))

    def envelope(self, horizon_s: float, rng: np.random.Generator) -> Intensity:
        """Return the profile's factors over [0, ``horizon_s``), from ``start_s`` on."""
        start_s = rng.random() * self.period_s if self.start_s is None else self.start_s
        parts = len(self.profile)
        part_s = self.period_s / parts
        part = np.floor(start_s / part_s) + np.arange(np.ceil(horizon_s / part_s) + 2)
        bounds = part * part_s - start_s
        inside = (bounds[1:] > 0) & (bounds[:-1] < horizon_s)
        edges = np.concatenate([[0.0], bounds[:-1][inside][1:], [horizon_s]])
        levels = np.array(self.profile)[part[:-1][inside].astype(np.int64) % parts]
        return Intensity(edges, levels / np.mean(self.profile))
