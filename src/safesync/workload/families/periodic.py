"""Periodic bursts: Poisson arrivals at a quiet rate, and at a busy one once in each period."""

from typing import ClassVar, Literal

import numpy as np
from pydantic import Field, model_validator

from safesync.workload.families.base import Intensity, ModulatedPoisson


class Periodic(ModulatedPoisson):
    """Poisson arrivals switched between two rates on a fixed period, started at a random phase.

    The phase is uniform over the period, drawn per seed: bursts at a fixed phase would let a
    fixed merge period lock onto them, and a seed would then say nothing new. Equal rates make
    the steady case.
    """

    family: Literal["periodic"] = "periodic"
    quiet_rps: float = Field(
        1.0,
        ge=0,
        allow_inf_nan=False,
        description="Arrival rate outside bursts, requests/s. Source: well below the 2.4 "
        "to 6 requests/s that a vLLM CPU sidecar on two cores was measured to serve.",
    )
    busy_rps: float = Field(
        4.0,
        gt=0,
        allow_inf_nan=False,
        description="Arrival rate inside bursts, requests/s. Source: within the "
        "range named at quiet_rps, so that a burst loads the sidecar without flooding it.",
    )
    period_s: float = Field(
        30.0,
        gt=0,
        allow_inf_nan=False,
        description="Time from one burst's start to the next, s. Source: the published study's "
        "120 s, shortened with the runs.",
    )
    busy_s: float = Field(
        8.0,
        gt=0,
        allow_inf_nan=False,
        description="Length of a burst, s. Source: the published study's quarter of a period.",
    )

    rate_fields: ClassVar[tuple[str, ...]] = ("quiet_rps", "busy_rps")

    @model_validator(mode="after")
    def _check(self) -> "Periodic":
        if self.busy_s >= self.period_s:
            raise ValueError(
                f"busy_s ({self.busy_s:g} s) must be below period_s ({self.period_s:g} s)"
            )
        if self.busy_rps < self.quiet_rps:
            raise ValueError(
                f"busy_rps ({self.busy_rps:g}) must be at least quiet_rps ({self.quiet_rps:g})"
            )
        return self

    def intensity(self, horizon_s: float, rng: np.random.Generator) -> Intensity:
        """Draw the phase; bursts are ``[phase + k period, phase + k period + busy)``, all k."""
        phase_s = rng.random() * self.period_s
        starts = phase_s + self.period_s * np.arange(-1, np.ceil(horizon_s / self.period_s))
        switches = np.column_stack([starts, starts + self.busy_s]).ravel()
        inside = (switches > 0) & (switches < horizon_s)
        edges = np.concatenate([[0.0], switches[inside], [horizon_s]])
        # a piece is busy when the last switch before it was a burst's start (an even index)
        last_switch = np.searchsorted(switches, edges[:-1], side="right") - 1
        busy = (last_switch >= 0) & (last_switch % 2 == 0)
        return Intensity(edges, np.where(busy, self.busy_rps, self.quiet_rps))
